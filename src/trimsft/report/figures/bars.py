"""Bars: token categories, Table 1 of the paper, and pass@k beside best-of-k (Figure 2); all in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trimsft.report.colours import Line, Objectives, lines_of
from trimsft.report.figures.style import (
    AMBER,
    BLUE,
    COLUMN,
    GREY,
    LETTER,
    PAGE,
    Drawing,
    Spread,
    drawing,
    legend_below,
    number_text,
    plain,
    shown,
)
from trimsft.tokens.statistics import by_category
from trimsft.tokens.table import TokenTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GROUP = 0.84  # the share of the distance between two groups that is bars
_IN_A_COLUMN = 20  # bars; more are too thin to tell their colours apart
_AXIS = 0.6  # inches that the numbers and the name of an axis take
_SHARES = (("tokens", GREY), ("SFT gradient", AMBER), ("TrimSFT gradient", BLUE))
_PAPER: dict[str, Any] = {"marker": "d", "linestyle": "", "color": "white", "markeredgecolor": "black"}
"""How the paper's numbers are marked."""
Shares = Mapping[str, tuple[float, float, float]]
"""By category, percent of the tokens, of SFT's and of TrimSFT's gradient mass."""


def category_bars(table: TokenTable, paper: Shares, *, margin: float, bandwidth: float) -> Drawing:
    """Draw percent of the tokens, of SFT's and of TrimSFT's gradient mass in each category; the paper's beside them."""
    groups = by_category(table, margin=margin, bandwidth=bandwidth)
    ours = {row.name: (row.ratio_percent, row.sft_mass_percent, row.trim_mass_percent) for row in groups}
    return draw_categories(ours, paper, margin=margin, bandwidth=bandwidth)


def draw_categories(ours: Shares, paper: Shares, *, margin: float, bandwidth: float) -> Drawing:
    """Draw the shares of each category; each bar has its number, since some are next to nothing."""
    sources: dict[str, Shares] = {"ours": ours, "paper": {name: paper[name] for name in ours}}
    with drawing(PAGE, 2.4) as drawn:
        panels = drawn.figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, (source, shares) in zip(panels, sources.items(), strict=True):
            _draw_shares(axes, shares)
            axes.set_title({"ours": "this model", "paper": "the paper's"}[source], loc="left")
            axes.set_xlabel(rf"percent of the tokens, or of the gradient ($m={margin:g}$, $\tau={bandwidth:g}$)")
        panels[0].set_yticks(range(len(ours)), [plain(name) for name in ours])
        panels[0].invert_yaxis()
        panels[0].set_xlim(
            0, 1.1 * max(value for shares in sources.values() for row in shares.values() for value in row)
        )
        legend_below(drawn.figure, panels[0])
        rows = [[source, name, *values] for source, shares in sources.items() for name, values in shares.items()]
        return drawn.with_data(["source", "category", "tokens", "sft_mass", "trim_mass"], rows)


def _draw_shares(axes: Axes, shares: Shares) -> None:
    height = 0.8 / len(_SHARES)
    for number, (label, colour) in enumerate(_SHARES):
        at = np.arange(len(shares)) + (number - 1) * height
        values = [row[number] for row in shares.values()]
        axes.barh(at, values, 0.88 * height, color=colour, edgecolor=colour, linewidth=0.6, label=label)
        for place, value in zip(at, values, strict=True):
            beside: Any = {"xytext": (2.5, 0), "textcoords": "offset points", "va": "center", "fontsize": 6}
            axes.annotate(number_text(value), (value, place), **beside)
    axes.tick_params(axis="y", length=0)


def sampling_bars(
    metrics: Mapping[str, Mapping[str, Mapping[str, Spread]]], objectives: Objectives | None = None
) -> Drawing:
    """metric -> benchmark -> run -> value in percent with its interval; a panel for each metric, one below another."""
    runs = list(dict.fromkeys(run for panel in metrics.values() for bars in panel.values() for run in bars))
    with drawing(COLUMN, 0.5 + 1.6 * len(metrics)) as drawn:
        panels = drawn.figure.subplots(len(metrics), 1, sharey=True, squeeze=False)[:, 0]
        for axes, (metric, benchmarks) in zip(panels, metrics.items(), strict=True):
            _draw_groups(axes, benchmarks, lines_of(runs, objectives), COLUMN)
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
    width = COLUMN if len(runs) * len(benchmarks) <= _IN_A_COLUMN else PAGE
    with drawing(width, 2.3) as drawn:
        axes = drawn.figure.subplots()
        _draw_groups(axes, benchmarks, lines_of(runs), width)
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


def _draw_groups(
    axes: Axes, benchmarks: Mapping[str, Mapping[str, Spread]], lines: Mapping[str, Line], width: float
) -> None:
    """A group of bars for each benchmark, in a figure of this width."""
    highest = max(spread[0] for bars in benchmarks.values() for spread in bars.values())
    for run, line in lines.items():
        places = [place for place, bars in enumerate(benchmarks.values()) if run in bars]
        values, low, high = np.array([bars[run] for bars in benchmarks.values() if run in bars]).reshape(-1, 3).T
        at = np.array(places) + _offset(list(lines), run)
        axes.bar(
            at,
            values,
            0.92 * _GROUP / len(lines),
            color=line.colour,
            label=shown(run),
            yerr=np.maximum(0, [values - low, high - values]),
            error_kw={"linewidth": 0.6, "ecolor": "black"},
        )
        for place, value, top in zip(at, values, high, strict=True):
            if value < 0.01 * highest or not highest:  # a bar that is not seen
                above: Any = {"xytext": (0, 1.5), "textcoords": "offset points", "ha": "center", "fontsize": 6.5}
                axes.annotate(number_text(value), (place, max(value, top)), color=line.colour, **above)
    fit = LETTER * max(map(len, benchmarks)) <= (width - _AXIS) / len(benchmarks)
    axes.set_xticks(range(len(benchmarks)), [plain(name) for name in benchmarks])
    axes.tick_params(axis="x", length=0, rotation=0 if fit else 20)
    axes.set_ylim(0, None if highest else 1)
