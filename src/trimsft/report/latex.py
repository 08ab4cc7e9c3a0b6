"""A table for LaTeX, its texts escaped for every engine."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from trimsft.data.visible import single_line
from trimsft.report.table import DOWN, NOTHING, UP, Cell, Table


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
    line = unicodedata.normalize("NFC", single_line(text))
    escaped = "".join(_LATEX.get(character, character) for character in line)
    return _FOREIGN.sub(_by_engine, escaped)


def _by_engine(letters: re.Match[str]) -> str:
    r"""\Umathchar is known to LuaLaTeX and XeLaTeX alone."""
    numbers = " ".join(f"U+{ord(letter):04X}" for letter in letters[0])
    return rf"{{\ifdefined\Umathchar {letters[0]}\else {numbers}\fi}}"


def _latex_cell(cell: Cell) -> str:
    text, spread = escape_latex(cell.text or NOTHING), escape_latex(cell.spread)
    if cell.data is not None:  # a number has a minus, not a hyphen
        text, spread = (part.replace(_LATEX["-"], "$-$") for part in (text, spread))
    bold = rf"\textbf{{{text}}}" if cell.bold else text
    parts = [bold, escape_latex(cell.marker), rf"{{\scriptsize {spread}}}" if spread else ""]
    return " ".join(filter(None, parts))


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
