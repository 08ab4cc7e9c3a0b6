"""Planes in colour: where tokens moved, how selective each margin and bandwidth is, and the scores of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from trimsft.tokens.statistics.intervals import PAPER_SETTINGS
from trimsft.tokens.statistics.weighting import REGIONS, effective_ratio_grid
from trimsft.tokens.table import TokenTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

_COLOURS = "cividis"  # made for all colour vision, and even in grey
_MOVED = "Blues"
_LEVELS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
MARGINS, BANDWIDTHS = np.linspace(-2, 10, 49), np.geomspace(0.1, 8, 40)
_NEAR = 0.3  # of the logarithm of a bandwidth: a name and a mark would cover each other
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
    """R_eff over the plane, with lines of equal height; this setting and the paper's are marked."""
    return draw_ratios(effective_ratio_grid(table["gap"], MARGINS.tolist(), BANDWIDTHS.tolist()), margin, bandwidth)


def draw_ratios(ratios: Array, margin: float, bandwidth: float) -> Drawing:
    """The same from R_eff at each of `BANDWIDTHS` (row) and `MARGINS` (column)."""
    with drawing(COLUMN, 2.9) as drawn:
        axes = drawn.figure.subplots()
        look: dict[str, Any] = {"cmap": _COLOURS, "vmin": 0, "vmax": 1, "shading": "gouraud", "rasterized": True}
        colours = axes.pcolormesh(MARGINS, BANDWIDTHS, ratios, **look)
        axes.set_yscale("log")
        _draw_levels(axes, ratios, [*PAPER_SETTINGS, (margin, bandwidth)])
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


def _draw_levels(axes: Axes, ratios: Array, marks: Sequence[tuple[float, float]]) -> None:
    """Lines of equal height, dark on the bright part; each is named once, away from the borders and from marks."""
    levels = [level for level in _LEVELS if ratios.min() < level < ratios.max()]
    if not levels:
        return
    lines = axes.contour(
        MARGINS,
        BANDWIDTHS,
        ratios,
        levels=levels,
        colors=["white" if level < 0.5 else "black" for level in levels],
        linewidths=0.7,
    )
    named = [place for number, level in enumerate(levels) if (place := _place_of(level, number, ratios, marks))]
    if named:
        axes.clabel(lines, fmt="%g", fontsize=6.5, manual=named)


def _place_of(
    level: float, number: int, ratios: Array, marks: Sequence[tuple[float, float]]
) -> tuple[float, float] | None:
    """Where a line of equal height is named: those of neighbouring levels side by side, not one above the other."""
    middle = len(MARGINS) * (2 + number % 4) // 7
    for column in sorted(range(4, len(MARGINS) - 4), key=lambda column: abs(column - middle)):
        for row in np.flatnonzero((ratios[4:-5, column] <= level) & (level < ratios[5:-4, column])) + 4:
            place = float(MARGINS[column]), float(BANDWIDTHS[row])
            if all(abs(m - place[0]) > 1 or abs(math.log(tau / place[1])) > _NEAR for m, tau in marks):
                return place
    return None


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
    """Scores by the values of two fields, the first across, in the unit of `metric`; `chosen` gets a frame.

    Where whole rows and columns were tried, and nothing between them, they stand below one another.
    """
    if not scores:
        raise ValueError(f"scores: there are none; give the value of at least one ({', '.join(fields)})")
    across, up = (in_order({setting[n] for setting in scores}) for n in (0, 1))
    turned = {(row, column): spread for (column, row), spread in scores.items()}
    whole = {
        "columns": [value for value in across if all((value, row) in scores for row in up)],
        "rows": [value for value in up if all((column, value) in scores for column in across)],
    }
    is_cross = all(column in whole["columns"] or row in whole["rows"] for column, row in scores)
    if is_cross and len(scores) < len(across) * len(up):
        parts = [_Part(turned, up, whole["columns"], fields[::-1]), _Part(scores, across, whole["rows"], fields)]
        parts = [part for part in parts if part.up]
    else:
        parts = [_Part(scores, across, up, fields)]
    drawn = _draw_parts(parts, metric, None if chosen is None else dict(zip(fields, chosen, strict=True)))
    pairs = [(column, row) for column in across for row in up if (column, row) in scores]
    return drawn.with_data([*fields, "value", "low", "high"], [[*pair, *scores[pair]] for pair in pairs])


@dataclass(frozen=True)
class _Part:
    """A rectangle of squares of a plane: (across, up) -> spread."""

    scores: Mapping[tuple[Any, Any], Spread]
    across: Sequence[Any]
    up: Sequence[Any]
    fields: tuple[str, str]

    @property
    def values(self) -> Array:
        return np.array([[self.scores.get((x, y), (np.nan,))[0] for x in self.across] for y in self.up])


def _draw_parts(parts: Sequence[_Part], metric: str, chosen: Mapping[str, Any] | None) -> Drawing:
    """The parts of a plane one above another, with one scale of colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    everything = np.concatenate([part.values.ravel() for part in parts])
    norm = Normalize(np.nanmin(everything), np.nanmax(everything))
    heights = [len(part.up) for part in parts]
    width = max(COLUMN, 1.1 + _SQUARE * max(len(part.across) for part in parts))
    with drawing(width, max(1.6, 0.2 + 0.5 * len(parts) + _SQUARE * sum(heights)), UNFRAMED) as drawn:
        panels = drawn.figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, part in zip(panels, parts, strict=True):
            _draw_part(axes, part, norm)
            place = tuple(chosen[field] for field in part.fields) if chosen else (None, None)
            if place in part.scores and place[1] in part.up:
                _frame(axes, part, place)
        colours = ScalarMappable(norm, _COLOURS)
        drawn.figure.colorbar(colours, ax=panels, label=plain(metric), pad=0.02, aspect=25)
        return drawn


def _draw_part(axes: Axes, part: _Part, norm: Normalize) -> None:
    values = part.values
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=_COLOURS, norm=norm, edgecolors="white", linewidth=1)
    for (row, column), value in np.ndenumerate(values):
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5}
        if np.isnan(value):
            axes.text(column + 0.5, row + 0.5, "not\ntried", color=GREY, **{**look, "fontsize": 5.5})
        else:
            colour = "black" if norm(value) > 0.55 else "white"
            axes.text(column + 0.5, row + 0.5, f"{value:.1f}", color=colour, **look)
    axes.set_xticks(np.arange(len(part.across)) + 0.5, [plain(value_text(value)) for value in part.across])
    axes.set_yticks(np.arange(len(part.up)) + 0.5, [plain(value_text(value)) for value in part.up])
    axes.tick_params(length=0)
    axes.set(xlabel=field_label(part.fields[0]), ylabel=field_label(part.fields[1]))


def _frame(axes: Axes, part: _Part, place: tuple[Any, ...]) -> None:
    from matplotlib.patches import Rectangle

    corner = (part.across.index(place[0]), part.up.index(place[1]))
    axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1.6, clip_on=False))
    axes.set_title("framed: chosen", loc="right", fontsize=7)
