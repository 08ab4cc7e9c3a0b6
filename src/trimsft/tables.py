r"""Tables: cells that show rounded numbers and hold the figures behind them, and their formats.

    >>> table = Table("", ("run", "gsm8k"), ((Cell("SFT"), Cell.of(Interval(0.412, 0.386, 0.439))),))
    >>> print(to_markdown(table), end="")
    | run | gsm8k |
    | --- | ---: |
    | SFT | 41.2 \[38.6, 43.9\] |

Names of models, runs and problems may hold anything, so texts are escaped for their format.
Terminal and Markdown show the same rounded numbers; CSV holds the figures to six digits.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from trimsft.data.visible import single_line
from trimsft.intervals import Interval

if TYPE_CHECKING:
    from rich.console import Group

Value: TypeAlias = str | float | int | None
UP, DOWN = "↑", "↓"
NOTHING = "-"  # shown where there is no value
_WIDEST_WORD = 14  # columns of a terminal that a word takes before it may be folded


def rounded(value: float, digits: int, sign: str = "") -> str:
    """Return the number as text, without a negative zero; nothing for NaN."""
    return "" if math.isnan(value) else f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # -0 + 0 is 0


# ---- tables


@dataclass(frozen=True)
class Cell:
    """A text to show, and the unrounded figures behind it for the formats that programs read."""

    text: str  # a name, or a rounded number; empty where there is nothing to show
    spread: str = ""  # the interval, as shown
    marker: str = ""  # an arrow where a difference is significant
    bold: bool = False
    data: Interval | float | None = None  # None for text

    @classmethod
    def of(
        cls, interval: Interval | None, marker: str = "", *, sign: str = "", bold: bool = False, scale: int = 100
    ) -> Cell:
        """Make a cell of a share and its interval, times `scale`; empty for None."""
        if interval is None:
            return cls("")
        value, low, high = (rounded(scale * end, 1, sign) for end in (interval.value, interval.low, interval.high))
        return cls(value, f"[{low}, {high}]", marker, bold, interval)


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    left: tuple[int, ...] = (0,)  # columns of names; numbers are aligned to the right


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]], notes: Sequence[str] = ()) -> Table:
    """Return a table of nothing but texts."""
    cells = tuple(tuple(map(Cell, row)) for row in rows)
    return Table("", tuple(header), cells, tuple(notes), left=tuple(range(len(header))))


class Tabular:
    """A result that prints as its tables, also in a notebook, and becomes a DataFrame."""

    @property
    def tables(self) -> Sequence[Table]:
        """Return the tables of the result, the most important one first."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(map(to_text, self.tables))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_pandas(self) -> Any:
        """Return the first table as a DataFrame of figures, shares from 0 to 1."""
        import pandas

        return pandas.read_csv(io.StringIO(to_csv(self.tables[0])))


def mark_best(
    rows: Sequence[Sequence[Cell]],
    *,
    groups: Sequence[str] | None = None,
    best: Callable[[Iterable[float]], float] = max,
) -> tuple[tuple[Cell, ...], ...]:
    """Return the rows with the best number of each column in bold, and all that look the same.

    Rows are compared with those of the same `groups`; where all are equal, none is the best.
    """
    marked = [list(cells) for cells in rows]
    names = groups or [""] * len(rows)
    for name in set(names):
        members = [cells for cells, group in zip(marked, names, strict=True) if group == name]
        for column in range(len(members[0])):
            values = {float(cells[column].text) for cells in members if cells[column].data is not None}
            for cells in members if len(values) > 1 else ():
                is_best = cells[column].data is not None and float(cells[column].text) == best(values)
                cells[column] = replace(cells[column], bold=is_best)
    return tuple(map(tuple, marked))


# ---- formats


def to_rich(table: Table) -> Group:
    """Return the table for a console of 80 columns: wrapped between words, names never cut."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(single_line(table.title)), title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for number, name in enumerate(table.header):
        texts = [name, *(f"{cells[number].text} {cells[number].spread}" for cells in table.rows)]
        longest = max((len(word) for text in texts for word in single_line(text).split()), default=0)
        shown.add_column(
            Text(single_line(name)),
            justify="left" if number in table.left else "right",
            overflow="fold",
            min_width=min(longest, _WIDEST_WORD),
        )
    for cells in table.rows:
        styled = []
        for cell in cells:
            text = (single_line(cell.text) or NOTHING, "bold" if cell.bold else "")
            parts = [text, (cell.marker, "bold"), (cell.spread, "dim")]
            styled.append(Text(" ").join(Text(part, style) for part, style in parts if part))
        shown.add_row(*styled)
    return Group(shown, *(Text(single_line(note), style="dim") for note in table.notes))


def to_text(table: Table) -> str:
    """Return the table as on a terminal of 80 columns without colours."""
    from rich.console import Console

    console = Console(highlight=False, width=80, color_system=None)
    with console.capture() as captured:
        console.print(to_rich(table))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def to_markdown(table: Table) -> str:
    rows = [[escape_markdown(name) for name in table.header]]
    rows.append(["---" if n in table.left else "---:" for n in range(len(table.header))])
    for cells in table.rows:
        texts = [escape_markdown(cell.text) or NOTHING for cell in cells]
        shown = [
            (f"**{text}**" if cell.bold else text, cell.marker, escape_markdown(cell.spread))
            for text, cell in zip(texts, cells, strict=True)
        ]
        rows.append([" ".join(filter(None, parts)) for parts in shown])
    lines = [f"**{escape_markdown(table.title)}**", ""] if table.title.strip() else []
    lines += [f"| {' | '.join(row)} |" for row in rows]
    for note in table.notes:
        lines += ["", escape_markdown(note)]
    return "\n".join(lines) + "\n"


_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|~$]|&(?=[#\w])")
"""What begins emphasis, a link, a heading, a cell or a formula; an entity."""


def escape_markdown(text: str) -> str:
    """Return the text on one line such that GitHub shows it letter by letter."""
    return _MARKDOWN.sub(r"\\\g<0>", single_line(text))


def to_csv(table: Table) -> str:
    """Return a line a row; a column with intervals becomes four: value, low, high, significant."""
    header, columns = list[str](), list[list[Value]]()
    for number, name in enumerate(map(single_line, table.header)):
        cells = [row[number] for row in table.rows]
        header.append(name)
        data = [cell.data.value if isinstance(cell.data, Interval) else cell.data for cell in cells]
        texts = [single_line(cell.text) for cell in cells]
        columns.append([text if value is None else value for text, value in zip(texts, data, strict=True)])
        if any(isinstance(cell.data, Interval) for cell in cells):
            header += [f"{name} {part}" for part in ("low", "high", "significant")]
            for part in ("low", "high"):
                columns.append([getattr(cell.data, part, None) for cell in cells])
            columns.append([str(bool(cell.marker)).lower() if cell.data else None for cell in cells])
    return csv_of(header, zip(*columns, strict=True)).decode()


def csv_of(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a CSV: numbers with six digits, nothing for None and NaN."""

    def written(value: object) -> object:
        if isinstance(value, str):
            # what models and data say may begin like a formula, which no spreadsheet may run
            return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
        if not isinstance(value, float):
            return value
        return "" if math.isnan(value) else f"{value + 0.0:.6g}"  # -0 + 0 is 0

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([written(value) for value in values] for values in [header, *rows])
    return text.getvalue().encode()


FORMATS: dict[str, Callable[[Table], str]] = {"terminal": to_text, "markdown": to_markdown, "csv": to_csv}
