"""One look for all figures, and the files that each of them is."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.runs.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# the palette of Okabe and Ito, told apart by readers of any colour vision; dashes tell the curves apart in grey
GREY, BLUE, ORANGE, GREEN, PURPLE = "#666666", "#0072B2", "#D55E00", "#009E73", "#CC79A7"
AMBER, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.7,
    "legend.frameon": False,
    "svg.hashsalt": "trimsft",  # equal curves, equal file
}
SMALL: dict[Any, Any] = {
    **STYLE,
    "font.size": 7.5,
    "axes.titlesize": 8,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.fontsize": 7,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "legend.borderpad": 0.2,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.labelpad": 2.5,
}
"""For figures of one column."""
COLUMN = 3.3
"""Inches."""
_LETTER, _HANDLE = 0.055, 0.45
"""Inches that a letter of a legend takes, and its line with the room around it."""
FORMATS = (".svg", ".png")
PRINT_FORMATS = (".svg", ".pdf", ".png")
"""With the one that LaTeX takes."""
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}


@dataclass(frozen=True)
class Line:
    """How one run is drawn, in every figure."""

    colour: str
    dashes: tuple[float, ...] = ()
    """Lengths of dash and gap in line widths; none for a solid line."""
    marker: str = "o"


_BY_NAME = {
    "base": Line(GREY, (1, 1), "s"),
    "sft": Line(AMBER, (6, 1.5, 1.5, 1.5), "D"),
    "fsft": Line(PURPLE, (2.2, 1), "v"),
    "dft": Line(GREEN, (4, 1.5), "^"),
    "trim": Line(BLUE, (), "o"),
    "trime": Line(SKY, (7, 1.5), "<"),
    "trimh": Line(ORANGE, (3, 1.5, 1, 1.5, 1, 1.5), ">"),
}
_ALIASES = {"trimsft": "trim", "trimsfte": "trime", "trimsfth": "trimh"}


def lines_of(labels: Sequence[str]) -> dict[str, Line]:
    """The methods of the paper look the same in every figure; other labels take what they leave free."""
    names = {label: re.sub(r"[^a-z]", "", label.lower()) for label in labels}
    found = {
        label: _BY_NAME[_ALIASES.get(name, name)]
        for label, name in names.items()
        if _ALIASES.get(name, name) in _BY_NAME
    }
    free = [line for line in (_BY_NAME["trim"], *_BY_NAME.values()) if line not in found.values()] or [Line(BLACK)]
    others = [label for label in labels if label not in found]
    return found | {label: free[place % len(free)] for place, label in enumerate(others)}


def plain(label: str) -> str:
    """A label as matplotlib shows it letter by letter: no formulas, and none left out for its underscore."""
    shown = label.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def legend_below(figure: Figure, axes: Axes, *, last: str | None = None) -> None:
    """One legend for all panels, in as many columns as its longest label leaves room for."""
    entries = list(zip(*axes.get_legend_handles_labels(), strict=True))
    entries.sort(key=lambda entry: entry[1] == last)
    longest = max(len(label) for _, label in entries)
    columns = max(1, int(figure.get_figwidth() / (_HANDLE + _LETTER * longest)))
    handles, labels = zip(*entries, strict=True)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def save(
    figure: Figure,
    path: str | Path,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """The figure in each format and its numbers; returns the files written."""
    contents = {}
    figure.draw_without_rendering()  # ticks may change with the first layout, and the space they need with them
    for suffix in formats:
        file = io.BytesIO()
        figure.savefig(file, format=suffix[1:], dpi=200, metadata=_METADATA[suffix])
        figure.set_layout_engine("none")  # the first format has settled it
        contents[suffix] = file.getvalue()
    contents[".csv"] = csv_of(header, rows)
    return [write_whole(Path(path).with_suffix(suffix), content) for suffix, content in contents.items()]


def csv_of(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Six digits; nothing where there is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _cell(value: object) -> object:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value + 0.0:.6g}" if isinstance(value, float) else value  # -0 + 0 is 0
