r"""The formats that a table is written in.

    >>> from trimsft.report.table import Cell, Table
    >>> from trimsft.intervals import Interval
    >>> table = Table("", ("run", "gsm8k"), ((Cell("SFT"), Cell.of(Interval(0.412, 0.386, 0.439))),))
    >>> print(render(table, "markdown"), end="")  # or latex, csv, json, terminal
    | run | gsm8k |
    | --- | ---: |
    | SFT | 41.2 \[38.6, 43.9\] |

Names of models, runs and problems may hold anything, so every text is escaped for the format it goes to. Terminal,
Markdown and LaTeX show the same rounded numbers; JSON and CSV hold the figures unrounded, shares from 0 to 1.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trimsft.data.visible import single_line
from trimsft.intervals import Interval
from trimsft.options import unknown_name
from trimsft.report.latex import to_latex
from trimsft.report.table import NOTHING, Cell, Table

if TYPE_CHECKING:
    from rich.console import Group


def render(table: Table, form: str) -> str:
    """The table as text in one of `FORMATS`."""
    if form not in FORMATS:
        raise unknown_name("format", form, tuple(FORMATS))
    return FORMATS[form](table)


_WIDEST_WORD = 14  # columns that a word takes before it may be folded


def to_rich(table: Table) -> Group:
    """For a console of 80 columns or more: what is too wide is wrapped between words, and names are never cut."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(single_line(table.title)), title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for number, name in enumerate(table.header):
        justify = "left" if number in table.left else "right"
        texts = [name, *(f"{cells[number].text} {cells[number].spread}" for cells in table.rows)]
        longest = max((len(word) for text in texts for word in single_line(text).split()), default=0)
        least = min(longest, _WIDEST_WORD)
        shown.add_column(Text(single_line(name)), justify=justify, overflow="fold", min_width=least)  # type: ignore[arg-type]
    for cells in table.rows:
        shown.add_row(*(_rich_cell(cell, Text) for cell in cells))
    return Group(shown, *(Text(single_line(note), style="dim") for note in table.notes))


def _rich_cell(cell: Cell, text: Any) -> Any:
    first = (single_line(cell.text) or NOTHING, "bold" if cell.bold else "")
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
    return _MARKS.sub(r"\\\g<0>", single_line(text))


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text) or NOTHING
    parts = [f"**{text}**" if cell.bold else text, cell.marker, escape_markdown(cell.spread)]
    return " ".join(filter(None, parts))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


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
    """On one line, and no formula."""
    return no_formula(single_line(text))


def no_formula(text: str) -> str:
    """A text that no spreadsheet takes for a formula, as it does with such a beginning."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


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
