"""Figures drawn by the code they describe; matplotlib is imported only when one is drawn.

    python -m trimsft.figures docs/figures

A figure is three files of one name: .svg, .png, and .csv with the numbers that are drawn:

    gap,sft,trim_m1.5_tau0.8,...
    -4,1,5.45004e-11,...
"""

from __future__ import annotations

import csv
import io
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trimsft.objectives import SFT, BuiltinObjective, TokenStats, TrimSFT, TrimSFTEasy, TrimSFTHard
from trimsft.runs import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# the palette of Okabe and Ito, told apart by readers of any colour vision; dashes tell the curves apart in grey
GREY, BLUE, ORANGE, GREEN, PURPLE = "#666666", "#0072B2", "#D55E00", "#009E73", "#CC79A7"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.7,
    "legend.frameon": False,
    "svg.hashsalt": "trimsft",  # equal curves, equal file
}


@dataclass(frozen=True)
class _Curve:
    column: str
    """Name in the CSV."""
    label: str
    objective: BuiltinObjective
    colour: str
    dashes: tuple[float, ...] = ()
    """Lengths of dash and gap in line widths; none for a solid line."""
    behind: bool = False
    """Drawn wide and pale, for other curves to run along it."""

    def weights(self, gaps: Tensor) -> Tensor:
        return self.objective.weights(two_token_stats(gaps))


_SFT = _Curve("sft", "SFT", SFT(), GREY, behind=True)
MARGINS_AND_BANDWIDTHS = (
    _SFT,
    _Curve("trim_m1.5_tau0.8", r"$m=1.5,\ \tau=0.8$", TrimSFT(1.5, 0.8), BLUE),
    _Curve("trim_m0_tau0.8", r"$m=0,\ \tau=0.8$", TrimSFT(0.0, 0.8), ORANGE, (4, 1.5)),
    _Curve("trim_m3_tau0.8", r"$m=3,\ \tau=0.8$", TrimSFT(3.0, 0.8), GREEN, (6, 1.5, 1.5, 1.5)),
    _Curve("trim_m1.5_tau2", r"$m=1.5,\ \tau=2$", TrimSFT(1.5, 2.0), PURPLE, (2.2, 1)),
)
HALF_TRIMS = (
    _SFT,
    _Curve("trim_m1.5_tau0.8", "TrimSFT", TrimSFT(1.5, 0.8), BLUE, behind=True),
    _Curve("trim_e_m1.5_tau0.8", "TrimSFT-E", TrimSFTEasy(1.5, 0.8), ORANGE, (4, 1.5)),
    _Curve("trim_h_m1.5_tau0.8", "TrimSFT-H", TrimSFTHard(1.5, 0.8), GREEN, (6, 1.5, 1.5, 1.5)),
)


def two_token_stats(gaps: Tensor) -> TokenStats:
    """Tokens with these gaps where the competitor is the only other token, so that p = sigmoid(gap)."""
    return TokenStats(
        nll=F.softplus(-gaps), gap=gaps, gold_logit=gaps, competitor=torch.zeros_like(gaps, dtype=torch.int64)
    )


def weighting_functions(path: str | Path) -> list[Path]:
    """Figure 1 of the paper: the weight of a token against its logit gap. Returns the files written."""
    import matplotlib
    from matplotlib.figure import Figure

    gaps = torch.linspace(-4, 8, 481)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.0, 2.6), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _draw(left, "TrimSFT: margin and bandwidth", MARGINS_AND_BANDWIDTHS, gaps)
        _draw(right, r"Half trims at $m=1.5,\ \tau=0.8$", HALF_TRIMS, gaps)
        left.set_ylabel("token weight $w$")
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
    curves = {curve.column: curve for curve in MARGINS_AND_BANDWIDTHS + HALF_TRIMS}.values()
    path = Path(path)
    contents = {".svg": svg.getvalue(), ".png": png.getvalue(), ".csv": _table(gaps, list(curves))}
    return [write_whole(path.with_suffix(suffix), content) for suffix, content in contents.items()]


def _draw(axes: Axes, title: str, curves: Sequence[_Curve], gaps: Tensor) -> None:
    for curve in curves:
        (line,) = axes.plot(gaps, curve.weights(gaps), label=curve.label, color=curve.colour)
        line.set_dashes(curve.dashes or (1, 0))
        if curve.behind:
            line.set(linewidth=4.5, alpha=0.4, zorder=1)
    axes.set_title(title, loc="left")
    axes.set_xlabel(r"logit gap $\Delta$ (gold $-$ strongest competitor)")
    axes.set_xlim(float(gaps[0]), float(gaps[-1]))
    axes.set_ylim(-0.03, 1.06)
    axes.set_yticks(np.linspace(0, 1, 5))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)


def _table(gaps: Tensor, curves: Sequence[_Curve]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["gap", *(curve.column for curve in curves)])
    weights = [curve.weights(gaps).tolist() for curve in curves]
    writer.writerows([f"{number:.6g}" for number in row] for row in zip(gaps.tolist(), *weights, strict=True))
    return text.getvalue().encode()


TELEMETRY_PANELS = {
    "loss": "weighted loss",
    "nll": "nll",
    "mean_token_accuracy": "token accuracy",
    "gap_p50": "median logit gap",
    "effective_ratio": "effective ratio $R_{eff}$",
    "skipped": "skipped rows",
    "mass_middle": "gradient mass in the band",
    "eos_weight": "weight of eos",
}
"""Fields of `telemetry.jsonl` that are drawn, and how they are called."""
_LINES: tuple[tuple[str, tuple[float, ...]], ...] = (
    (BLUE, ()),
    (ORANGE, (4, 1.5)),
    (GREEN, (6, 1.5, 1.5, 1.5)),
    (PURPLE, (2.2, 1)),
    (GREY, ()),
    ("#E69F00", (1, 1)),
)


def training_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], path: str | Path) -> list[Path]:
    """What each run's telemetry said, over its steps; `runs` are the records of `telemetry.jsonl` by label."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "lines.linewidth": 1.2}):
        figure = Figure(figsize=(7.2, 3.9), layout="constrained")
        for axes, (field, title) in zip(figure.subplots(2, 4).flat, TELEMETRY_PANELS.items(), strict=True):
            for (label, records), (colour, dashes) in zip(
                runs.items(), itertools.cycle(_LINES), strict=False
            ):
                points = [
                    (record["step"], record[field]) for record in records if record.get(field) is not None
                ]
                (line,) = axes.plot(*zip(*points, strict=True), label=label, color=colour)
                line.set_dashes(dashes or (1, 0))
            axes.set_title(title, loc="left")
        for axes in figure.axes[4:]:
            axes.set_xlabel("step")
        figure.axes[0].set_yscale("log")  # DFT's and TrimSFT's are far below the others
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=200, metadata={"Software": None})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "step", *TELEMETRY_PANELS])
    for label, records in runs.items():
        for record in records:
            if "loss" in record:
                numbers = [
                    "" if record.get(field) is None else f"{record[field]:.6g}" for field in TELEMETRY_PANELS
                ]
                writer.writerow([label, record["step"], *numbers])
    contents = {".svg": svg.getvalue(), ".png": png.getvalue(), ".csv": text.getvalue().encode()}
    return [write_whole(Path(path).with_suffix(suffix), content) for suffix, content in contents.items()]


if __name__ == "__main__":
    weighting_functions(Path(sys.argv[1]) / "weighting_functions.svg")
