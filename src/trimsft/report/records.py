"""Tables of unrounded values by column name, written as Markdown to read and as CSV to compute with."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from trimsft.report.rendering import escape_markdown, no_formula, render
from trimsft.report.table import Cell, Table
from trimsft.runs.files import write_whole

Value: TypeAlias = str | float | int | None


@dataclass(frozen=True)
class Records:
    """A table of unrounded values.

    Columns x_ours, x_low and x_high beside each other are one for readers: 3.14 [2.90, 3.41].
    """

    name: str  # the name of its files
    title: str
    rows: Sequence[Mapping[str, Value]]  # one or more, all with the same columns
    notes: Sequence[str] = ()
    digits: Mapping[str, int] = field(default_factory=dict)
    """Digits after the point that readers see, by column or its name without _ours and the like; 2 elsewhere."""
    shown: int | None = None  # how many rows readers see; the CSV has all

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0])

    def text(self, row: Mapping[str, Value], column: str, sign: str = "") -> str:
        """A value as readers see it; nothing where there is none."""
        value = row[column]
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, int):
            return f"{value:,}"
        digits = self.digits.get(column, self.digits.get(column.rpartition("_")[0], 2))
        return "" if math.isnan(value) else f"{round(value, digits) + 0.0:{sign},.{digits}f}"

    def spread(self, row: Mapping[str, Value], column: str) -> str:
        """The interval of x_ours, where there is one and it has a width."""
        stem = column.removesuffix("_ours")
        if f"{stem}_low" not in row or stem == column:
            return ""
        low, high = (self.text(row, f"{stem}_{end}") for end in ("low", "high"))
        return f"[{low}, {high}]" if low and high and low != high else ""

    def is_end(self, column: str) -> bool:
        """Whether a column is an end of the interval of another."""
        stem, _, end = column.rpartition("_")
        return end in ("low", "high") and f"{stem}_ours" in self.rows[0]

    def table(self) -> Table:
        """For readers."""
        kept = [column for column in self.columns if not self.is_end(column)]
        shown = self.rows[: self.shown]
        notes = list(self.notes)
        if len(shown) < len(self.rows):
            notes.append(f"{len(self.rows) - len(shown):,} more rows are in {self.name}.csv.")
        return Table(
            self.title,
            tuple(column.replace("_", " ") for column in kept),
            tuple(tuple(Cell(self.text(row, name), self.spread(row, name)) for name in kept) for row in shown),
            tuple(notes),
            tuple(n for n, name in enumerate(kept) if any(isinstance(row[name], str) for row in self.rows)),
        )

    def write(self, folder: Path) -> list[Path]:
        """NAME.md and NAME.csv; returns them."""
        text = f"# {escape_markdown(self.title)}\n\n{render(replace(self.table(), title=''), 'markdown')}"
        return [
            write_whole(folder / f"{self.name}.md", text.encode()),
            write_whole(folder / f"{self.name}.csv", csv_of(self.columns, [list(row.values()) for row in self.rows])),
        ]


def csv_of(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Numbers with six digits; nothing where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(no_formula, header))
    writer.writerows([_csv_value(value) for value in values] for values in rows)
    return text.getvalue().encode()


def _csv_value(value: object) -> object:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return no_formula(value)
    return f"{value + 0.0:.6g}" if isinstance(value, float) else value  # -0 + 0 is 0
