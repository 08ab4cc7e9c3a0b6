"""Tables, figures and a page of runs; settings are declared without torch.

make_report(ReportSettings(runs=("Base=runs/base", "TrimSFT=runs/trim")))
compare(CompareSettings(runs=(Path("runs/sft"), Path("runs/trim")))).comparisons
"""

from trimsft.report.comparison import CompareSettings, compare
from trimsft.report.report import ReportSettings, make_report

__all__ = ["CompareSettings", "ReportSettings", "compare", "make_report"]
