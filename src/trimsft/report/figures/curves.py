"""Curves of one column: gap distributions (Figure 4 of the paper), reliability, and the course of a solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimsft.report.figures.style import (
    BLUE,
    COLUMN,
    FORMATS,
    GREY,
    SMALL,
    Line,
    legend_below,
    lines_of,
    plain,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FEWEST = 30
"""Bins with fewer tokens say nothing that a reader should see; the CSV has them all."""


class Reliability(NamedTuple):
    """Bins of one run, and its calibration error with an interval, all as shares from 0 to 1."""

    confidence: Sequence[float]
    accuracy: Sequence[float]
    tokens: Sequence[int]
    ece: float
    low: float
    high: float
    bins: int
    """Of equal width, those without any token among them."""

    def shown(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Confidence and accuracy of the bins that are drawn, NaN where one between them is not."""
        confidence, accuracy = np.full((2, self.bins), np.nan)
        for sure, right, tokens in zip(self.confidence, self.accuracy, self.tokens, strict=True):
            if tokens >= FEWEST:
                place = min(int(sure * self.bins), self.bins - 1)
                confidence[place], accuracy[place] = sure, right
        return confidence, accuracy


class Course(NamedTuple):
    """Of one run, by position in the solution."""

    mean_nll: Sequence[float]
    mean_weight: Sequence[float]


def gap_distribution(
    grid: NDArray[np.float64],
    densities: Mapping[str, NDArray[np.float64]],
    path: str | Path,
    *,
    band: tuple[float, float] | None = None,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Figure 4: the density of the gaps of each run; `band` is the (m, tau) that is shaded."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(COLUMN, 2.5), layout="constrained")
        axes = figure.subplots()
        if band is not None:
            margin, bandwidth = band
            axes.axvspan(margin - bandwidth, margin + bandwidth, color=BLUE, alpha=0.1, linewidth=0)
            axes.annotate(
                r"$m \pm \tau$",
                (margin, 1),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                color=BLUE,
            )
        for label, line in lines_of(list(densities)).items():
            _plot(axes, grid, densities[label], label, line, marker=False)
        axes.set(xlim=(grid[0], grid[-1]), xlabel=r"logit gap $\Delta$", ylabel="density")
        axes.set_ylim(bottom=0)
        legend_below(figure, axes)
        rows = zip(grid.tolist(), *(density.tolist() for density in densities.values()), strict=True)
        return save(figure, path, ["gap", *densities], rows, formats)


def reliability_diagram(
    runs: Mapping[str, Reliability], path: str | Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """How often each run's first choice is right, against how sure it is; bins of 30 tokens and more.

    Lines join neighbouring bins only: nothing is known of those between.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(COLUMN, 3.5 + 0.13 * max(0, len(runs) - 4)), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.7, zorder=0)
        lines = lines_of(list(runs))
        for label, run in runs.items():
            named = f"{label}, ECE {100 * run.ece:.1f} %"
            _plot(axes, *run.shown(), named, lines[label])
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability of the first choice", ylabel="share that is right")
        axes.set_aspect("equal")
        axes.set_xticks(np.linspace(0, 1, 6))
        axes.set_yticks(np.linspace(0, 1, 6))
        legend_below(figure, axes)
        rows = (
            [label, *point, run.ece, run.low, run.high]
            for label, run in runs.items()
            for point in zip(run.confidence, run.accuracy, run.tokens, strict=True)
        )
        header = ["run", "confidence", "accuracy", "tokens", "ece", "ece_low", "ece_high"]
        return save(figure, path, header, rows, formats)


def position_curves(runs: Mapping[str, Course], path: str | Path, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Mean nll and mean weight of TrimSFT along the solutions, in equal parts of their length."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(COLUMN, 3.3), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for label, line in lines_of(list(runs)).items():
            parts = len(runs[label].mean_nll)
            middles = (np.arange(parts) + 0.5) * 100 / parts
            _plot(upper, middles, runs[label].mean_nll, label, line)
            _plot(lower, middles, runs[label].mean_weight, label, line)
        upper.set(ylabel="mean nll")
        lower.set(ylabel="mean TrimSFT weight", xlabel="position in the solution, %", xlim=(0, 100))
        for axes, values in ((upper, "mean_nll"), (lower, "mean_weight")):
            highest = np.nanmax([getattr(run, values) for run in runs.values()])
            axes.set_ylim(0, 1.1 * highest or 1)
        legend_below(figure, upper)
        rows = (
            [label, 100 * part / len(run.mean_nll), 100 * (part + 1) / len(run.mean_nll), *values]
            for label, run in runs.items()
            for part, values in enumerate(zip(run.mean_nll, run.mean_weight, strict=True))
        )
        return save(figure, path, ["run", "from", "to", "mean_nll", "mean_weight"], rows, formats)


def _plot(
    axes: Axes,
    x: Sequence[float] | NDArray[np.float64],
    y: Sequence[float] | NDArray[np.float64],
    label: str,
    line: Line,
    *,
    marker: bool = True,
) -> None:
    (drawn,) = axes.plot(x, y, label=plain(label), color=line.colour, marker=line.marker if marker else "")
    drawn.set_dashes(line.dashes or (1, 0))
