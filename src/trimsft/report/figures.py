"""Figures of weights, tokens and scores. Matplotlib is imported to draw.

    weighting_functions().save("docs/figures/weighting_functions.svg")
    gap_distribution({"Base": table}, margin=1.5, bandwidth=0.8).save("figures/gap_distribution.svg")

Each function returns a `Drawing`; saved it is files of one name: .svg, .pdf, .png, and .csv with what is drawn. Methods
have the lines of `trimsft.report.colours`. `python -m trimsft.report.figures FOLDER` draws those that need no run.
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimsft.data.visible import visible
from trimsft.intervals import Interval
from trimsft.objectives import (
    OBJECTIVES,
    PAPER_OBJECTIVES,
    Objective,
    TokenStats,
    TrimSFT,
    TrimSFTEasy,
    TrimSFTHard,
    display_name,
    make_objective,
)
from trimsft.report.colours import METHOD_LINES, VALUE_LINES, Line, Objectives, lines_of, name_of
from trimsft.runs.files import write_whole
from trimsft.tables import csv_of
from trimsft.tokens.statistics import density, range_of
from trimsft.tokens.table import TokenTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from torch import Tensor

Spread = tuple[float, float, float]  # value, low and high end of its interval; equal where there is none

BLUE, AMBER = METHOD_LINES["trim"].colour, METHOD_LINES["sft"].colour
COLUMN = 3.3  # inches
PAGE = 2 * COLUMN
LETTER = 0.057  # inches that a letter takes, at most
STYLE: dict[Any, Any] = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.labelpad": 2.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "trimsft",  # equal curves, equal file
}
PRINT_FORMATS = (".svg", ".pdf", ".png")
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".png": {"Software": None},
}
_GAP = r"logit gap $\Delta$ (gold $-$ strongest competitor)"


@dataclass(frozen=True)
class Drawing:
    """A figure with the numbers that it shows."""

    figure: Figure
    header: Sequence[str]
    rows: Sequence[Sequence[object]]

    def save(self, path: str | Path, formats: Sequence[str] | None = None) -> list[Path]:
        """Write the figure in each format and its numbers; return the files."""
        import matplotlib

        contents: dict[str, bytes] = {}
        with matplotlib.rc_context(STYLE):
            for suffix in PRINT_FORMATS if formats is None else formats:
                if not contents:  # ticks may change with the first layout, and the space they need with them
                    self.figure.draw_without_rendering()
                file = io.BytesIO()
                self.figure.savefig(file, format=suffix[1:], dpi=200, metadata=_METADATA[suffix])
                self.figure.set_layout_engine("none")  # the first format has settled it
                contents[suffix] = file.getvalue()
        contents[".csv"] = csv_of(self.header, self.rows)
        return [write_whole(Path(path).with_suffix(suffix), content) for suffix, content in contents.items()]


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure of this size in inches; what is drawn within has the style."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def spread_percent(interval: Interval) -> Spread:
    """Return the interval of a share in percent."""
    return 100 * interval.value, 100 * interval.low, 100 * interval.high


def draw_line(axes: Axes, x: Any, y: Any, label: str, line: Line, *, marker: bool = True) -> Line2D:
    (drawn,) = axes.plot(x, y, label=label, color=line.colour, marker=line.marker if marker else "")
    drawn.set_dashes(line.dashes or (1, 0))
    return drawn


def plain(label: str) -> str:
    """Return a label letter by letter: no formulas, not left out for its underscore."""
    shown = visible(label).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def shown(label: str) -> str:
    """Return a run as legends call it: the name of its method where the label spells one."""
    return plain(name_of(label))


def legend_below(figure: Figure, axes: Axes) -> None:
    """Draw one legend for all panels, in as many columns as its longest label leaves room for."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, int(figure.get_figwidth() / (0.45 + LETTER * max(map(len, labels)))))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


# ---- weights


def tokens_at(gaps: Tensor) -> TokenStats:
    """Return a token for each gap, with the competitor as the only other one: p = sigmoid(gap)."""
    import torch
    from torch.nn import functional as F

    gold = torch.zeros_like(gaps, dtype=torch.int64)
    nll, nll_of_other = F.softplus(-gaps), F.softplus(gaps)
    entropy = nll * (-nll).exp() + nll_of_other * (-nll_of_other).exp()
    return TokenStats(nll, gaps, gaps, gold + 1, entropy, gold, 1 + (gaps < 0).int(), 2**0.5 * (-gaps).sigmoid())


def weighting_functions() -> Drawing:
    """Draw Figure 1 of the paper: the weights of TrimSFT and of its halves."""
    settings = [(1.5, 0.8), (0.0, 0.8), (3.0, 0.8), (1.5, 2.0)]
    bands: dict[str, Objective] = {f"margin {m:g}, bandwidth {tau:g}": TrimSFT(m, tau) for m, tau in settings}
    halves: dict[str, Objective] = {"TrimSFT": TrimSFT(1.5, 0.8)}
    halves |= {"TrimSFT-E": TrimSFTEasy(1.5, 0.8), "TrimSFT-H": TrimSFTHard(1.5, 0.8)}
    return weight_curves({"Margin and bandwidth": bands, "Half trims, margin 1.5, bandwidth 0.8": halves})


def weight_curves(groups: Mapping[str, Mapping[str, Objective]]) -> Drawing:
    """Draw the weights of objectives over the gap and over the probability; a row for each group."""
    import torch

    from trimsft.head.problem import weigh

    gaps = torch.linspace(-8, 8, 641)
    axis = {_GAP: gaps, "probability of the gold token": gaps.sigmoid()}
    columns: dict[str, list[float]] = {}
    with drawing(PAGE, 2.7 * len(groups)) as figure:
        rows = figure.subplots(len(groups), 2, sharey="row", squeeze=False)
        for panels, (title, objectives) in zip(rows, groups.items(), strict=True):
            for label, line in lines_of(objectives).items():
                columns[label] = weigh(objectives[label], tokens_at(gaps)).tolist()
                for axes, (name, x) in zip(panels, axis.items(), strict=True):
                    curve = draw_line(axes, x, columns[label], shown(label), line, marker=False)
                    if label in ("SFT", "TrimSFT"):  # others run along them
                        curve.set(linewidth=4.5, alpha=0.4, zorder=1)
                    axes.set(xlabel=name, xlim=(round(float(x[0])), round(float(x[-1]))))
            panels[0].set_title(title, loc="left")
            panels[0].set(ylabel="token weight $w$", xticks=range(-8, 9, 4))
            panels[1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
        data = zip(gaps.tolist(), gaps.sigmoid().tolist(), *columns.values(), strict=True)
        return Drawing(figure, ["gap", "probability", *columns], list(data))


def objective_curves() -> Drawing:
    """Draw the weights of all objectives, the paper's and the others."""
    groups: dict[str, dict[str, Objective]] = {"The paper's": {}, "Others": {}}
    for name in OBJECTIVES:
        group = groups["The paper's" if name in PAPER_OBJECTIVES else "Others"]
        group[display_name(name)] = make_objective(name)
    return weight_curves(groups)


# ---- tokens


def gap_distribution(
    tables: Mapping[str, TokenTable], *, margin: float, bandwidth: float, objectives: Objectives | None = None
) -> Drawing:
    """Draw Figure 4: the density of the gaps of each run; the band is shaded."""
    gaps = {label: table["gap"] for label, table in tables.items()}
    grid = np.linspace(*range_of(list(gaps.values())), 400)
    densities = {label: density(values, grid) for label, values in gaps.items()}
    with drawing(COLUMN, 2.5) as figure:
        axes = figure.subplots()
        axes.axvspan(margin - bandwidth, margin + bandwidth, color=BLUE, alpha=0.1, linewidth=0)
        where: Any = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom", "color": BLUE}
        axes.annotate(r"$m \pm \tau$", (margin, 1), **where)
        for label, line in lines_of(densities, objectives).items():
            draw_line(axes, grid, densities[label], f"{shown(label)}, n = {len(gaps[label]):,}", line, marker=False)
        axes.set(xlim=(grid[0], grid[-1]), ylim=(0, None), xlabel=_GAP, ylabel="density of the tokens")
        legend_below(figure, axes)
        rows = zip(grid.tolist(), *(values.tolist() for values in densities.values()), strict=True)
        return Drawing(figure, ["gap", *densities], list(rows))


# ---- scores


def score_dots(
    metrics: Mapping[str, Mapping[str, Mapping[str, Spread]]], objectives: Objectives | None = None
) -> Drawing:
    """Draw metric -> benchmark -> run -> value with its interval, a panel for each metric."""
    runs = list(dict.fromkeys(run for panel in metrics.values() for dots in panel.values() for run in dots))
    benchmarks = list(dict.fromkeys(name for panel in metrics.values() for name in panel))
    width = COLUMN if len(runs) * len(benchmarks) <= 20 else PAGE
    beside = {run: (place - (len(runs) - 1) / 2) * 0.7 / len(runs) for place, run in enumerate(runs)}
    with drawing(width, 0.5 + 1.8 * len(metrics)) as figure:
        panels = figure.subplots(len(metrics), 1, squeeze=False)[:, 0]
        for axes, (metric, dots) in zip(panels, metrics.items(), strict=True):
            for run, line in lines_of(runs, objectives).items():
                known = [(benchmarks.index(name) + beside[run], dots[name][run]) for name in dots if run in dots[name]]
                values, low, high = np.array([spread for _, spread in known]).reshape(-1, 3).T
                axes.errorbar(
                    [at for at, _ in known],
                    values,
                    np.maximum(0, [values - low, high - values]),
                    color=line.colour,
                    marker=line.marker,
                    linestyle="",
                    linewidth=1,
                    label=shown(run),
                )
            axes.set_ylabel(plain(metric))
            fit = LETTER * max(map(len, benchmarks)) <= (width - 0.6) / len(benchmarks)
            axes.set_xticks(range(len(benchmarks)), [plain(name) for name in benchmarks], rotation=0 if fit else 20)
            axes.set_xlim(-0.5, len(benchmarks) - 0.5)
            axes.grid(axis="y", linewidth=0.4, alpha=0.6)
        panels[-1].set_xlabel("bars: 95 % intervals")
        legend_below(figure, panels[0])
        rows = [
            [metric, name, run, *spread]
            for metric, panel in metrics.items()
            for name, dots in panel.items()
            for run, spread in dots.items()
        ]
        return Drawing(figure, ["metric", "benchmark", "run", "value", "low", "high"], rows)


def ablation_curves(
    scores: Mapping[tuple[float, float], Spread], *, baseline: float | None = None, metric: str = "average@8, %"
) -> Drawing:
    """Draw scores by (margin, bandwidth) over either, in the unit of `metric`; `baseline` is SFT's."""
    with drawing(COLUMN, 2.45) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for fixed, (axes, sign) in enumerate(zip(panels, ("m", r"\tau"), strict=True)):
            by_value: dict[float, dict[float, Spread]] = defaultdict(dict)
            for setting, spread in sorted(scores.items()):
                by_value[setting[fixed]][setting[1 - fixed]] = spread
            # as many as there are lines, those with the most points
            kept = sorted(sorted(by_value, key=lambda value: -len(by_value[value]))[: len(VALUE_LINES)])
            for value, line in zip(kept, VALUE_LINES, strict=False):
                x, spreads = zip(*by_value[value].items(), strict=True)
                middle, low, high = np.array(spreads).T
                draw_line(axes, x, middle, f"${sign}={value:g}$", line)
                axes.fill_between(x, low, high, color=line.colour, alpha=0.18, linewidth=0)
            values = sorted({x for value in kept for x in by_value[value]})
            if min(values) > 0 and max(values) > 10 * min(values):
                axes.set_xscale("log")
                axes.set_xticks(values, [f"{x:g}" for x in values])
                axes.set_xticks([], minor=True)
            axes.set_xlabel((r"bandwidth $\tau$", "margin $m$")[fixed])
            axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.24), ncols=2, columnspacing=0.8)
            if baseline is not None:
                axes.axhline(baseline, color=AMBER, linewidth=0.9, linestyle=(0, (4, 2)))
                where: Any = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom", "color": AMBER}
                axes.annotate(f"SFT: {baseline:.1f} %", (0.98, baseline), **where)
        panels[0].set_ylabel(metric)
        rows: list[list[object]] = [[*setting, *spread] for setting, spread in sorted(scores.items())]
        rows += [] if baseline is None else [["sft", None, baseline, None, None]]
        return Drawing(figure, ["margin", "bandwidth", "value", "low", "high"], rows)


if __name__ == "__main__":
    for draw in (weighting_functions, objective_curves):
        draw().save(Path(sys.argv[1]) / f"{draw.__name__}.svg", (".svg", ".png"))
