"""python -m trimsft.report.figures docs/figures: the figures of the documentation that need no run."""

import sys
from pathlib import Path

from trimsft.report.figures import objective_curves, weighting_functions
from trimsft.report.figures.style import SCREEN_FORMATS

if __name__ == "__main__":
    for draw in (weighting_functions, objective_curves):
        draw().save(Path(sys.argv[1]) / f"{draw.__name__}.svg", SCREEN_FORMATS)
