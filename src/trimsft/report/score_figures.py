"""Figures of scores: dots with intervals, and scores against what was varied (Figure 3 of the paper, sweeps).

score_dots({"average@8, %": {"gsm8k": {"SFT": (29.8, 28.1, 31.4)}}}).save("figures/scores.svg")
ablation_curves({(1.0, 0.5): (29.8, 28.1, 31.4), ...}, baseline=15.5)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trimsft.report.colours import VALUE_LINES, Line, Objectives, lines_of
from trimsft.report.figures import (
    AMBER,
    COLUMN,
    GREY,
    LETTER,
    PAGE,
    Drawing,
    Spread,
    draw_line,
    drawing,
    legend_below,
    plain,
    shown,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scores = Mapping[tuple[float, float], Spread]
"""By (margin, bandwidth)."""


def score_dots(
    metrics: Mapping[str, Mapping[str, Mapping[str, Spread]]], objectives: Objectives | None = None
) -> Drawing:
    """Draw metric -> benchmark -> run -> value with its interval, a panel for each metric."""
    runs = list(dict.fromkeys(run for panel in metrics.values() for dots in panel.values() for run in dots))
    benchmarks = list(dict.fromkeys(name for panel in metrics.values() for name in panel))
    if not runs:
        raise ValueError("metrics: there are no scores; give the value of at least one run")
    width = COLUMN if len(runs) * len(benchmarks) <= 20 else PAGE
    beside = {run: (place - (len(runs) - 1) / 2) * 0.7 / len(runs) for place, run in enumerate(runs)}
    with drawing(width, 0.5 + 1.8 * len(metrics)) as drawn:
        panels = drawn.figure.subplots(len(metrics), 1, squeeze=False)[:, 0]
        for axes, (metric, dots) in zip(panels, metrics.items(), strict=True):
            for run, line in lines_of(runs, objectives).items():
                known = [(benchmarks.index(name) + beside[run], dots[name][run]) for name in dots if run in dots[name]]
                values, low, high = np.array([spread for _, spread in known]).reshape(-1, 3).T
                axes.errorbar(
                    [at for at, _ in known], values, np.maximum(0, [values - low, high - values]),
                    color=line.colour, marker=line.marker, linestyle="", linewidth=1, label=shown(run),
                )  # fmt: skip
            axes.set_ylabel(plain(metric))
            fit = LETTER * max(map(len, benchmarks)) <= (width - 0.6) / len(benchmarks)
            axes.set_xticks(range(len(benchmarks)), [plain(name) for name in benchmarks], rotation=0 if fit else 20)
            axes.set_xlim(-0.5, len(benchmarks) - 0.5)
            axes.grid(axis="y", linewidth=0.4, color=GREY, alpha=0.4)
        panels[-1].set_xlabel("bars: 95 % intervals")
        legend_below(drawn.figure, panels[0])
        rows = (
            [metric, name, run, *spread]
            for metric, panel in metrics.items()
            for name, dots in panel.items()
            for run, spread in dots.items()
        )
        return drawn.with_data(["metric", "benchmark", "run", "value", "low", "high"], rows)


# ---- scores over what was varied


def ablation_curves(scores: Scores, *, baseline: float | None = None, metric: str = "average@8, %") -> Drawing:
    """Draw scores over bandwidths and over margins in the unit of `metric`; `baseline` is SFT's."""
    if not scores:
        raise ValueError("scores: there are none; give the value of at least one (margin, bandwidth)")
    with drawing(COLUMN, 2.45) as drawn:
        panels = drawn.figure.subplots(1, 2, sharey=True)
        for fixed, (axes, sign) in enumerate(zip(panels, ("m", r"\tau"), strict=True)):
            by_value: dict[float, dict[float, Spread]] = defaultdict(dict)
            for setting, spread in sorted(scores.items()):
                by_value[setting[fixed]][setting[1 - fixed]] = spread
            # as many as there are lines, those with the most points
            kept = sorted(sorted(by_value, key=lambda value: -len(by_value[value]))[: len(VALUE_LINES)])
            curves = {f"${sign}={value:g}$": by_value[value] for value in kept}
            _draw_curves(axes, curves, dict(zip(curves, VALUE_LINES, strict=False)))
            axes.set_xlabel((r"bandwidth $\tau$", "margin $m$")[fixed])
            axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.24), ncols=2, columnspacing=0.8)
            if baseline is not None:
                axes.axhline(baseline, color=AMBER, linewidth=0.9, linestyle=(0, (4, 2)))
                where: Any = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom", "color": AMBER}
                axes.annotate(f"SFT: {baseline:.1f} %", (0.98, baseline), **where)
        panels[0].set_ylabel(metric)
        rows: list[list[object]] = [[*setting, *spread] for setting, spread in sorted(scores.items())]
        rows += [] if baseline is None else [["sft", None, baseline, None, None]]
        return drawn.with_data(["margin", "bandwidth", "value", "low", "high"], rows)


def _draw_curves(axes: Axes, curves: Mapping[str, Mapping[float, Spread]], lines: Mapping[str, Line]) -> None:
    """Draw values with their intervals shaded; more than a decade of them stands on a logarithmic axis."""
    for label, line in lines.items():
        kept = sorted(curves[label])
        middle, low, high = np.array([curves[label][value] for value in kept]).T
        draw_line(axes, kept, middle, label, line)
        axes.fill_between(kept, low, high, color=line.colour, alpha=0.18, linewidth=0)
    values = sorted({value for curve in curves.values() for value in curve})
    if min(values) > 0 and max(values) > 10 * min(values):
        axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
