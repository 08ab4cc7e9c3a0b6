"""A table in a terminal, in Markdown, LaTeX, JSON and CSV.

    render(table, "markdown")      # or latex, json, csv
    console.print(to_rich(table))

Names of models, runs and problems may hold anything, so every text is escaped for the format it goes to. Terminal,
Markdown and LaTeX show the same rounded numbers; JSON and CSV hold the figures unrounded, shares from 0 to 1.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trimsft.report.tables.scores import DOWN, UP, Cell, Table
from trimsft.scoring.intervals import Interval

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_NOTHING = "-"
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
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


def render(table: Table, form: str) -> str:
    """The table as text in one of `FORMATS`."""
    if form not in FORMATS:
        raise ValueError(f"format: unknown name {form!r}; known: {', '.join(FORMATS)}")
    return FORMATS[form](table)


def one_line(text: str) -> str:
    """Without line breaks, and without characters that nobody sees but a terminal or a reader would obey."""
    words = " ".join(text.split())
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _UNSEEN else c for c in words)


def to_rich(table: Table) -> RichTable:
    """For a terminal; long names are wrapped, never cut."""
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(one_line(table.title)), caption=Text("\n".join(map(one_line, table.notes))))
    for number, name in enumerate(table.header):
        shown.add_column(Text(one_line(name)), justify="right" if number else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*(_rich_cell(cell, Text) for cell in row))
    return shown


def _rich_cell(cell: Cell, text: Any) -> Any:
    parts = [
        (one_line(cell.text) or _NOTHING, "bold" if cell.bold else ""),
        (cell.marker, "bold"),
        (cell.spread, "dim"),
    ]
    return text(" ").join(text(part, style=style) for part, style in parts if part)


def to_markdown(table: Table) -> str:
    """A GitHub table."""
    lines = [f"**{escape_markdown(table.title)}**", ""] if table.title.strip() else []
    lines.append(_markdown_row([escape_markdown(name) for name in table.header]))
    lines.append(_markdown_row(["---", *["---:"] * (len(table.header) - 1)]))
    for row in table.rows:
        lines.append(_markdown_row([_markdown_cell(cell) for cell in row]))
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
    return _joined(f"**{text}**" if cell.bold else text, cell.marker, escape_markdown(cell.spread))


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def to_latex(table: Table) -> str:
    """A table for booktabs, with its caption and notes."""
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        _latex_row([escape_latex(name) for name in table.header]),
        r"\midrule",
        *(_latex_row([_latex_cell(cell) for cell in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\footnotesize {escape_latex(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


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
    return _joined(
        rf"\textbf{{{text}}}" if cell.bold else text,
        escape_latex(cell.marker),
        rf"{{\scriptsize {spread}}}" if spread else "",
    )


def _latex_row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def to_json(table: Table) -> str:
    """Lists in the order of the table: names may repeat."""
    rows = [[_json_cell(cell) for cell in row] for row in table.rows]
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
    spreads = [any(isinstance(row[n].data, Interval) for row in table.rows) for n in range(len(table.header))]
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    header = [
        [name, *([f"{name} {part}" for part in ("low", "high", "significant")] if spread else [])]
        for name, spread in zip(table.header, spreads, strict=True)
    ]
    writer.writerow([escape_csv(name) for names in header for name in names])
    for row in table.rows:
        fields = [_csv_fields(cell, spread) for cell, spread in zip(row, spreads, strict=True)]
        writer.writerow([field for part in fields for field in part])
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
    "markdown": to_markdown,
    "latex": to_latex,
    "json": to_json,
    "csv": to_csv,
}
