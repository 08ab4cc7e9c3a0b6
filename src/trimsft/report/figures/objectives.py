"""The weights of every objective of the package, over the gap and over the probability.

Tokens are those of `tokens_at`. Objectives that follow the training stand where they begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trimsft.head.problem import weigh
from trimsft.objectives import OBJECTIVES, PAPER_OBJECTIVES, display_name, make_objective, needs_of
from trimsft.report.colours import METHOD_LINES
from trimsft.report.course import ENDED
from trimsft.report.figures.style import STYLE, Drawing, draw_line, drawing
from trimsft.report.figures.weighting import tokens_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes


def objective_curves() -> Drawing:
    """A column of two panels for the paper's objectives, one for the others, one for those with a reference."""
    gaps = torch.linspace(-6, 6, 481)
    made = {name: ENDED if name == "auto-trim" else make_objective(name) for name in OBJECTIVES}
    weights = {name: weigh(objective, tokens_at(gaps)) for name, objective in made.items()}
    with_reference = [name for name in OBJECTIVES if "reference" in needs_of(OBJECTIVES[name])]
    groups = {
        "The paper's": list(PAPER_OBJECTIVES),
        "Others": [name for name in OBJECTIVES if name not in (*PAPER_OBJECTIVES, *with_reference)],
        "With a reference, $q=1/2$": with_reference,
    }
    with drawing(9.0, 5.2, STYLE) as drawn:
        panels = drawn.figure.subplots(2, 3, sharey="col")
        for (title, names), (above, below) in zip(groups.items(), zip(*panels, strict=True), strict=True):
            curves = {name: weights[name] for name in names}
            _draw(above, gaps, curves, r"logit gap $\Delta$", ticks=(-6, -3, 0, 3, 6))
            _draw(below, gaps.sigmoid(), curves, "probability $p$", ticks=(0, 0.25, 0.5, 0.75, 1))
            above.set_title(title, loc="left")
            below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=3)
        for axes in panels[:, 0]:
            axes.set_ylabel("token weight $w$")
        columns = [gaps, gaps.sigmoid(), *weights.values()]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return drawn.with_data(["gap", "probability", *weights], rows)


def _draw(axes: Axes, x: Tensor, curves: dict[str, Tensor], label: str, ticks: Sequence[float]) -> None:
    for name, weights in curves.items():
        line = draw_line(axes, x, weights, display_name(name), METHOD_LINES[name], marker=False)
        if name in ("sft", "trim"):  # others run along them
            line.set(linewidth=4.5, alpha=0.4, zorder=1, linestyle="-")
    axes.set_xlabel(label)
    axes.set_xticks(ticks)
    axes.set_xlim(ticks[0], ticks[-1])
    axes.set_ylim(-0.06, max(1.06, 1.06 * max(float(weights.max()) for weights in curves.values())))
