"""Figure 1 of the paper, the weight of a token against its logit gap; and the same for any objectives.

A figure takes the competitor for the only other token, so that p = sigmoid(gap), see `tokens_at`.

python -m trimsft.report.figures docs/figures
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trimsft.head.problem import weigh
from trimsft.objectives import (
    OBJECTIVES,
    PAPER_OBJECTIVES,
    SFT,
    BuiltinObjective,
    Objective,
    TokenStats,
    TrimSFT,
    TrimSFTEasy,
    TrimSFTHard,
    display_name,
    make_objective,
)
from trimsft.report.colours import METHOD_LINES, VALUE_LINES, Line, lines_of
from trimsft.report.figures.style import COLUMN, SMALL, STYLE, Drawing, draw_line, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_GAP = r"logit gap $\Delta$ (gold $-$ strongest competitor)"


@dataclass(frozen=True)
class _Curve:
    column: str  # name in the CSV
    label: str
    objective: BuiltinObjective
    line: Line
    behind: bool = False  # drawn wide and pale, for other curves to run along it

    def weights(self, gaps: Tensor) -> Tensor:
        return self.objective.weights(tokens_at(gaps))


def tokens_at(gaps: Tensor) -> TokenStats:
    """Return a token for each gap, with the competitor as the only other one."""
    gold = torch.zeros_like(gaps, dtype=torch.int64)
    nll, nll_of_other = F.softplus(-gaps), F.softplus(gaps)
    entropy = nll * (-nll).exp() + nll_of_other * (-nll_of_other).exp()
    return TokenStats(nll, gaps, gaps, gold + 1, entropy, gold)


_SFT = _Curve("sft", "SFT", SFT(), Line(METHOD_LINES["sft"].colour, ""), behind=True)
MARGINS_AND_BANDWIDTHS = (
    _SFT,
    _Curve("trim_m1.5_tau0.8", r"$m=1.5,\ \tau=0.8$", TrimSFT(1.5, 0.8), VALUE_LINES[0]),
    _Curve("trim_m0_tau0.8", r"$m=0,\ \tau=0.8$", TrimSFT(0.0, 0.8), VALUE_LINES[1]),
    _Curve("trim_m3_tau0.8", r"$m=3,\ \tau=0.8$", TrimSFT(3.0, 0.8), VALUE_LINES[2]),
    _Curve("trim_m1.5_tau2", r"$m=1.5,\ \tau=2$", TrimSFT(1.5, 2.0), VALUE_LINES[3]),
)
HALF_TRIMS = (
    _SFT,
    _Curve("trim_m1.5_tau0.8", "TrimSFT", TrimSFT(1.5, 0.8), METHOD_LINES["trim"], behind=True),
    _Curve("trim_e_m1.5_tau0.8", "TrimSFT-E", TrimSFTEasy(1.5, 0.8), METHOD_LINES["trim-e"]),
    _Curve("trim_h_m1.5_tau0.8", "TrimSFT-H", TrimSFTHard(1.5, 0.8), METHOD_LINES["trim-h"]),
)


def weighting_functions(*, column: bool = False) -> Drawing:
    """The two panels of Figure 1 beside each other, or one above the other in a column."""
    gaps = torch.linspace(-4, 8, 481)
    with drawing(*((COLUMN, 4.6, SMALL) if column else (6.0, 2.6, STYLE))) as drawn:
        shape = (2, 1) if column else (1, 2)
        first, second = drawn.figure.subplots(*shape, sharey=True)
        _draw(first, "TrimSFT: margin and bandwidth", MARGINS_AND_BANDWIDTHS, gaps)
        _draw(second, r"Half trims at $m=1.5,\ \tau=0.8$", HALF_TRIMS, gaps)
        first.set_ylabel("token weight $w$")
        if column:
            second.set_ylabel("token weight $w$")
        curves = {curve.column: curve for curve in MARGINS_AND_BANDWIDTHS + HALF_TRIMS}.values()
        rows = zip(gaps.tolist(), *(curve.weights(gaps).tolist() for curve in curves), strict=True)
        return drawn.with_data(["gap", *(curve.column for curve in curves)], rows)


def weight_curves(objectives: Mapping[str, Objective]) -> Drawing:
    """The weights of objectives, by label, over the gap and over the probability."""
    gaps = torch.linspace(-8, 8, 641)
    lines = lines_of(objectives)
    weights = {label: weigh(objective, tokens_at(gaps)) for label, objective in objectives.items()}
    with drawing(6.0, 2.6, STYLE) as drawn:
        panels = drawn.figure.subplots(1, 2, sharey=True)
        for axes, x, label in zip(panels, (gaps, gaps.sigmoid()), (_GAP, "probability of the gold token"), strict=True):
            for name in objectives:
                draw_line(axes, x, weights[name], name, lines[name], marker=False)
            axes.set_xlabel(label)
            axes.set_xlim(round(float(x[0])), round(float(x[-1])))
        panels[0].set_ylabel("token weight $w$")
        panels[0].set_xticks(range(-8, 9, 4))
        panels[0].set_ylim(-0.03, 1.06 * max(1.0, *(float(each.max()) for each in weights.values())))
        drawn.figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        columns = [gaps, gaps.sigmoid(), *weights.values()]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return drawn.with_data(["gap", "probability", *objectives], rows)


def _draw(axes: Axes, title: str, curves: Sequence[_Curve], gaps: Tensor) -> None:
    for curve in curves:
        line = draw_line(axes, gaps, curve.weights(gaps), curve.label, curve.line, marker=False)
        if curve.behind:
            line.set(linewidth=4.5, alpha=0.4, zorder=1)
    axes.set_title(title, loc="left")
    axes.set_xlabel(_GAP)
    axes.set_xlim(float(gaps[0]), float(gaps[-1]))
    axes.set_ylim(-0.03, 1.06)
    axes.set_yticks(np.linspace(0, 1, 5))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.26), ncols=2)


def objective_curves() -> Drawing:
    """Return a column of two panels for the paper's objectives, and one for the others."""
    gaps = torch.linspace(-6, 6, 481)
    made = {name: make_objective(name) for name in OBJECTIVES}
    weights = {name: weigh(objective, tokens_at(gaps)) for name, objective in made.items()}
    groups = {
        "The paper's": list(PAPER_OBJECTIVES),
        "Others": [name for name in OBJECTIVES if name not in PAPER_OBJECTIVES],
    }
    with drawing(6.2, 5.2, STYLE) as drawn:
        panels = drawn.figure.subplots(2, 2, sharey="col")
        for (title, names), (above, below) in zip(groups.items(), zip(*panels, strict=True), strict=True):
            curves = {name: weights[name] for name in names}
            _draw_curves(above, gaps, curves, r"logit gap $\Delta$", ticks=(-6, -3, 0, 3, 6))
            _draw_curves(below, gaps.sigmoid(), curves, "probability $p$", ticks=(0, 0.25, 0.5, 0.75, 1))
            above.set_title(title, loc="left")
            below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=3)
        for axes in panels[:, 0]:
            axes.set_ylabel("token weight $w$")
        columns = [gaps, gaps.sigmoid(), *weights.values()]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return drawn.with_data(["gap", "probability", *weights], rows)


def _draw_curves(axes: Axes, x: Tensor, curves: dict[str, Tensor], label: str, ticks: Sequence[float]) -> None:
    for name, weights in curves.items():
        line = draw_line(axes, x, weights, display_name(name), METHOD_LINES[name], marker=False)
        if name in ("sft", "trim"):  # others run along them
            line.set(linewidth=4.5, alpha=0.4, zorder=1, linestyle="-")
    axes.set_xlabel(label)
    axes.set_xticks(ticks)
    axes.set_xlim(ticks[0], ticks[-1])
    axes.set_ylim(-0.06, max(1.06, 1.06 * max(float(weights.max()) for weights in curves.values())))
