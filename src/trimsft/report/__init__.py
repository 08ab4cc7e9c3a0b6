"""What is made of runs: tables, figures, and the page that shows them.

make_report(ReportSettings(runs=("Base=runs/base", "TrimSFT=runs/trim"), out=Path("report")))        # all of it
compare(CompareSettings(runs=(Path("runs/sft"), Path("runs/trim")))).comparisons                     # scores, paired
page.build.write_report(Path("report.html"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")}, title="...")
analysis.write_analysis(Path("analysis"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")})

Settings are declared here without torch and matplotlib, which are imported when something is made.
"""

from trimsft.report.comparison import CompareSettings, compare
from trimsft.report.report import ReportSettings, make_report

__all__ = ["CompareSettings", "ReportSettings", "compare", "make_report"]
