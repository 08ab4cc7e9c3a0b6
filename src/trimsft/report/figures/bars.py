"""Bars: token categories, Table 1 of the paper, and pass@k beside best-of-k (Figure 2); all in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trimsft import paper
from trimsft.report.colours import Line, Objectives, lines_of
from trimsft.report.figures.style import AMBER, BLUE, COLUMN, GREY, Drawing, Spread, drawing, legend_below, plain
from trimsft.report.tables.paper import CATEGORY_SETTING
from trimsft.tokens.statistics.groups import by_category
from trimsft.tokens.table import TokenTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GROUP = 0.84  # the share of the distance between two groups that is bars
_IN_A_COLUMN = 20  # bars; more are too thin to tell their colours apart
_SHARES = (("tokens", GREY), ("SFT gradient", AMBER), ("TrimSFT gradient", BLUE))
_PAPER: dict[str, Any] = {"marker": "d", "linestyle": "", "color": "white", "markeredgecolor": "black"}
"""How the paper's numbers are marked."""


def category_bars(table: TokenTable) -> Drawing:
    """Percent of the tokens, of SFT's and of TrimSFT's gradient mass in each category; the paper's as marks."""
    margin, bandwidth = CATEGORY_SETTING
    groups = by_category(table, margin=margin, bandwidth=bandwidth)
    ours = {row.name: (row.ratio_percent, row.sft_mass_percent, row.trim_mass_percent) for row in groups}
    theirs = {row.category: (row.ratio, row.sft_mass, row.trim_mass) for row in paper.token_categories()}
    with drawing(COLUMN, 2.6) as drawn:
        axes = drawn.figure.subplots()
        height = 0.8 / len(_SHARES)
        places = np.arange(len(ours))
        for number, (label, colour) in enumerate(_SHARES):
            at = places + (number - 1) * height
            axes.barh(at, [row[number] for row in ours.values()], 0.9 * height, color=colour, label=label)
            axes.plot([theirs[name][number] for name in ours], at, label="paper" if number == 2 else None, **_PAPER)
        axes.set_yticks(places, [plain(name) for name in ours])
        axes.invert_yaxis()
        axes.set(xlabel="percent", xlim=(0, None))
        axes.tick_params(axis="y", length=0)
        axes.set_title(rf"TrimSFT at $m={margin:g}$, $\tau={bandwidth:g}$", loc="left")
        legend_below(drawn.figure, axes, last="paper")
        rows = [
            [source, name, *values]
            for source, shares in (("ours", ours), ("paper", theirs))
            for name, values in shares.items()
        ]
        return drawn.with_data(["source", "category", "tokens", "sft_mass", "trim_mass"], rows)


def sampling_bars(
    metrics: Mapping[str, Mapping[str, Mapping[str, Spread]]], objectives: Objectives | None = None
) -> Drawing:
    """metric -> benchmark -> run -> value in percent with its interval; a panel for each metric, one below another."""
    runs = list(dict.fromkeys(run for panel in metrics.values() for bars in panel.values() for run in bars))
    with drawing(COLUMN, 0.5 + 1.6 * len(metrics)) as drawn:
        panels = drawn.figure.subplots(len(metrics), 1, sharey=True, squeeze=False)[:, 0]
        for axes, (metric, benchmarks) in zip(panels, metrics.items(), strict=True):
            _grouped(axes, benchmarks, lines_of(runs, objectives), turned=len(benchmarks) > 3)
            axes.set_title(metric, loc="left")
            axes.set_ylabel("percent")
        legend_below(drawn.figure, panels[0])
        rows = (
            [metric, benchmark, run, *spread]
            for metric, benchmarks in metrics.items()
            for benchmark, bars in benchmarks.items()
            for run, spread in bars.items()
        )
        return drawn.with_data(["metric", "benchmark", "run", "value", "low", "high"], rows)


def score_bars(
    benchmarks: Mapping[str, Mapping[str, Spread]],
    *,
    metric: str = "average@8, %",
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> Drawing:
    """benchmark -> run -> value in the unit of `metric` with its interval; the paper's values as marks.

    As wide as a column, or as a page where there are more bars than a column has room for.
    """
    theirs = paper or {}
    runs = list(dict.fromkeys(run for bars in benchmarks.values() for run in bars))
    if not runs:
        raise ValueError("benchmarks: there are no scores; give the value of at least one run")
    width = COLUMN if len(runs) * len(benchmarks) <= _IN_A_COLUMN else 2 * COLUMN
    with drawing(width, 2.3) as drawn:
        axes = drawn.figure.subplots()
        _grouped(axes, benchmarks, lines_of(runs), turned=width == COLUMN and len(benchmarks) > 3)
        marks = [
            (place + _offset(runs, run), value)
            for place, name in enumerate(benchmarks)
            for run, value in theirs.get(name, {}).items()
            if run in runs
        ]
        if marks:
            axes.plot(*zip(*marks, strict=True), label="paper", clip_on=False, **_PAPER)  # some of them are 0
        axes.set_ylabel(plain(metric))
        legend_below(drawn.figure, axes, last="paper")
        rows = (
            [name, run, *spread, theirs.get(name, {}).get(run)]
            for name, bars in benchmarks.items()
            for run, spread in bars.items()
        )
        return drawn.with_data(["benchmark", "run", "value", "low", "high", "paper"], rows)


def _offset(runs: Sequence[str], run: str) -> float:
    """The distance of a run's bar from the middle of its group."""
    return (runs.index(run) - (len(runs) - 1) / 2) * _GROUP / len(runs)


def _grouped(
    axes: Axes, benchmarks: Mapping[str, Mapping[str, Spread]], lines: Mapping[str, Line], *, turned: bool
) -> None:
    for run, line in lines.items():
        places = [place for place, bars in enumerate(benchmarks.values()) if run in bars]
        values, low, high = np.array([bars[run] for bars in benchmarks.values() if run in bars]).reshape(-1, 3).T
        axes.bar(
            np.array(places) + _offset(list(lines), run),
            values,
            0.92 * _GROUP / len(lines),
            color=line.colour,
            label=plain(run),
            yerr=np.maximum(0, [values - low, high - values]),
            error_kw={"linewidth": 0.6, "ecolor": "black"},
        )
    turn: Any = {"rotation": 20, "ha": "right"} if turned else {"rotation": 0, "ha": "center"}
    axes.set_xticks(range(len(benchmarks)), [plain(name) for name in benchmarks], **turn)
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, None)
