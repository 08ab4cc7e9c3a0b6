"""Peak memory and time of `trimsft report` on a large token table; writes JSON.

    python benchmarks/report_memory.py --tokens 5000000 --out docs/results/report_memory.json

The table is made up: examples of 300 tokens, random numbers, 40,000 different texts. Each part of the report is
made in a process of its own; its memory is the largest that the process had, less what it had after its imports.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LENGTH = 300
PARTS = ("page", "tables and figures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=1, help="token tables in the report")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--make", choices=PARTS, help="one part, of the tables that follow; what the others call")
    parser.add_argument("tables", nargs="*", type=Path)
    options = parser.parse_args()
    if options.make is not None:
        print(json.dumps(_make(options.make, options.tables)))
        return
    with tempfile.TemporaryDirectory() as folder:
        tables = [Path(folder, f"tokens-{number}.parquet") for number in range(options.runs)]
        for seed, table in enumerate(tables):
            write_table(table, options.tokens, seed)
        report = {"tokens": options.tokens, "runs": options.runs, "machine": platform.processor() or platform.machine()}
        for part in PARTS:
            command = [sys.executable, __file__, "--make", part, *map(str, tables)]
            report[part] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(json.dumps(report, indent=1))
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def write_table(path: Path, tokens: int, seed: int) -> None:
    """A token table, in row groups of about 100,000 tokens; the tokens are the same for every seed."""
    from trimsft.tokens.categories import CATEGORIES
    from trimsft.tokens.table import writing

    same, own = np.random.default_rng(0), np.random.default_rng([1, seed])
    words = np.array([f" word{number}" for number in range(40_000)], dtype=object)
    metadata = {"tokens": tokens, "model": "m", "data": {"rows": tokens // LENGTH}, "template": "plain"}
    with writing(path, metadata) as append:
        for start in range(0, tokens, 333 * LENGTH):
            count = min(333 * LENGTH, tokens - start)
            place = np.arange(start, start + count)
            ids, others = same.zipf(1.3, count) % 40_000, own.zipf(1.3, count) % 40_000
            gap = own.normal(4, 5, count).astype(np.float32)
            nll = np.logaddexp(0, -gap).astype(np.float32)
            append(
                {
                    "example": (place // LENGTH).astype(np.int32),
                    "position": (place % LENGTH).astype(np.int32),
                    "token_id": ids.astype(np.int32),
                    "text": words[ids].tolist(),
                    "category": (ids % len(CATEGORIES)).astype(np.int8),
                    "nll": nll,
                    "gap": gap,
                    "competitor_id": others.astype(np.int32),
                    "competitor_text": words[others].tolist(),
                    "entropy": nll,
                    "rank": np.where(gap > 0, 1, 2).astype(np.int32),
                    "gradient_norm": (-np.expm1(-nll)).astype(np.float32),
                }
            )


def _make(part: str, tables: list[Path]) -> dict[str, float]:
    from trimsft.objectives import PARAMETERS
    from trimsft.report.analysis import write_analysis
    from trimsft.report.figures import style
    from trimsft.report.page.build import write_report

    _ = style, PARAMETERS
    runs = {table.stem: table for table in tables}
    before, start = _peak(), time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        if part == "page":
            write_report(Path(out, "report.html"), runs, title="t", settings=dict(PARAMETERS))
        else:
            write_analysis(Path(out), runs)
    return {
        "peak_mb": round(_peak() - before),
        "imports_mb": round(before),
        "seconds": round(time.perf_counter() - start),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
