"""The plane of a sweep in colour: one square for each margin and bandwidth, or pair of other fields, that was tried.

score_map({(1.0, 0.5): (29.8, 28.1, 31.4), ...}, "figures/plane.svg", chosen=(1.0, 0.5))
score_map({(1e-4, "cosine"): ..., ...}, "figures/plane.svg", fields=("learning_rate", "lr_scheduler_type"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimsft.report.figures.ablation import Spread
from trimsft.report.figures.fields import field_label, in_order, value_text
from trimsft.report.figures.style import COLUMN, FORMATS, SMALL, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = "cividis"
_SQUARE = 0.4
"""Inches, at least, so that its number can be read."""


def score_map(
    scores: Mapping[tuple[Any, Any], Spread],
    path: str | Path,
    *,
    fields: tuple[str, str] = ("margin", "bandwidth"),
    metric: str = "average@8, %",
    chosen: tuple[Any, Any] | None = None,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """By the values of two fields, the first across, in the unit of `metric`; `chosen` gets a frame.

    What was not tried stays white. Returns the files.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if not scores:
        raise ValueError(f"scores: there are none; give the value of at least one ({', '.join(fields)})")
    across, up = (in_order({setting[n] for setting in scores}) for n in (0, 1))
    values = np.full((len(up), len(across)), np.nan)
    for (column, row), (value, _, _) in scores.items():
        values[up.index(row), across.index(column)] = value
    size = (max(COLUMN, 1.1 + _SQUARE * len(across)), max(1.6, 0.7 + _SQUARE * len(up)))
    with matplotlib.rc_context({**SMALL, "axes.spines.left": False, "axes.spines.bottom": False}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        colours = axes.pcolormesh(np.ma.masked_invalid(values), cmap=_COLOURS, edgecolors="white", linewidth=1)
        _numbers(axes, values)
        axes.set_xticks(np.arange(len(across)) + 0.5, [plain(value_text(value)) for value in across])
        axes.set_yticks(np.arange(len(up)) + 0.5, [plain(value_text(value)) for value in up])
        axes.tick_params(length=0)
        axes.set(xlabel=field_label(fields[0]), ylabel=field_label(fields[1]))
        if chosen is not None and chosen in scores:
            _frame(axes, across.index(chosen[0]), up.index(chosen[1]))
        figure.colorbar(colours, ax=axes, label=plain(metric), pad=0.02, aspect=25)
        pairs = [(column, row) for column in across for row in up if (column, row) in scores]
        rows = [[*pair, *scores[pair]] for pair in pairs]
        return save(figure, path, [*fields, "value", "low", "high"], rows, formats)


def _numbers(axes: Axes, values: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            bright = high > low and (value - low) / (high - low) > 0.55
            colour = "black" if bright else "white"
            axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=6.5)


def _frame(axes: Axes, column: int, row: int) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column, row), 1, 1, fill=False, edgecolor="black", linewidth=1.6, clip_on=False))
