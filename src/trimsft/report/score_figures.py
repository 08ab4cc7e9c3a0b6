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

BARS = "bars: 95 % intervals"
Scores = Mapping[tuple[float, float], Spread]
"""By (margin, bandwidth)."""
_LABELS = {"margin": "margin $m$", "bandwidth": r"bandwidth $\tau$"}


def score_dots(
    metrics: Mapping[str, Mapping[str, Mapping[str, Spread]]],
    objectives: Objectives | None = None,
    *,
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> Drawing:
    """Draw metric -> benchmark -> run -> value with its interval, a panel for each metric; the paper's as diamonds."""
    runs = list(dict.fromkeys(run for panel in metrics.values() for dots in panel.values() for run in dots))
    benchmarks = list(dict.fromkeys(name for panel in metrics.values() for name in panel))
    if not runs:
        raise ValueError("metrics: there are no scores; give the value of at least one run")
    theirs = paper or {}
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
                marks = [(at, theirs[name][run]) for name, (at, _) in zip(dots, known, strict=False)
                         if run in theirs.get(name, {})]  # fmt: skip
                if marks:
                    axes.plot(
                        *zip(*marks, strict=True), marker="d", linestyle="", color="white", markeredgecolor="black"
                    )
            axes.set_ylabel(plain(metric))
            fit = LETTER * max(map(len, benchmarks)) <= (width - 0.6) / len(benchmarks)
            axes.set_xticks(range(len(benchmarks)), [plain(name) for name in benchmarks], rotation=0 if fit else 20)
            axes.set_xlim(-0.5, len(benchmarks) - 0.5)
            axes.grid(axis="y", linewidth=0.4, color=GREY, alpha=0.4)
        panels[-1].set_xlabel(BARS + ("; open diamonds: the paper's" if theirs else ""))
        legend_below(drawn.figure, panels[0])
        rows = (
            [metric, name, run, *spread, theirs.get(name, {}).get(run)]
            for metric, panel in metrics.items()
            for name, dots in panel.items()
            for run, spread in dots.items()
        )
        return drawn.with_data(["metric", "benchmark", "run", "value", "low", "high", "paper"], rows)


# ---- scores over what was varied


def ablation_curves(
    scores: Scores,
    *,
    baseline: float | None = None,
    metric: str = "average@8, %",
    paper: tuple[Scores, float] | None = None,
) -> Drawing:
    """Draw scores over bandwidths and over margins in the unit of `metric`; `baseline` is SFT's.

    Args:
        paper: the paper's scores and its SFT, drawn beside ours on the same axes: points above SFT, where we have one.
    """
    if not scores:
        raise ValueError("scores: there are none; give the value of at least one (margin, bandwidth)")
    sources: dict[str, tuple[Scores, float | None]] = {"ours": (scores, baseline)}
    if paper is not None:
        sources["paper"] = paper
    above_sft = paper is not None and baseline is not None
    rows: list[list[object]] = []
    with drawing(COLUMN * len(sources), 2.45) as drawn:
        panels = drawn.figure.subplots(1, 2 * len(sources), sharey=True)
        for place, (name, (ours, sft)) in enumerate(sources.items()):
            zero = (sft or 0.0) if above_sft else 0.0
            for fixed, sign in enumerate(("m", r"\tau")):
                by_value: dict[float, dict[float, Spread]] = defaultdict(dict)
                for setting, (value, low, high) in sorted(ours.items()):
                    by_value[setting[fixed]][setting[1 - fixed]] = (value - zero, low - zero, high - zero)
                # as many as there are lines, those with the most points
                kept = sorted(sorted(by_value, key=lambda value: -len(by_value[value]))[: len(VALUE_LINES)])
                axes = panels[fixed * len(sources) + place]
                curves = {f"${sign}={value:g}$": by_value[value] for value in kept}
                _draw_curves(axes, curves, dict(zip(curves, VALUE_LINES, strict=False)))
                axes.set_xlabel(_LABELS[("bandwidth", "margin")[fixed]])
                axes.set_title({"ours": "ours", "paper": "the paper"}[name] if paper else "", loc="left")
                axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.24), ncols=2, columnspacing=0.8)
                if sft is not None:
                    axes.axhline(sft - zero, color=AMBER, linewidth=0.9, linestyle=(0, (4, 2)))
                    where: Any = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom", "color": AMBER}
                    axes.annotate(f"SFT: {sft:.1f} %", (0.98, sft - zero), **where)
            own: list[list[object]] = [[*setting, *spread] for setting, spread in sorted(ours.items())]
            own += [] if sft is None else [["sft", None, sft, None, None]]
            rows += [[name, *row] for row in own] if paper else own
        panels[0].set_ylabel(f"{metric.removesuffix(', %')},\npoints above SFT" if above_sft else metric)
        header = ["margin", "bandwidth", "value", "low", "high"]
        return drawn.with_data(["source", *header] if paper else header, rows)


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
