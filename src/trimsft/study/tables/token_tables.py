"""The tables of the studies about tokens, as `trimsft.analyze` makes them, in the form that all formats come from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trimsft.report.tables import paper as paper_tables
from trimsft.report.tables import runs as run_tables
from trimsft.report.tables.files import Column, Result, Value, is_end
from trimsft.report.tables.scores import Cell, Table
from trimsft.study.cells import BASE
from trimsft.study.tables.beside_the_paper import DEFAULT_BAND, STAND_IN, paper_model
from trimsft.study.tables.summaries import NAMES
from trimsft.tokens.table import TokenTable

_OF_THE_BASE = {
    "weights": paper_tables.weights,
    "gradient-mass": paper_tables.masses,
    "categories": paper_tables.categories,
}
_HEADINGS = {
    "objective": "",
    "high_weight": "weight above 0.5, %",
    "r_eff": "R_eff",
    "ratio": "of the tokens, %",
    "first_choice": "first choice, %",
    "low": "low gaps, %",
    "middle": "middle gaps, %",
    "high": "high gaps, %",
    "sft_mass": "SFT's gradient, %",
    "trim_mass": "TrimSFT's gradient, %",
}
"""As readers see columns; files for programs keep their names."""
ONE_TRAINING = "One training (seed 0) of each method, however many seeds were trained."


def token_results(study: str, model: str, tables: Mapping[str, TokenTable]) -> tuple[Table, dict[str, Any]]:
    """The table of a study, and its rows unrounded; `tables` by objective."""
    if study in _OF_THE_BASE:
        result = _OF_THE_BASE[study](tables[BASE], _about(model, tables[BASE]))
    else:
        labelled = {NAMES[objective]: table for objective, table in tables.items()}
        result = run_tables.confidences(labelled, band())
        result = replace(result, notes=[*result.notes, ONE_TRAINING])
    names = [column.name for column in result.columns]
    rows = [dict(zip(names, map(_finite, row), strict=True)) for row in result.rows]
    same = paper_model(model) == STAND_IN
    return as_table(result, differences=same), {"columns": names, "rows": rows}


def band() -> dict[str, float]:
    return {"margin": DEFAULT_BAND[0], "bandwidth": DEFAULT_BAND[1]}


def as_table(result: Result, *, differences: bool) -> Table:
    """Rounded as `trimsft report` shows it; ours and the paper's in one column, to save width.

    Args:
        differences: show ours minus the paper's, which says something of the same model alone.
    """
    names = [column.name for column in result.columns]
    kept = [
        n
        for n, name in enumerate(names)
        if not name.endswith(("_paper", "_difference")) and not is_end(result.columns, n)
    ]
    bare = [names[n].removesuffix("_ours") for n in kept]
    header = tuple(_HEADINGS.get(name, name.replace("_", " ")) for name in bare)
    rows = tuple(tuple(_cell(row, n, result.columns, differences) for n in kept) for row in result.rows)
    note = "In round brackets: the paper's, and ours minus it."
    if not differences:
        note = f"In round brackets: the paper's, of {STAND_IN}, another model: for the pattern, not for the size."
    beside = any(name.endswith("_paper") for name in names)
    return Table(result.title, header, rows, (*((note,) if beside else ()), *result.notes))


def _cell(row: Sequence[Value], n: int, columns: Sequence[Column], differences: bool) -> Cell:
    value, column = row[n], columns[n]
    if value is None or isinstance(value, str):
        return Cell(NAMES.get(value or "", value or "") if column.name == "objective" else value or "")
    if isinstance(value, int):
        return Cell(f"{value:,}", data=float(value))
    text, data = _rounded(value, column.digits), None if math.isnan(value) else value
    if not column.name.endswith("_ours"):
        return Cell(text, data=data)
    low, high, theirs, difference = row[n + 1 : n + 5]
    assert isinstance(theirs, float) and isinstance(difference, float)
    spread = f"({_rounded(theirs, column.digits)})"
    if differences and not math.isnan(difference):
        spread = f"({_rounded(theirs, column.digits)}, {_rounded(difference, column.digits, '+')})"
    if isinstance(low, float) and isinstance(high, float) and low < high:
        spread = f"[{_rounded(low, column.digits)}, {_rounded(high, column.digits)}] {spread}"
    return Cell(text, spread, data=data)


def _finite(value: Value) -> Value:
    """JSON knows no NaN; of a category without tokens there is nothing to say."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rounded(value: float, digits: int, sign: str = "") -> str:
    """Nothing for NaN."""
    return "" if math.isnan(value) else f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # -0 + 0 is 0


def _about(model: str, table: TokenTable) -> str:
    examples = table.metadata.get("data", {}).get("rows", "unknown")
    return f"{model}, {len(table):,} tokens of {examples} examples."
