r"""The one model of a table, and the formats that it is written in.

    >>> table = Table("", ("run", "gsm8k"), ((Cell("SFT"), Cell.of(Interval(0.412, 0.386, 0.439))),))
    >>> print(render(table, "markdown"), end="")  # or latex, csv, json, terminal
    | run | gsm8k |
    | --- | ---: |
    | SFT | 41.2 \[38.6, 43.9\] |

Names of models, runs and problems may hold anything, so every text is escaped for the format it goes to. Terminal,
Markdown and LaTeX show the same rounded numbers; JSON and CSV hold the figures unrounded, shares from 0 to 1.

`Records` are tables of unrounded values by column name, written as Markdown to read and as CSV to compute with.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trimsft.options import unknown_name
from trimsft.runs.files import write_whole
from trimsft.scoring.intervals import Interval
from trimsft.text.visible import HIDDEN

if TYPE_CHECKING:
    from rich.console import Group

Value: TypeAlias = str | float | int | None
UP, DOWN = "↑", "↓"
_NOTHING = "-"


def rounded(value: float, digits: int, sign: str = "") -> str:
    """The number in text, without a negative zero; nothing for NaN."""
    return "" if math.isnan(value) else f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # -0 + 0 is 0


def points(share: float) -> str:
    """A difference of two shares in percentage points, with its sign."""
    return rounded(100 * share, 1, "+")


@dataclass(frozen=True)
class Cell:
    """What is shown, and the unrounded figures behind it for the formats that programs read."""

    text: str  # A name, which may be anything, or a rounded number; empty where there is nothing to show
    spread: str = ""  # the interval, as shown
    marker: str = ""  # an arrow where a difference is significant
    bold: bool = False
    data: Interval | float | None = None  # the figure itself; None for text

    @classmethod
    def of(
        cls, interval: Interval | None, marker: str = "", *, sign: str = "", bold: bool = False, scale: int = 100
    ) -> Cell:
        """A share with its interval, shown in percent (or times another `scale`); empty where there is none."""
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
    left: tuple[int, ...] = (0,)
    """The columns of names, which are aligned to the left; numbers are aligned to the right."""

    def __post_init__(self) -> None:
        for cells in self.rows:
            if len(cells) != len(self.header):
                raise ValueError(f"rows: must have {len(self.header)} cells as the header has, got {len(cells)}")


def mark_best(
    rows: Sequence[Sequence[Cell]],
    *,
    groups: Sequence[str] | None = None,
    best: Callable[[Iterable[float]], float] = max,
    also_ties: bool = True,
) -> tuple[tuple[Cell, ...], ...]:
    """Rows with the best number of each column in bold, and all that are shown as the same number.

    Args:
        groups: a name for each row; rows of different names are not compared.
        also_ties: mark a column, too, where all numbers of a group are shown as the same.
    """
    groups = groups or [""] * len(rows)
    shown: dict[tuple[str, int], list[float]] = {}
    for group, cells in zip(groups, rows, strict=True):
        for column, cell in enumerate(cells):
            if cell.data is not None:
                shown.setdefault((group, column), []).append(float(cell.text))

    def is_best(group: str, column: int, cell: Cell) -> bool:
        values = shown.get((group, column), [])
        is_marked = cell.data is not None and (also_ties or len(set(values)) > 1)
        return is_marked and float(cell.text) == best(values)

    return tuple(
        tuple(replace(cell, bold=is_best(group, column, cell)) for column, cell in enumerate(cells))
        for group, cells in zip(groups, rows, strict=True)
    )


# ---- records


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
    """Six digits; nothing where there is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_six_digits(value) for value in values] for values in rows)
    return text.getvalue().encode()


def _six_digits(value: object) -> object:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value + 0.0:.6g}" if isinstance(value, float) else value  # -0 + 0 is 0


# ---- formats


def render(table: Table, form: str) -> str:
    """The table as text in one of `FORMATS`."""
    if form not in FORMATS:
        raise unknown_name("format", form, tuple(FORMATS))
    return FORMATS[form](table)


def one_line(text: str) -> str:
    """Without line breaks, and without characters that nobody sees but a terminal or a reader would obey."""
    words = " ".join(text.split())
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in HIDDEN else c for c in words)


_WIDEST_WORD = 14  # columns that a word takes before it may be folded


def to_rich(table: Table) -> Group:
    """For a console of 80 columns or more: what is too wide is wrapped between words, and names are never cut."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(one_line(table.title)), title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for number, name in enumerate(table.header):
        justify = "left" if number in table.left else "right"
        texts = [name, *(f"{cells[number].text} {cells[number].spread}" for cells in table.rows)]
        longest = max((len(word) for text in texts for word in one_line(text).split()), default=0)
        least = min(longest, _WIDEST_WORD)
        shown.add_column(Text(one_line(name)), justify=justify, overflow="fold", min_width=least)  # type: ignore[arg-type]
    for cells in table.rows:
        shown.add_row(*(_rich_cell(cell, Text) for cell in cells))
    return Group(shown, *(Text(one_line(note), style="dim") for note in table.notes))


def _rich_cell(cell: Cell, text: Any) -> Any:
    first = (one_line(cell.text) or _NOTHING, "bold" if cell.bold else "")
    parts = [first, (cell.marker, "bold"), (cell.spread, "dim")]
    return text(" ").join(text(part, style=style) for part, style in parts if part)


def to_terminal(table: Table) -> str:
    """As wide and as coloured as the terminal allows."""
    return _printed(table)


def to_text(table: Table, width: int = 80) -> str:
    """As on a terminal of this width without colours, for a file."""
    lines = _printed(table, width=width, color_system=None).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _printed(table: Table, **options: Any) -> str:
    from rich.console import Console

    console = Console(highlight=False, **options)
    with console.capture() as captured:
        console.print(to_rich(table))
    return captured.get()


def to_markdown(table: Table) -> str:
    """A GitHub table."""
    lines = [f"**{escape_markdown(table.title)}**", ""] if table.title.strip() else []
    lines.append(_markdown_row(map(escape_markdown, table.header)))
    lines.append(_markdown_row("---" if n in table.left else "---:" for n in range(len(table.header))))
    lines += [_markdown_row(map(_markdown_cell, cells)) for cells in table.rows]
    for note in table.notes:
        lines += ["", escape_markdown(note)]
    return "\n".join(lines) + "\n"


_MARKS = re.compile(
    r"""[\\`*_{}\[\]<>#|~$]    # emphasis, code, links, headings, cells, formulas
    |&(?=[#\w])                 # entities
    |(?<!\w)@(?=\w)             # mentions
    |:(?=//|[\w+-]+:)           # addresses, which become links, and :smile:
    """,
    re.VERBOSE,
)


def escape_markdown(text: str) -> str:
    """As it is, letter by letter, wherever GitHub would make something else of it."""
    return _MARKS.sub(r"\\\g<0>", one_line(text))


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text) or _NOTHING
    parts = [f"**{text}**" if cell.bold else text, cell.marker, escape_markdown(cell.spread)]
    return " ".join(filter(None, parts))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def to_latex(table: Table, *, fit: bool = False) -> str:
    """A table for booktabs, with its caption and notes; `fit` keeps it from being wider than the page."""
    begin = rf"\begin{{tabular}}{{{''.join('l' if n in table.left else 'r' for n in range(len(table.header)))}}}"
    smaller = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    lines = [
        rf"% needs \usepackage{{booktabs{',graphicx' if fit else ''}}}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}}}",
        *([smaller] if fit else []),
        begin,
        r"\toprule",
        _latex_row(map(escape_latex, table.header)),
        r"\midrule",
        *(_latex_row(map(_latex_cell, cells)) for cells in table.rows),
        r"\bottomrule",
        r"\end{tabular}" + ("}" if fit else ""),
        *(rf"\par\footnotesize {escape_latex(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = {
    **{character: f"\\{character}" for character in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    '"': '{"}',
    "-": "{-}",  # two of them would become one dash
    "[": "{[}",  # after the end of a row it would be read as an option
    "]": "{]}",
    "*": "{*}",
    "\N{REPLACEMENT CHARACTER}": "?",
    UP: r"$\uparrow$",
    DOWN: r"$\downarrow$",
}
# what pdfLaTeX prints without further packages, seen with TeX Live 2022: most of Latin-1, and some of what follows it
_FOREIGN = re.compile(
    "[^\x00-\x7f\xa1-\xaa\xac-\xba\xbc-\xcf\xd1-\xdd\xdf-\xef\xf1-\xfd\xffŁłŒœŠšŽž€\u2013\u2014\u2018\u2019\u201c\u201d\u2026]+"
)


def escape_latex(text: str) -> str:
    """For every engine; pdfLaTeX, which stops at a letter that its fonts lack, shows the number of that letter."""
    line = unicodedata.normalize("NFC", one_line(text))
    escaped = "".join(_LATEX.get(character, character) for character in line)
    return _FOREIGN.sub(_by_engine, escaped)


def _by_engine(letters: re.Match[str]) -> str:
    r"""\Umathchar is known to LuaLaTeX and XeLaTeX alone."""
    numbers = " ".join(f"U+{ord(letter):04X}" for letter in letters[0])
    return rf"{{\ifdefined\Umathchar {letters[0]}\else {numbers}\fi}}"


def _latex_cell(cell: Cell) -> str:
    text, spread = escape_latex(cell.text or _NOTHING), escape_latex(cell.spread)
    if cell.data is not None:  # a number has a minus, not a hyphen
        text, spread = (part.replace(_LATEX["-"], "$-$") for part in (text, spread))
    bold = rf"\textbf{{{text}}}" if cell.bold else text
    parts = [bold, escape_latex(cell.marker), rf"{{\scriptsize {spread}}}" if spread else ""]
    return " ".join(filter(None, parts))


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def to_json(table: Table) -> str:
    """Lists in the order of the table: names may repeat."""
    rows = [[_json_cell(cell) for cell in cells] for cells in table.rows]
    record = {"title": table.title, "header": list(table.header), "rows": rows, "notes": list(table.notes)}
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def _json_cell(cell: Cell) -> dict[str, Any]:
    if cell.data is None:
        return {"text": cell.text} if cell.text else {"value": None}
    if not isinstance(cell.data, Interval):
        return {"value": cell.data}
    return {**cell.data.as_dict(), "best": cell.bold, "significant": bool(cell.marker)}


def to_csv(table: Table) -> str:
    """One line a row; a column with intervals becomes four: the value, low, high, significant."""
    spreads = [any(isinstance(cells[n].data, Interval) for cells in table.rows) for n in range(len(table.header))]
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    header: list[str] = []
    for name, spread in zip(table.header, spreads, strict=True):
        header += [name, *(f"{name} {part}" for part in ("low", "high", "significant") if spread)]
    writer.writerow(map(escape_csv, header))
    for cells in table.rows:
        fields = (_csv_fields(cell, spread) for cell, spread in zip(cells, spreads, strict=True))
        writer.writerow([value for part in fields for value in part])
    return target.getvalue()


def escape_csv(text: str) -> str:
    """A spreadsheet takes a text with such a beginning for a formula."""
    line = one_line(text)
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line


def _csv_fields(cell: Cell, spread: bool) -> list[str | float]:
    if isinstance(cell.data, Interval):
        return [cell.data.value, cell.data.low, cell.data.high, str(bool(cell.marker)).lower()]
    value = escape_csv(cell.text) if cell.data is None else cell.data
    return [value, *[""] * (3 if spread else 0)]


FORMATS: dict[str, Callable[[Table], str]] = {
    "terminal": to_terminal,
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}
