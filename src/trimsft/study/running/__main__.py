"""One step of a cell in a process of its own: python -m trimsft.study.running ORDER, see `job`."""

import sys
from pathlib import Path

from trimsft.study.running.job import carry_out

sys.exit(carry_out(Path(sys.argv[1])))
