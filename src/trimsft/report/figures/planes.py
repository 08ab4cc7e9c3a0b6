"""Planes in colour: where tokens moved, how selective each margin and bandwidth is, and the scores of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trimsft.intervals import Array
from trimsft.report.figures.settings import field_label, in_order, value_text
from trimsft.report.figures.style import (
    COLUMN,
    GREY,
    PAGE,
    UNFRAMED,
    Drawing,
    Spread,
    drawing,
    legend_below,
    plain,
    shown,
)
from trimsft.tokens.statistics import PAPER_SETTINGS, REGIONS, effective_ratio_grid
from trimsft.tokens.table import TokenTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

_COLOURS = "cividis"  # made for all colour vision, and even in grey
_MOVED = "Blues"
_LEVELS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
MARGINS, BANDWIDTHS = np.linspace(-2, 10, 49), np.geomspace(0.1, 8, 40)
_SQUARE = 0.4  # inches, at least, so that its number can be read


def movement_maps(base: str, runs: Mapping[str, Array]) -> Drawing:
    """Percent of tokens from a region of gaps in the base (row) to one in each run (column)."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    columns = min(3, len(runs))
    lines = math.ceil(len(runs) / columns)
    norm = PowerNorm(0.4, 0, 100)  # most tokens stay where they are: a root keeps the few that move in sight
    with drawing(COLUMN if columns == 1 else PAGE, 0.5 + lines * 1.25, UNFRAMED) as drawn:
        panels = drawn.figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for place, (axes, (label, shares)) in enumerate(zip(panels.flat, runs.items(), strict=False)):
            _draw_movement(axes, shares, norm)
            axes.set_title(f"{shown(base)} to {shown(label)}")
            if place % columns == 0:
                axes.set_ylabel("gap before")
            if place + columns >= len(runs):
                axes.set_xlabel(r"gap after, against $m \pm \tau$")
                axes.tick_params(labelbottom=True)
        for axes in panels.flat[len(runs) :]:
            axes.set_visible(False)
        colours = ScalarMappable(norm, _MOVED)
        drawn.figure.colorbar(
            colours, ax=panels, label="percent of all tokens", ticks=(0, 1, 5, 20, 50, 100), aspect=25
        )
        rows = (
            [f"{base} to {label}", REGIONS[row], REGIONS[column], float(share)]
            for label, shares in runs.items()
            for (row, column), share in np.ndenumerate(shares)
        )
        return drawn.with_data(["run", "before", "after", "percent"], rows)


def _draw_movement(axes: Axes, shares: Array, norm: Normalize) -> None:
    axes.pcolormesh(shares, cmap=_MOVED, norm=norm, edgecolors="white", linewidth=1)
    for (row, column), value in np.ndenumerate(shares):
        colour = "white" if value > 35 else "black"
        axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center", color=colour)
    axes.set_xticks(np.arange(3) + 0.5, ("below", "within", "above"))
    axes.set_yticks(np.arange(3) + 0.5, ("below", "within", "above"))
    axes.set_ylim(3, 0)
    axes.tick_params(length=0)


def effective_ratio_map(table: TokenTable, *, margin: float, bandwidth: float) -> Drawing:
    """Draw R_eff over the plane, with lines of equal height; this setting and the paper's are marked."""
    ratios = effective_ratio_grid(table["gap"], MARGINS.tolist(), BANDWIDTHS.tolist())
    with drawing(COLUMN, 2.9) as drawn:
        axes = drawn.figure.subplots()
        look: dict[str, Any] = {"cmap": _COLOURS, "vmin": 0, "vmax": 1, "shading": "gouraud", "rasterized": True}
        colours = axes.pcolormesh(MARGINS, BANDWIDTHS, ratios, **look)
        axes.set_yscale("log")
        levels = [level for level in _LEVELS if ratios.min() < level < ratios.max()]
        if levels:
            shades = ["white" if level < 0.5 else "black" for level in levels]  # dark on the bright part
            lines = axes.contour(MARGINS, BANDWIDTHS, ratios, levels=levels, colors=shades, linewidths=0.7)
            axes.clabel(lines, fmt="%g", fontsize=6.5)
        _mark_settings(axes, margin, bandwidth)
        ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10) if _is_shown(0, tick)]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks([], minor=True)
        axes.set(xlabel=field_label("margin"), ylabel=field_label("bandwidth"))
        drawn.figure.colorbar(colours, ax=axes, label="effective ratio $R_{eff}$", pad=0.02, aspect=25)
        legend_below(drawn.figure, axes)
        rows = (
            [float(MARGINS[column]), float(BANDWIDTHS[row]), float(ratio)]
            for (row, column), ratio in np.ndenumerate(ratios)
        )
        return drawn.with_data(["margin", "bandwidth", "effective_ratio"], rows)


def _mark_settings(axes: Axes, margin: float, bandwidth: float) -> None:
    mark: dict[str, Any] = {"linestyle": "", "clip_on": False, "color": "white", "markeredgecolor": "black"}
    theirs = [(m, tau) for m, tau in PAPER_SETTINGS if _is_shown(m, tau) and (m, tau) != (margin, bandwidth)]
    if theirs:
        axes.plot(*zip(*theirs, strict=True), marker="o", label="settings of the paper's tables", **mark)
    if _is_shown(margin, bandwidth):
        label = rf"$m={margin:g}$, $\tau={bandwidth:g}$"
        axes.plot(margin, bandwidth, marker="*", label=label, **{**mark, "markersize": 8})


def _is_shown(margin: float, bandwidth: float) -> bool:
    return bool(MARGINS[0] <= margin <= MARGINS[-1] and BANDWIDTHS[0] <= bandwidth <= BANDWIDTHS[-1])


def score_map(
    scores: Mapping[tuple[Any, Any], Spread],
    *,
    fields: tuple[str, str] = ("margin", "bandwidth"),
    metric: str = "average@8, %",
    chosen: tuple[Any, Any] | None = None,
) -> Drawing:
    """Draw scores by the values of two fields, the first across, in the unit of `metric`; `chosen` gets a frame."""
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    if not scores:
        raise ValueError(f"scores: there are none; give the value of at least one ({', '.join(fields)})")
    across, up = (in_order({setting[n] for setting in scores}) for n in (0, 1))
    values = np.array([[scores.get((x, y), (np.nan,))[0] for x in across] for y in up])
    norm = Normalize(np.nanmin(values), np.nanmax(values))
    with drawing(max(COLUMN, 1.1 + _SQUARE * len(across)), max(1.6, 0.7 + _SQUARE * len(up)), UNFRAMED) as drawn:
        axes = drawn.figure.subplots()
        colours = axes.pcolormesh(
            np.ma.masked_invalid(values), cmap=_COLOURS, norm=norm, edgecolors="white", linewidth=1
        )
        for (row, column), value in np.ndenumerate(values):
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5}
            if np.isnan(value):
                axes.text(column + 0.5, row + 0.5, "not\ntried", color=GREY, **{**look, "fontsize": 5.5})
            else:
                colour = "black" if norm(value) > 0.55 else "white"
                axes.text(column + 0.5, row + 0.5, f"{value:.1f}", color=colour, **look)
        axes.set_xticks(np.arange(len(across)) + 0.5, [plain(value_text(value)) for value in across])
        axes.set_yticks(np.arange(len(up)) + 0.5, [plain(value_text(value)) for value in up])
        axes.tick_params(length=0)
        axes.set(xlabel=field_label(fields[0]), ylabel=field_label(fields[1]))
        if chosen is not None and chosen in scores:
            corner = (across.index(chosen[0]), up.index(chosen[1]))
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1.6, clip_on=False))
            axes.set_title("framed: chosen", loc="right", fontsize=7)
        drawn.figure.colorbar(colours, ax=axes, label=plain(metric), pad=0.02, aspect=25)
        pairs = [(column, row) for column in across for row in up if (column, row) in scores]
        return drawn.with_data([*fields, "value", "low", "high"], [[*pair, *scores[pair]] for pair in pairs])
