"""python -m trimsft.report.figures docs/figures: the figures of the documentation that need no run."""

import sys
from pathlib import Path

from trimsft.report.figures import weighting_functions
from trimsft.report.figures.style import SCREEN_FORMATS

if __name__ == "__main__":
    weighting_functions().save(Path(sys.argv[1]) / "weighting_functions.svg", SCREEN_FORMATS)
