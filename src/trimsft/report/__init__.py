"""What is made of runs: tables, figures, and the page that shows them; settings are declared without torch.

make_report(ReportSettings(runs=("Base=runs/base", "TrimSFT=runs/trim"), out=Path("report")))        # all of it
compare(CompareSettings(runs=(Path("runs/sft"), Path("runs/trim")))).comparisons                     # scores, paired
"""

from trimsft.report.comparison import CompareSettings, compare
from trimsft.report.report import ReportSettings, make_report

__all__ = ["CompareSettings", "ReportSettings", "compare", "make_report"]
