"""Planes in colour: where tokens moved, how selective each margin and bandwidth is, and the scores of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimsft.report.figures.settings import field_label, in_order, value_text
from trimsft.report.figures.style import COLUMN, UNFRAMED, Drawing, Spread, drawing, plain
from trimsft.tokens.statistics.intervals import PAPER_SETTINGS
from trimsft.tokens.statistics.weighting import REGIONS, effective_ratio_grid
from trimsft.tokens.table import TokenTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = "cividis"  # made for all colour vision, and even in grey
_LEVELS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
_MARGINS, _BANDWIDTHS = np.linspace(-2, 10, 49), np.geomspace(0.1, 8, 40)
_SQUARE = 0.4  # inches, at least, so that its number can be read


def movement_maps(runs: Mapping[str, NDArray[np.float64]]) -> Drawing:
    """For each run, percent of tokens from a region of gaps before training (row) to one after it (column)."""
    columns = min(3, len(runs))
    lines = math.ceil(len(runs) / columns)
    with drawing(COLUMN if columns < 3 else 2 * COLUMN, 0.4 + lines * 1.2, UNFRAMED) as drawn:
        panels = drawn.figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for place, (axes, (label, shares)) in enumerate(zip(panels.flat, runs.items(), strict=False)):
            _draw_movement(axes, shares)
            axes.set_title(plain(label))
            if place % columns == 0:
                axes.set_ylabel("gap before")
            if place + columns >= len(runs):
                axes.set_xlabel("gap after")
                axes.tick_params(labelbottom=True)
        for axes in panels.flat[len(runs) :]:
            axes.set_visible(False)
        rows = (
            [label, REGIONS[row], REGIONS[column], float(share)]
            for label, shares in runs.items()
            for (row, column), share in np.ndenumerate(shares)
        )
        return drawn.with_data(["run", "before", "after", "percent"], rows)


def _draw_movement(axes: Axes, shares: NDArray[np.float64]) -> None:
    from matplotlib.colors import PowerNorm

    # most tokens stay where they are: a root keeps the few that move in sight
    axes.pcolormesh(shares, cmap="Blues", norm=PowerNorm(0.4, 0, 100), edgecolors="white", linewidth=1)
    for (row, column), value in np.ndenumerate(shares):
        colour = "white" if value > 35 else "black"
        axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center", color=colour)
    axes.set_xticks(np.arange(3) + 0.5, REGIONS)
    axes.set_yticks(np.arange(3) + 0.5, REGIONS)
    axes.set_ylim(3, 0)
    axes.tick_params(length=0)


def effective_ratio_map(table: TokenTable, *, margin: float, bandwidth: float) -> Drawing:
    """R_eff over the plane, with lines of equal height; this setting and the paper's are marked."""
    ratios = effective_ratio_grid(table["gap"].astype(np.float64), _MARGINS.tolist(), _BANDWIDTHS.tolist())
    with drawing(COLUMN, 2.7) as drawn:
        axes = drawn.figure.subplots()
        look: dict[str, Any] = {"cmap": _COLOURS, "vmin": 0, "vmax": 1, "shading": "gouraud", "rasterized": True}
        colours = axes.pcolormesh(_MARGINS, _BANDWIDTHS, ratios, **look)
        levels = [level for level in _LEVELS if ratios.min() < level < ratios.max()]
        if levels:
            lines = axes.contour(_MARGINS, _BANDWIDTHS, ratios, levels=levels, colors="white", linewidths=0.8)
            axes.clabel(lines, fmt="%g", fontsize=6.5)
        marked = [(m, tau) for m, tau in ((margin, bandwidth), *PAPER_SETTINGS) if _is_shown(m, tau)]
        mark: dict[str, Any] = {"marker": "o", "linestyle": "", "color": "white", "markeredgecolor": "black"}
        axes.plot(*zip(*marked, strict=True), clip_on=False, **mark)
        axes.set_yscale("log")
        ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10) if _is_shown(0, tick)]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks([], minor=True)
        axes.set(xlabel=field_label("margin"), ylabel=field_label("bandwidth"))
        drawn.figure.colorbar(colours, ax=axes, label="effective ratio $R_{eff}$", pad=0.02, aspect=25)
        rows = (
            [float(_MARGINS[column]), float(_BANDWIDTHS[row]), float(ratio)]
            for (row, column), ratio in np.ndenumerate(ratios)
        )
        return drawn.with_data(["margin", "bandwidth", "effective_ratio"], rows)


def _is_shown(margin: float, bandwidth: float) -> bool:
    return bool(_MARGINS[0] <= margin <= _MARGINS[-1] and _BANDWIDTHS[0] <= bandwidth <= _BANDWIDTHS[-1])


def score_map(
    scores: Mapping[tuple[Any, Any], Spread],
    *,
    fields: tuple[str, str] = ("margin", "bandwidth"),
    metric: str = "average@8, %",
    chosen: tuple[Any, Any] | None = None,
) -> Drawing:
    """Scores by the values of two fields, the first across, in the unit of `metric`; `chosen` gets a frame.

    What was not tried stays white.
    """
    if not scores:
        raise ValueError(f"scores: there are none; give the value of at least one ({', '.join(fields)})")
    from matplotlib.patches import Rectangle

    across, up = (in_order({setting[n] for setting in scores}) for n in (0, 1))
    values = np.full((len(up), len(across)), np.nan)
    for (column, row), (value, _, _) in scores.items():
        values[up.index(row), across.index(column)] = value
    size = (max(COLUMN, 1.1 + _SQUARE * len(across)), max(1.6, 0.7 + _SQUARE * len(up)))
    with drawing(*size, UNFRAMED) as drawn:
        axes = drawn.figure.subplots()
        colours = axes.pcolormesh(np.ma.masked_invalid(values), cmap=_COLOURS, edgecolors="white", linewidth=1)
        _draw_numbers(axes, values)
        axes.set_xticks(np.arange(len(across)) + 0.5, [plain(value_text(value)) for value in across])
        axes.set_yticks(np.arange(len(up)) + 0.5, [plain(value_text(value)) for value in up])
        axes.tick_params(length=0)
        axes.set(xlabel=field_label(fields[0]), ylabel=field_label(fields[1]))
        if chosen is not None and chosen in scores:
            corner = (across.index(chosen[0]), up.index(chosen[1]))
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1.6, clip_on=False))
        drawn.figure.colorbar(colours, ax=axes, label=plain(metric), pad=0.02, aspect=25)
        pairs = [(column, row) for column in across for row in up if (column, row) in scores]
        return drawn.with_data([*fields, "value", "low", "high"], [[*pair, *scores[pair]] for pair in pairs])


def _draw_numbers(axes: Axes, values: NDArray[np.float64]) -> None:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            is_bright = high > low and (value - low) / (high - low) > 0.55
            colour = "black" if is_bright else "white"
            axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=6.5)
