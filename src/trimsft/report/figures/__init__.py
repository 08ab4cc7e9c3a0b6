"""Figures drawn by the code they describe; matplotlib is imported only when one is drawn.

    weighting_functions().save("docs/figures/weighting_functions.svg")
    ablation_curves({(1.0, 0.5): (29.8, 28.1, 31.4), ...}, baseline=15.5).save("figures/ablation.svg")

Each function returns a `Drawing`; saved it is files of one name: .svg, .pdf, .png, and .csv with what is drawn:

    gap,sft,trim_m1.5_tau0.8,...
    -4,1,5.45004e-11,...

All share one style (`style`), and the lines of methods in `trimsft.report.colours`; text has 8 points at the width of a
column.
"""

from trimsft.report.figures.bars import category_bars, sampling_bars, score_bars
from trimsft.report.figures.curves import gap_distribution, position_curves, reliability_diagram, training_curves
from trimsft.report.figures.planes import effective_ratio_map, movement_maps, score_map
from trimsft.report.figures.settings import ablation_curves, field_curves
from trimsft.report.figures.style import Drawing, Spread
from trimsft.report.figures.weighting import objective_curves, weight_curves, weighting_functions

__all__ = [
    "Drawing", "Spread", "ablation_curves", "category_bars", "effective_ratio_map", "field_curves", "gap_distribution",
    "movement_maps", "objective_curves", "position_curves", "reliability_diagram", "sampling_bars", "score_bars",
    "score_map", "training_curves", "weight_curves", "weighting_functions",
]  # fmt: skip
