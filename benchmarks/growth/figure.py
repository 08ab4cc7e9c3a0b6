"""The figure of the page about growth: time above, memory below, by what grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trimsft.report.colours import VALUE_LINES, lines_of
from trimsft.report.figures.style import GREY, PAGE, Drawing, draw_line, drawing, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = {
    "tokens, vocabulary of a step": ("head_tokens", "head_lean", "head_vocabulary", "training_length"),
    "tokens of a table": ("tokens_table", "tokens_summary", "tokens_page", "tokens_tables"),
    "samples of a record, cells": (
        "record_resume",
        "record_score",
        "record_again",
        "record_compare",
        "record_page",
        "study_cells",
    ),
}
COSTS = {"seconds": "seconds", "peak_mb": "MB beyond what was there"}
_LEAST = {"seconds": 1e-4, "peak_mb": 1.0}  # what is less is drawn as this


def draw(report: Mapping[str, Any]) -> Drawing:
    """Both axes are logarithmic; the grey line is cost in proportion to size."""
    series: Mapping[str, Any] = report["series"]
    panels = {
        title: [name for name in names if name in series]
        for title, names in PANELS.items()
        if any(name in series for name in names)
    }
    with drawing(PAGE * 1.25, 5.2) as drawn:
        grid = drawn.figure.subplots(len(COSTS), len(panels), squeeze=False)
        for column, (title, names) in enumerate(panels.items()):
            for row, (cost, label) in enumerate(COSTS.items()):
                axes = grid[row, column]
                _draw_panel(axes, {name: series[name] for name in names}, cost)
                if column == 0:
                    axes.set_ylabel(label)
            grid[0, column].legend(loc="upper left", fontsize=6.5)
            grid[-1, column].set_xlabel(title)
        rows = [
            [name, point["size"], point["seconds"], point["peak_mb"]]
            for name, entry in series.items()
            for point in entry["points"]
        ]
        return drawn.with_data(["series", "size", "seconds", "peak_mb"], rows)


def _draw_panel(axes: Axes, series: Mapping[str, Any], cost: str) -> None:
    lines = [*VALUE_LINES, *lines_of(["sft", "dft"]).values()]
    for line, entry in zip(lines, series.values(), strict=False):
        sizes = [point["size"] for point in entry["points"]]
        costs = [max(_LEAST[cost], point[cost]) for point in entry["points"]]
        draw_line(axes, sizes, costs, plain(entry["title"]), line)
    axes.set(xscale="log", yscale="log")
    low, high = axes.get_ylim()
    left, right = axes.get_xlim()
    if cost == "seconds":
        axes.set_ylim(low, high * 30)  # room for the names
    else:
        axes.set_ylim(1, max(high, 2000))
    start = axes.get_ylim()[0] * 1.5
    axes.plot([left, right], [start, start * right / left], color=GREY, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
    axes.set_xlim(left, right)
