"""Figure 1 of the paper: the weight of a token against its logit gap.

python -m trimsft.report.figures docs/figures
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trimsft.objectives import SFT, BuiltinObjective, TokenStats, TrimSFT, TrimSFTEasy, TrimSFTHard
from trimsft.report.colours import METHOD_LINES, VALUE_LINES, Line
from trimsft.report.figures.style import COLUMN, SMALL, STYLE, Drawing, draw_line, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class _Curve:
    column: str  # name in the CSV
    label: str
    objective: BuiltinObjective
    line: Line
    behind: bool = False  # drawn wide and pale, for other curves to run along it

    def weights(self, gaps: Tensor) -> Tensor:
        """With the competitor as the only other token, so that p = sigmoid(gap)."""
        competitor = torch.zeros_like(gaps, dtype=torch.int64)
        return self.objective.weights(
            TokenStats(nll=F.softplus(-gaps), gap=gaps, gold_logit=gaps, competitor=competitor)
        )


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


def _draw(axes: Axes, title: str, curves: Sequence[_Curve], gaps: Tensor) -> None:
    for curve in curves:
        line = draw_line(axes, gaps, curve.weights(gaps), curve.label, curve.line, marker=False)
        if curve.behind:
            line.set(linewidth=4.5, alpha=0.4, zorder=1)
    axes.set_title(title, loc="left")
    axes.set_xlabel(r"logit gap $\Delta$ (gold $-$ strongest competitor)")
    axes.set_xlim(float(gaps[0]), float(gaps[-1]))
    axes.set_ylim(-0.03, 1.06)
    axes.set_yticks(np.linspace(0, 1, 5))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
