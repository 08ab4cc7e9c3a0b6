"""Figure 3 of the paper: scores against the bandwidth at fixed margins, and against the margin at fixed bandwidths.

ablation_curves({(1.0, 0.5): (29.8, 28.1, 31.4), ...}, "figures/ablation.svg", baseline=15.5)
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trimsft.report.figures.style import BLUE, COLUMN, FORMATS, GREEN, GREY, ORANGE, PURPLE, SMALL, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Setting = tuple[float, float]
"""(margin, bandwidth)."""
Spread = tuple[float, float, float]
"""Value, low and high end of its interval; equal where there is none."""
_LEAST = 3
"""A curve has so many points, where any has."""
_LINES = (
    (BLUE, (), "o"),
    (ORANGE, (4, 1.5), "s"),
    (GREEN, (6, 1.5, 1.5, 1.5), "^"),
    (PURPLE, (2.2, 1), "D"),
)


def ablation_curves(
    scores: Mapping[Setting, Spread],
    path: str | Path,
    *,
    baseline: float | None = None,
    metric: str = "average@8, %",
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """`scores` by (margin, bandwidth); `baseline` is SFT's. Values in the unit of `metric`. Returns the files."""
    import matplotlib
    from matplotlib.figure import Figure

    if not scores:
        raise ValueError("scores: there are none; give the value of at least one (margin, bandwidth)")
    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(COLUMN, 2.35), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _curves(left, scores, fixed=0, name="m")
        _curves(right, scores, fixed=1, name=r"\tau")
        label = textwrap.fill(metric, 18)  # the axis is no longer than that
        left.set(xlabel=r"bandwidth $\tau$", ylabel=label)
        right.set(xlabel="margin $m$")
        for axes in (left, right):
            if baseline is not None:
                axes.axhline(baseline, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)))
            axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.24), ncols=2, columnspacing=0.8, handlelength=1.8)
        if baseline is not None:
            left.annotate(
                "SFT",
                (0.98, baseline),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                color=GREY,
            )
        rows: list[list[object]] = [[*setting, *spread] for setting, spread in sorted(scores.items())]
        if baseline is not None:
            rows.append(["sft", None, baseline, None, None])
        return save(figure, path, ["margin", "bandwidth", "value", "low", "high"], rows, formats)


def _chosen(lengths: Mapping[float, int]) -> list[float]:
    least = min(_LEAST, max(lengths.values()))
    kept = sorted(value for value, length in lengths.items() if length >= least)
    if len(kept) <= len(_LINES):
        return kept
    shortest = sorted((lengths[value] for value in kept), reverse=True)[len(_LINES) - 1]
    longer = [value for value in kept if lengths[value] > shortest]
    alike = [value for value in kept if lengths[value] == shortest]
    places = np.linspace(0, len(alike) - 1, len(_LINES) - len(longer)).round().astype(int)
    return sorted([*longer, *(alike[place] for place in places)])


def _curves(axes: Axes, scores: Mapping[Setting, Spread], *, fixed: int, name: str) -> None:
    """One curve for each value of the fixed one: the four with the most points, of equal ones some far apart."""
    by_value: dict[float, list[tuple[float, Spread]]] = defaultdict(list)
    for setting, spread in scores.items():
        by_value[setting[fixed]].append((setting[1 - fixed], spread))
    lengths = {value: len(points) for value, points in by_value.items()}
    for value, (colour, dashes, marker) in zip(_chosen(lengths), _LINES, strict=False):
        places, spreads = zip(*sorted(by_value[value]), strict=True)
        values, low, high = np.array(spreads).T
        (line,) = axes.plot(places, values, color=colour, marker=marker, label=f"${name}={value:g}$")
        line.set_dashes(dashes or (1, 0))
        axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
