"""A table of results as files: Markdown to read, CSV to compute with.

Result("calibration", "How sure, and how often right", (Column("run"), Column("ece", 2)), [("SFT", 3.1415)])
-> calibration.md:  | run | ece |      calibration.csv:  run,ece
                    | SFT | 3.14 |                        SFT,3.1415

Columns x_ours, x_low and x_high beside each other are one in Markdown: 3.14 [2.90, 3.41].
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trimsft.report.figures.style import csv_of
from trimsft.runs.files import write_whole

Value: TypeAlias = str | float | int | None


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    digits: int = 2
    """After the point, in Markdown."""


@dataclass(frozen=True)
class Result:
    """One table."""

    name: str
    """Of its files."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    notes: Sequence[str] = ()
    shown: int | None = None
    """How many rows Markdown shows; the CSV has all."""


def write_result(folder: Path, result: Result) -> list[Path]:
    """Both files; returns them."""
    names = [column.name for column in result.columns]
    return [
        write_whole(folder / f"{result.name}.md", markdown(result).encode()),
        write_whole(folder / f"{result.name}.csv", csv_of(names, result.rows)),
    ]


def markdown(result: Result) -> str:
    """A title, a GitHub table, notes."""
    kept = [at for at, column in enumerate(result.columns) if not is_end(result.columns, at)]
    texts = [any(isinstance(row[at], str) for row in result.rows) for at in kept]
    shown = result.rows if result.shown is None else result.rows[: result.shown]
    lines = [
        f"# {escaped(result.title)}",
        "",
        _line([escaped(result.columns[at].name.replace("_", " ")) for at in kept]),
        _line(["---" if text else "---:" for text in texts]),
        *(_line([_with_ends(row, at, result.columns) for at in kept]) for row in shown),
    ]
    notes = list(result.notes)
    if len(shown) < len(result.rows):
        notes.append(f"{len(result.rows) - len(shown):,} more rows are in {result.name}.csv.")
    for note in notes:
        lines += ["", escaped(note)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """In one line, and as Markdown shows it letter by letter."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", " ".join(text.split()))


def is_end(columns: Sequence[Column], at: int) -> bool:
    """Whether a column is an end of the interval of the one before it."""
    name, _, end = columns[at].name.rpartition("_")
    return end in ("low", "high") and f"{name}_ours" in (columns[at - 1].name, columns[at - 2].name)


def _with_ends(row: Sequence[Value], at: int, columns: Sequence[Column]) -> str:
    """A cell, with its interval where there is one and it has a width."""
    text = _cell(row[at], columns[at])
    if at + 2 >= len(columns) or not is_end(columns, at + 1) or None in (row[at + 1], row[at + 2]):
        return text
    low, high = (_cell(row[at + n], columns[at + n]) for n in (1, 2))
    return text if low == high else f"{text} \\[{low}, {high}\\]"


def _cell(value: Value, column: Column) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        rounded = f"{value:,.{column.digits}f}"
        return rounded.removeprefix("-") if float(rounded.replace(",", "")) == 0 else rounded  # no -0.00
    return f"{value:,}" if isinstance(value, int) else escaped(value)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
