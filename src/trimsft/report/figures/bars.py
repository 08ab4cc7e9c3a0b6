"""Bars: token categories, Table 1 of the paper, and pass@k beside best-of-k (Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trimsft.report.figures.style import (
    AMBER,
    BLUE,
    COLUMN,
    FORMATS,
    GREY,
    SMALL,
    legend_below,
    lines_of,
    plain,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Spread = tuple[float, float, float]
"""Value, low and high end of its interval."""
_GROUP = 0.84
"""Of the distance between two groups of bars, so much is bars."""
_IN_A_COLUMN = 20
"""Bars; more are too thin to tell their colours apart."""
_SHARES = (("tokens", GREY), ("SFT gradient", AMBER), ("TrimSFT gradient", BLUE))


def category_bars(
    shares: Mapping[str, tuple[float, float, float]],
    path: str | Path,
    *,
    paper: Mapping[str, tuple[float, float, float]] | None = None,
    setting: tuple[float, float] | None = None,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Percent of the tokens, of SFT's and of TrimSFT's gradient mass in each category; the paper's as marks.

    `setting` is the (m, tau) of TrimSFT, for the reader.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(COLUMN, 2.6), layout="constrained")
        axes = figure.subplots()
        height = 0.8 / len(_SHARES)
        places = np.arange(len(shares))
        for number, (label, colour) in enumerate(_SHARES):
            at = places + (number - 1) * height
            axes.barh(at, [row[number] for row in shares.values()], 0.9 * height, color=colour, label=label)
            if paper is not None:
                theirs = [paper[name][number] for name in shares]
                axes.plot(
                    theirs,
                    at,
                    "d",
                    color="white",
                    markeredgecolor="black",
                    label="paper" if number == 2 else None,
                )
        axes.set_yticks(places, [plain(name) for name in shares])
        axes.invert_yaxis()
        axes.set(xlabel="percent", xlim=(0, None))
        axes.tick_params(axis="y", length=0)
        if setting is not None:
            axes.set_title(rf"TrimSFT at $m={setting[0]:g}$, $\tau={setting[1]:g}$", loc="left")
        legend_below(figure, axes, last="paper")
        rows = [
            [source, name, *values]
            for source, table in (("ours", shares), ("paper", paper or {}))
            for name, values in table.items()
        ]
        return save(figure, path, ["source", "category", "tokens", "sft_mass", "trim_mass"], rows, formats)


def sampling_bars(
    metrics: Mapping[str, Mapping[str, Mapping[str, Spread]]],
    path: str | Path,
    *,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """metric -> benchmark -> run -> value in percent with its interval; a panel for each metric, one below another."""
    import matplotlib
    from matplotlib.figure import Figure

    runs = list(dict.fromkeys(run for panel in metrics.values() for bars in panel.values() for run in bars))
    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(COLUMN, 0.5 + 1.6 * len(metrics)), layout="constrained")
        panels = figure.subplots(len(metrics), 1, sharey=True, squeeze=False)[:, 0]
        for axes, (metric, benchmarks) in zip(panels, metrics.items(), strict=True):
            _grouped(axes, benchmarks, runs, turned=len(benchmarks) > 3)
            axes.set_title(metric, loc="left")
            axes.set_ylabel("percent")
        legend_below(figure, panels[0])
        rows = (
            [metric, benchmark, run, *spread]
            for metric, benchmarks in metrics.items()
            for benchmark, bars in benchmarks.items()
            for run, spread in bars.items()
        )
        return save(figure, path, ["metric", "benchmark", "run", "value", "low", "high"], rows, formats)


def score_bars(
    benchmarks: Mapping[str, Mapping[str, Spread]],
    path: str | Path,
    *,
    metric: str = "average@8, %",
    paper: Mapping[str, Mapping[str, float]] | None = None,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """benchmark -> run -> value in the unit of `metric` with its interval; the paper's values as marks.

    As wide as a column, or as a page where there are more bars than a column has room for.
    """
    import matplotlib
    from matplotlib.figure import Figure

    runs = list(dict.fromkeys(run for bars in benchmarks.values() for run in bars))
    if not runs:
        raise ValueError("benchmarks: there are no scores; give the value of at least one run")
    width = COLUMN if len(runs) * len(benchmarks) <= _IN_A_COLUMN else 2 * COLUMN
    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(width, 2.3), layout="constrained")
        axes = figure.subplots()
        _grouped(axes, benchmarks, runs, turned=width == COLUMN and len(benchmarks) > 3)
        marks = [
            (place + _offset(runs, run), theirs)
            for place, name in enumerate(benchmarks)
            for run, theirs in (paper or {}).get(name, {}).items()
            if run in runs
        ]
        if marks:
            axes.plot(
                *zip(*marks, strict=True),
                "d",
                color="white",
                markeredgecolor="black",
                label="paper",
                clip_on=False,  # some of the paper's are 0
            )
        axes.set_ylabel(plain(metric))
        legend_below(figure, axes, last="paper")
        rows = [
            [name, run, *spread, (paper or {}).get(name, {}).get(run)]
            for name, bars in benchmarks.items()
            for run, spread in bars.items()
        ]
        return save(figure, path, ["benchmark", "run", "value", "low", "high", "paper"], rows, formats)


def _offset(runs: Sequence[str], run: str) -> float:
    """Of the middle of a run's bar from that of its group."""
    return (runs.index(run) - (len(runs) - 1) / 2) * _GROUP / len(runs)


def _grouped(axes: Axes, benchmarks: Mapping[str, Mapping[str, Spread]], runs: Sequence[str], *, turned: bool) -> None:
    width = _GROUP / len(runs)
    lines = lines_of(runs)
    for run in runs:
        places = [place for place, bars in enumerate(benchmarks.values()) if run in bars]
        spreads = np.array([bars[run] for bars in benchmarks.values() if run in bars]).reshape(-1, 3)
        values, low, high = spreads.T
        axes.bar(
            np.array(places) + _offset(runs, run),
            values,
            0.92 * width,
            color=lines[run].colour,
            label=plain(run),
            yerr=np.maximum(0, [values - low, high - values]),
            error_kw={"linewidth": 0.6, "ecolor": "black"},
        )
    axes.set_xticks(
        range(len(benchmarks)),
        [plain(name) for name in benchmarks],
        rotation=20 if turned else 0,
        ha="right" if turned else "center",
    )
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, None)
