"""python -m trimsft.report.figures docs/figures: the figures of the documentation that need no run."""

import sys
from pathlib import Path

from trimsft.report.figures.weighting import weighting_functions

if __name__ == "__main__":
    weighting_functions(Path(sys.argv[1]) / "weighting_functions.svg")
