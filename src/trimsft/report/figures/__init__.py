"""Figures drawn by the code they describe; matplotlib is imported only when one is drawn.

    python -m trimsft.report.figures docs/figures

A figure is files of one name: .svg (and .pdf where asked for), .png, and .csv with the numbers that are drawn:

    gap,sft,trim_m1.5_tau0.8,...
    -4,1,5.45004e-11,...

All share one style (`style`): the palette of Okabe and Ito, dashes and markers that tell lines apart in grey, 8 points
at the width of a column.
"""

from trimsft.report.figures.ablation import ablation_curves
from trimsft.report.figures.bars import category_bars, sampling_bars, score_bars
from trimsft.report.figures.curves import gap_distribution, position_curves, reliability_diagram
from trimsft.report.figures.fields import field_curves
from trimsft.report.figures.heatmaps import effective_ratio_map, movement_maps
from trimsft.report.figures.planes import score_map
from trimsft.report.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE
from trimsft.report.figures.training import training_curves
from trimsft.report.figures.weighting import two_token_stats, weighting_functions

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "STYLE",
    "ablation_curves",
    "category_bars",
    "effective_ratio_map",
    "field_curves",
    "gap_distribution",
    "movement_maps",
    "position_curves",
    "reliability_diagram",
    "sampling_bars",
    "score_bars",
    "score_map",
    "training_curves",
    "two_token_stats",
    "weighting_functions",
]
