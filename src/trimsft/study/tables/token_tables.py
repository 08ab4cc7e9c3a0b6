"""The tables of the studies about tokens, as `trimsft.analyze` makes them, in the form that all formats come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimsft.analyze import paper_tables, run_tables
from trimsft.analyze.result_files import Column, Result, Value, is_end
from trimsft.analyze.table import TokenTable
from trimsft.evaluate.tables import Cell, Table
from trimsft.study.cells import BASE
from trimsft.study.tables.beside_the_paper import DEFAULT_BAND
from trimsft.study.tables.summaries import NAMES

_OF_THE_BASE = {
    "weights": paper_tables.weights,
    "gradient-mass": paper_tables.masses,
    "categories": paper_tables.categories,
}


def token_results(study: str, model: str, tables: Mapping[str, TokenTable]) -> tuple[Table, dict[str, Any]]:
    """The table of a study, and its rows unrounded; `tables` by objective."""
    if study in _OF_THE_BASE:
        result = _OF_THE_BASE[study](tables[BASE], _about(model, tables[BASE]))
    else:
        labelled = {NAMES[objective]: table for objective, table in tables.items()}
        result = run_tables.confidences(labelled, band())
    names = [column.name for column in result.columns]
    rows = [dict(zip(names, row, strict=True)) for row in result.rows]
    return as_table(result), {"columns": names, "rows": rows}


def band() -> dict[str, float]:
    return {"margin": DEFAULT_BAND[0], "bandwidth": DEFAULT_BAND[1]}


def as_table(result: Result) -> Table:
    """Rounded as `trimsft report` shows it; ours, the paper's and the difference in one column, to save width."""
    names = [column.name for column in result.columns]
    kept = [
        n
        for n, name in enumerate(names)
        if not name.endswith(("_paper", "_difference")) and not is_end(result.columns, n)
    ]
    header = tuple(names[n].removesuffix("_ours").replace("_", " ") for n in kept)
    rows = tuple(tuple(_cell(row, n, result.columns) for n in kept) for row in result.rows)
    beside = any(name.endswith("_paper") for name in names)
    note = ("In round brackets: the paper's, and ours minus it.",) if beside else ()
    return Table(result.title, header, rows, (*note, *result.notes))


def _cell(row: Sequence[Value], n: int, columns: Sequence[Column]) -> Cell:
    value, column = row[n], columns[n]
    if value is None or isinstance(value, str):
        return Cell(value or "")
    if isinstance(value, int):
        return Cell(f"{value:,}", data=float(value))
    text = _rounded(value, column.digits)
    if not column.name.endswith("_ours"):
        return Cell(text, data=value)
    low, high, theirs, difference = row[n + 1 : n + 5]
    assert isinstance(theirs, float) and isinstance(difference, float)
    spread = f"({_rounded(theirs, column.digits)}, {_rounded(difference, column.digits, '+')})"
    if isinstance(low, float) and isinstance(high, float) and low < high:
        spread = f"[{_rounded(low, column.digits)}, {_rounded(high, column.digits)}] {spread}"
    return Cell(text, spread, data=value)


def _rounded(value: float, digits: int, sign: str = "") -> str:
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # -0 + 0 is 0


def _about(model: str, table: TokenTable) -> str:
    examples = table.metadata.get("data", {}).get("rows", "unknown")
    return f"{model}, {len(table):,} tokens of {examples} examples."
