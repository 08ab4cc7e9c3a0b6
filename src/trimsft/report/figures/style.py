"""One look for all figures, and the files that each of them is.

with drawing(COLUMN, 2.5) as drawn:
    axes = drawn.figure.subplots()
    ...
    return drawn.with_data(["gap", "SFT"], rows)

gap_distribution(tables).save("figures/gaps.svg")        # gaps.svg, gaps.pdf, gaps.png and gaps.csv
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.data.visible import visible
from trimsft.intervals import Interval
from trimsft.report.colours import METHOD_LINES, NEUTRAL, Line, name_of
from trimsft.runs.files import write_whole
from trimsft.tables import csv_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Spread = tuple[float, float, float]  # value, low and high end of its interval; equal where there is none

GREY, BLUE, AMBER = NEUTRAL, METHOD_LINES["trim"].colour, METHOD_LINES["sft"].colour
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
UNFRAMED: dict[Any, Any] = {**SMALL, "axes.spines.left": False, "axes.spines.bottom": False}
"""For planes of squares."""
COLUMN = 3.3  # inches
PAGE = 2 * COLUMN
LETTER = 0.057  # inches that a letter takes, at most
_HANDLE = 0.45  # inches of a legend's line with the room around it
SCREEN_FORMATS = (".svg", ".png")
PRINT_FORMATS = (".svg", ".pdf", ".png")  # with the one that LaTeX takes
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}


@dataclass(frozen=True)
class Drawing:
    """A figure with the numbers that it shows."""

    figure: Figure
    style: Mapping[Any, Any]
    header: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()

    def with_data(self, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Drawing:
        return replace(self, header=header, rows=list(rows))

    def save(self, path: str | Path, formats: Sequence[str] | None = None) -> list[Path]:
        """Write the figure in each format (`PRINT_FORMATS` by default) and its numbers; returns the files."""
        import matplotlib

        contents: dict[str, bytes] = {}
        with matplotlib.rc_context(dict(self.style)):
            for suffix in PRINT_FORMATS if formats is None else formats:
                if not contents:  # ticks may change with the first layout, and the space they need with them
                    self.figure.draw_without_rendering()
                file = io.BytesIO()
                self.figure.savefig(file, format=suffix[1:], dpi=200, metadata=_METADATA[suffix])
                self.figure.set_layout_engine("none")  # the first format has settled it
                contents[suffix] = file.getvalue()
        contents[".csv"] = csv_of(self.header, self.rows)
        return [write_whole(Path(path).with_suffix(suffix), content) for suffix, content in contents.items()]


@contextmanager
def drawing(width: float, height: float, style: Mapping[Any, Any] = SMALL) -> Iterator[Drawing]:
    """An empty figure of this size in inches; what is drawn within has the style."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(dict(style)):
        yield Drawing(Figure(figsize=(width, height), layout="constrained"), style)


def spread_percent(interval: Interval) -> Spread:
    """The interval of a share, in percent."""
    return 100 * interval.value, 100 * interval.low, 100 * interval.high


def draw_line(axes: Axes, x: Any, y: Any, label: str, line: Line, *, marker: bool = True) -> Line2D:
    (drawn,) = axes.plot(x, y, label=label, color=line.colour, marker=line.marker if marker else "")
    drawn.set_dashes(line.dashes or (1, 0))
    return drawn


def draw_band(axes: Axes, x: Any, spreads: Any, label: str, line: Line) -> None:
    """A line of values [N, 3] with their intervals shaded."""
    values, low, high = spreads.T
    draw_line(axes, x, values, label, line)
    axes.fill_between(x, low, high, color=line.colour, alpha=0.18, linewidth=0)


def draw_baseline(axes: Axes, value: float, label: str | None = None) -> None:
    """The score of SFT, where it has no curve."""
    axes.axhline(value, color=AMBER, linewidth=0.9, linestyle=(0, (4, 2)), label=label)


def plain(label: str) -> str:
    """A label letter by letter: no formulas, none left out for its underscore, nothing that an SVG must not hold."""
    shown = visible(label).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def shown(label: str) -> str:
    """A run in a legend: the name of its method where the label spells one."""
    return plain(name_of(label))


def number_text(value: float) -> str:
    """A number beside a bar; one that is small is not taken for nothing.

    >>> number_text(46.41), number_text(0.36), number_text(2e-9), number_text(0)
    ('46.4', '0.4', '< 0.1', '0')
    """
    if value == 0:
        return "0"
    return f"{value:.1f}" if value >= 0.05 else "< 0.1"


def legend_below(figure: Figure, axes: Axes, *, last: str | None = None) -> None:
    """One legend for all panels, in as many columns as its longest label leaves room for."""
    entries = list(zip(*axes.get_legend_handles_labels(), strict=True))
    entries.sort(key=lambda entry: entry[1] == last)
    longest = max(len(label) for _, label in entries)
    columns = max(1, int(figure.get_figwidth() / (_HANDLE + LETTER * longest)))
    handles, labels = zip(*entries, strict=True)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))
