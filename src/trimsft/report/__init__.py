"""What is made of runs: tables, figures, and the page that shows them.

write_report(Path("report.html"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")}, title="...", settings={})
write_analysis(Path("analysis"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")})
"""

from trimsft.report.analysis import write_analysis
from trimsft.report.page.build import write_report

__all__ = ["write_analysis", "write_report"]
