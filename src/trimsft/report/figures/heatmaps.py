"""Planes in colour: where tokens moved, and how selective each margin and bandwidth is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimsft.report.figures.style import COLUMN, FORMATS, SMALL, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SEQUENTIAL = "cividis"
"""Made for all colour vision, and even in grey."""
_LEVELS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9)
_REGIONS = ("low", "middle", "high")


def movement_maps(
    runs: Mapping[str, NDArray[np.float64]], path: str | Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """For each run, percent of tokens from a region of gaps before training (row) to one after it (column)."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(3, len(runs))
    lines = math.ceil(len(runs) / columns)
    width = COLUMN if columns < 3 else 2 * COLUMN
    with matplotlib.rc_context({**SMALL, "axes.spines.left": False, "axes.spines.bottom": False}):
        figure = Figure(figsize=(width, 0.4 + lines * 1.2), layout="constrained")
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for place, (axes, (label, shares)) in enumerate(zip(panels.flat, runs.items(), strict=False)):
            _cells(axes, shares)
            axes.set_title(plain(label))
            if place % columns == 0:
                axes.set_ylabel("gap before")
            if place + columns >= len(runs):
                axes.set_xlabel("gap after")
                axes.tick_params(labelbottom=True)
        for axes in panels.flat[len(runs) :]:
            axes.set_visible(False)
        rows = (
            [label, _REGIONS[row], _REGIONS[column], float(shares[row, column])]
            for label, shares in runs.items()
            for row in range(3)
            for column in range(3)
        )
        return save(figure, path, ["run", "before", "after", "percent"], rows, formats)


def _cells(axes: Axes, shares: NDArray[np.float64]) -> None:
    from matplotlib.colors import PowerNorm

    # most tokens stay where they are: a root keeps the few that move in sight
    axes.pcolormesh(shares, cmap="Blues", norm=PowerNorm(0.4, 0, 100), edgecolors="white", linewidth=1)
    for row in range(3):
        for column in range(3):
            value = float(shares[row, column])
            colour = "white" if value > 35 else "black"
            axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center", color=colour)
    axes.set_xticks(np.arange(3) + 0.5, _REGIONS)
    axes.set_yticks(np.arange(3) + 0.5, _REGIONS)
    axes.set_ylim(3, 0)
    axes.tick_params(length=0)


def effective_ratio_map(
    margins: NDArray[np.float64],
    bandwidths: NDArray[np.float64],
    ratios: NDArray[np.float64],
    path: str | Path,
    *,
    marked: Sequence[tuple[float, float]] = (),
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """R_eff over the plane, with lines of equal height; `marked` are settings (m, tau) to show."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(COLUMN, 2.7), layout="constrained")
        axes = figure.subplots()
        colours = axes.pcolormesh(
            margins, bandwidths, ratios, cmap=_SEQUENTIAL, vmin=0, vmax=1, shading="gouraud", rasterized=True
        )
        levels = [level for level in _LEVELS if ratios.min() < level < ratios.max()]
        if levels:
            lines = axes.contour(margins, bandwidths, ratios, levels=levels, colors="white", linewidths=0.8)
            axes.clabel(lines, fmt="%g", fontsize=6.5)
        shown = [
            (m, tau) for m, tau in marked if margins[0] <= m <= margins[-1] and bandwidths[0] <= tau <= bandwidths[-1]
        ]
        if shown:
            look: dict[str, Any] = {
                "marker": "o",
                "linestyle": "",
                "color": "white",
                "markeredgecolor": "black",
                "clip_on": False,
            }
            axes.plot(*zip(*shown, strict=True), **look)
        axes.set_yscale("log")
        ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10) if bandwidths[0] <= tick <= bandwidths[-1]]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks([], minor=True)
        axes.set(xlabel="margin $m$", ylabel=r"bandwidth $\tau$")
        figure.colorbar(colours, ax=axes, label="effective ratio $R_{eff}$", pad=0.02, aspect=25)
        rows = (
            [float(margin), float(bandwidth), float(ratios[row, column])]
            for row, bandwidth in enumerate(bandwidths)
            for column, margin in enumerate(margins)
        )
        return save(figure, path, ["margin", "bandwidth", "effective_ratio"], rows, formats)
