"""Curves: gap distributions (Figure 4 of the paper), reliability, the course of a solution, and of a training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimsft.intervals import Array
from trimsft.report.colours import Objectives, lines_of
from trimsft.report.figures.style import BLUE, COLUMN, GREY, STYLE, Drawing, draw_line, drawing, legend_below, shown
from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.tokens.statistics.calibration import BINS, Calibration
from trimsft.tokens.statistics.gaps import density, range_of
from trimsft.tokens.statistics.groups import Group
from trimsft.tokens.table import TokenTable

FEWEST = 30  # bins with fewer tokens say nothing that a reader should see; the CSV has them all
_POINTS = 400
_LABELS = figures_of(TelemetryLine, "label")
TELEMETRY_PANELS = {name: _LABELS[name] for name in figures_of(TelemetryLine, "figure")}
"""Fields of `telemetry.jsonl` that are drawn, and how they are called."""


def gap_distribution(
    tables: Mapping[str, TokenTable], *, margin: float, bandwidth: float, objectives: Objectives | None = None
) -> Drawing:
    """Figure 4: the density of the gaps of each run; the band is shaded."""
    gaps = {label: table["gap"] for label, table in tables.items()}
    grid = np.linspace(*range_of(list(gaps.values())), _POINTS)
    densities = {label: density(values, grid) for label, values in gaps.items()}
    return draw_gaps(grid, densities, margin=margin, bandwidth=bandwidth, objectives=objectives)


def draw_gaps(
    grid: Array,
    densities: Mapping[str, Array],
    *,
    margin: float,
    bandwidth: float,
    objectives: Objectives | None = None,
) -> Drawing:
    """The same from densities at the gaps of a grid."""
    with drawing(COLUMN, 2.5) as drawn:
        axes = drawn.figure.subplots()
        axes.axvspan(margin - bandwidth, margin + bandwidth, color=BLUE, alpha=0.1, linewidth=0)
        where: Any = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom", "color": BLUE}
        axes.annotate(r"$m \pm \tau$", (margin, 1), **where)
        for label, line in lines_of(densities, objectives).items():
            draw_line(axes, grid, densities[label], shown(label), line, marker=False)
        axes.set(xlim=(grid[0], grid[-1]), xlabel=r"logit gap $\Delta$", ylabel="density")
        axes.set_ylim(bottom=0)
        legend_below(drawn.figure, axes)
        rows = zip(grid.tolist(), *(values.tolist() for values in densities.values()), strict=True)
        return drawn.with_data(["gap", *densities], rows)


def reliability_diagram(runs: Mapping[str, Calibration], objectives: Objectives | None = None) -> Drawing:
    """Draw how often each run's first choice is right, against how sure it is, and the tokens in each bin below.

    Bins of 30 tokens and more are shown; a pale line crosses those between them of which too little is known.
    """
    with drawing(COLUMN, 4.3 + 0.13 * max(0, len(runs) - 4)) as drawn:
        upper, lower = drawn.figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
        upper.plot([0, 1], [0, 1], color=GREY, linewidth=0.7, zorder=0)
        for label, line in lines_of(runs, objectives).items():
            sure, right, tokens = _bins(runs[label])
            draw_line(upper, sure, right, f"{shown(label)}, ECE {100 * runs[label].ece:.1f} %", line)
            known = ~np.isnan(sure)
            upper.plot(sure[known], right[known], color=line.colour, alpha=0.35, linewidth=0.6, zorder=1)
            draw_line(lower, (np.arange(BINS) + 0.5) / BINS, tokens, "", line).set_markersize(2.2)
        lower.axhline(FEWEST, color=GREY, linewidth=0.6, linestyle=(0, (2, 2)))
        lower.annotate(
            f" {FEWEST}", (1, FEWEST), xycoords=("axes fraction", "data"), color=GREY, va="center", fontsize=6
        )
        upper.set(xlim=(0, 1), ylim=(-0.02, 1.02), ylabel="share that is right")
        lower.set(yscale="log", xlabel="probability of the first choice", ylabel="tokens in the bin")
        upper.set_xticks(np.linspace(0, 1, 6))
        upper.set_yticks(np.linspace(0, 1, 6))
        legend_below(drawn.figure, upper)
        rows = (
            [label, each.confidence, each.accuracy, each.tokens, run.ece, run.low, run.high]
            for label, run in runs.items()
            for each in run.bins
        )
        return drawn.with_data(["run", "confidence", "accuracy", "tokens", "ece", "ece_low", "ece_high"], rows)


def _bins(run: Calibration) -> tuple[Array, Array, Array]:
    """Confidence and accuracy of each bin, NaN where it has too few tokens, and its tokens, NaN where it has none."""
    sure, right, tokens = np.full((3, BINS), np.nan)
    for each in run.bins:
        place = min(int(each.confidence * BINS), BINS - 1)
        tokens[place] = each.tokens
        if each.tokens >= FEWEST:
            sure[place], right[place] = each.confidence, each.accuracy
    return sure, right, tokens


def position_curves(runs: Mapping[str, Sequence[Group]], objectives: Objectives | None = None) -> Drawing:
    """Mean nll and mean weight of TrimSFT along the solutions, in equal parts of their length."""
    with drawing(COLUMN, 3.3) as drawn:
        upper, lower = drawn.figure.subplots(2, 1, sharex=True)
        for label, line in lines_of(runs, objectives).items():
            parts = runs[label]
            middles = (np.arange(len(parts)) + 0.5) * 100 / len(parts)
            draw_line(upper, middles, [part.mean_nll for part in parts], shown(label), line)
            draw_line(lower, middles, [part.mean_weight for part in parts], shown(label), line)
        upper.set(ylabel="mean nll")
        lower.set(ylabel="mean TrimSFT weight", xlabel="position in the solution, %", xlim=(0, 100))
        for axes, values in ((upper, "mean_nll"), (lower, "mean_weight")):
            highest = np.nanmax([getattr(part, values) for parts in runs.values() for part in parts])
            axes.set_ylim(0, 1.1 * highest or 1)
        legend_below(drawn.figure, upper)
        rows = (
            [label, 100 * n / len(parts), 100 * (n + 1) / len(parts), part.mean_nll, part.mean_weight]
            for label, parts in runs.items()
            for n, part in enumerate(parts)
        )
        return drawn.with_data(["run", "from", "to", "mean_nll", "mean_weight"], rows)


def training_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], objectives: Objectives | None = None) -> Drawing:
    """Draw each run's telemetry over its steps; `runs` are the records of `telemetry.jsonl` by label."""
    panels = TELEMETRY_PANELS
    height = len(panels) // 4
    with drawing(7.2, 0.5 + 1.7 * height, {**STYLE, "lines.linewidth": 1.2}) as drawn:
        lines = lines_of(runs, objectives)
        for axes, (field, title) in zip(drawn.figure.subplots(height, 4).flat, panels.items(), strict=True):
            for label, records in runs.items():
                kept = [record for record in records if record.get(field) is not None]
                steps, values = [record["step"] for record in kept], [record[field] for record in kept]
                draw_line(axes, steps, values, shown(label), lines[label], marker=False)
            axes.set_title(title, loc="left")
            axes.set_visible(any(len(line.get_xydata()) for line in axes.lines))
        for axes in drawn.figure.axes[-4:]:
            axes.set_xlabel("step")
        drawn.figure.axes[0].set_yscale("log")  # DFT's and TrimSFT's are far below the others
        legend_below(drawn.figure, drawn.figure.axes[0])
        rows = (
            [label, record["step"], *(record.get(field) for field in panels)]
            for label, records in runs.items()
            for record in records
            if "loss" in record
        )
        return drawn.with_data(["run", "step", *panels], rows)
