"""Examples as the page shows them: tokens to read, and for each run the numbers behind them.

{"tokens": ["Step·", "1", ":·"], "ids": [52, 19, 30],
 "runs": [{"nll": [...], "gap": [...], "entropy": [...], "rank": [...], "competitor": ["So", "2", ".·"]}, null]}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.analyze.page.sources import Run
from trimsft.analyze.page.visible import spaced, visible
from trimsft.analyze.table import TokenTable, read_token_table

EXAMPLES = 5
LONGEST = 600
"""Tokens of one example that are shown."""
GAP_EDGES = (-6.0, -3.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
"""Between the nine colours of gaps; page.js draws with the same ones."""
_NUMBERS = ("nll", "gap", "entropy", "rank")


def token_examples(runs: Sequence[Run], count: int = EXAMPLES) -> list[dict[str, Any]]:
    """The first examples of the first run with a token table, and what each run says of the same tokens."""
    tables = [
        None if run.table is None else read_token_table(run.tokens_path, first_examples=count) for run in runs
    ]
    first = next((table for table in tables if table is not None), None)
    if first is None:
        return []
    prompts = first.metadata.get("prompts", [])
    return [_example(number, first, tables, prompts) for number in np.unique(first["example"]).tolist()]


def gap_class(gap: float) -> int:
    """Which of the nine colours."""
    return sum(gap >= edge for edge in GAP_EDGES)


def _example(
    number: int, first: TokenTable, tables: Sequence[TokenTable | None], prompts: Sequence[str]
) -> dict[str, Any]:
    rows = _rows(first, number)
    ids = first["token_id"][rows].tolist()
    texts = [spaced(first.texts["text"][row]) for row in rows]
    gaps = first["gap"][rows].tolist()
    return {
        "number": number,
        "prompt": visible(prompts[number]) if number < len(prompts) else "",
        "tokens": texts,
        "classes": [gap_class(gap) for gap in gaps],
        "ids": ids,
        "left_out": int((first["example"] == number).sum()) - len(rows),
        "runs": [None if table is None else _numbers(table, number, ids) for table in tables],
    }


def _numbers(table: TokenTable, number: int, ids: Sequence[int]) -> dict[str, Any] | None:
    """What one run says of an example; nothing if its tokens are others."""
    rows = _rows(table, number)
    if table["token_id"][rows].tolist() != list(ids):
        return None
    numbers = {name: [_short(value) for value in table[name][rows].tolist()] for name in _NUMBERS}
    return {**numbers, "competitor": [spaced(table.texts["competitor_text"][row]) for row in rows]}


def _rows(table: TokenTable, number: int) -> NDArray[np.int64]:
    return np.flatnonzero(table["example"] == number)[:LONGEST]


def _short(value: float) -> float:
    """Five digits: enough to see, a third of the file."""
    return float(f"{value:.5g}") if math.isfinite(value) else 0.0
