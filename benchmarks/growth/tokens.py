"""Token tables that nobody measured, and what is made of them: the file, the summary, the page, tables and figures.

Examples have 300 tokens, numbers are random, 40,000 different texts. A table is written as `trimsft tokens` does: a
file for each 256 rows, which are joined at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.growth.measuring import Measured

LENGTH, TEXTS = 300, 40_000
FACTS = {"schema": 2, "model": "m", "data": {"rows": 0}, "max_length": None, "top": 0, "dtype": "float32"}


def table_path(folder: Path, tokens: int) -> Path:
    return folder / f"tokens-{tokens}.parquet"


def make(tokens: int, folder: Path) -> dict[str, float]:
    """The table, where it is not there."""
    return {} if table_path(folder, tokens).exists() else write(tokens, folder)


def write(tokens: int, folder: Path) -> dict[str, float]:
    """Parts of a table, and the table from them; only the joining is measured."""
    from trimsft.tokens.parts import Parts
    from trimsft.tokens.passes import WINDOW

    step = WINDOW * LENGTH
    windows = -(-tokens // step)
    parts = Parts(table_path(folder, tokens), FACTS, windows)
    parts.begin(overwrite=True)
    words = pa.array([f" word{number}" for number in range(TEXTS)])
    for window in range(windows):
        start = window * step
        parts.write(window, _window(start, min(step, tokens - start), words), {})
    with Measured() as cost:
        parts.join({"model": "m", "prompts": [], "positions": None})
    return {**cost.as_dict(), "file_mb": round(parts.out.stat().st_size / 2**20, 1)}


def _window(start: int, count: int, words: pa.Array) -> pa.Table:
    from trimsft.tokens.categories import CATEGORIES
    from trimsft.tokens.table import SCHEMA, as_arrow

    rng = np.random.default_rng([0, start])
    place = np.arange(start, start + count)
    ids, others = (rng.zipf(1.3, count) % TEXTS for _ in range(2))
    gap = rng.normal(4, 5, count).astype(np.float32)
    nll = np.logaddexp(0, -gap).astype(np.float32)
    columns = {
        "example": (place // LENGTH).astype(np.int32),
        "position": (place % LENGTH).astype(np.int32),
        "token_id": ids.astype(np.int32),
        "text": words.take(pa.array(ids)),
        "category": (ids % len(CATEGORIES)).astype(np.int8),
        "nll": nll,
        "gap": gap,
        "competitor_id": others.astype(np.int32),
        "competitor_text": words.take(pa.array(others)),
        "entropy": nll,
        "rank": np.where(gap > 0, 1, 2).astype(np.int32),
        "gradient_norm": (-np.expm1(-nll)).astype(np.float32),
    }
    return as_arrow(columns, SCHEMA)


def summarise(tokens: int, folder: Path) -> dict[str, float]:
    """What `trimsft tokens` says of a finished table."""
    from trimsft.objectives import BANDWIDTH, MARGIN, TrimSFT
    from trimsft.tokens.statistics.weighting import confidence, diagnose
    from trimsft.tokens.stored import open_token_table
    from trimsft.tokens.verdict import judge_table

    def work(path: Path) -> None:
        table = open_token_table(path)
        confidence(table, margin=MARGIN, bandwidth=BANDWIDTH)
        diagnose(table, TrimSFT(), margin=MARGIN, bandwidth=BANDWIDTH)
        judge_table(table)

    return _measured(work, tokens, folder)


def page(tokens: int, folder: Path) -> dict[str, float]:
    """report.html."""
    from trimsft.objectives import PARAMETERS
    from trimsft.report.page.build import write_report

    def work(path: Path) -> None:
        write_report(path.with_suffix(".html"), {"t": path}, title="t", settings=dict(PARAMETERS))

    return _measured(work, tokens, folder)


def analysis(tokens: int, folder: Path) -> dict[str, float]:
    """Tables and figures beside it."""
    from trimsft.report.analysis import write_analysis

    return _measured(lambda path: write_analysis(path.with_suffix(""), {"t": path}), tokens, folder)


def _measured(work: Callable[[Path], object], tokens: int, folder: Path) -> dict[str, float]:
    """What the work costs after it was done once, with a small table: imports and first uses do not count."""
    make(10 * LENGTH, folder)
    work(table_path(folder, 10 * LENGTH))
    with Measured() as cost:
        work(table_path(folder, tokens))
    return cost.as_dict()
