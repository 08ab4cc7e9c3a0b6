"""What is made of runs: tables, figures, and the page that shows them.

make_report(ReportSettings(runs=("Base=runs/base", "TrimSFT=runs/trim"), out=Path("report")))        # all of it
compare(CompareSettings(runs=(Path("runs/sft"), Path("runs/trim")))).comparisons                     # scores, paired
write_report(Path("report.html"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")}, title="...")
write_analysis(Path("analysis"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")})

Nothing is imported before it is asked for: settings are declared without torch and matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.report.analysis import write_analysis
    from trimsft.report.comparison import CompareSettings, compare
    from trimsft.report.page.build import write_report
    from trimsft.report.report import ReportSettings, make_report

_HOMES = {
    "CompareSettings": "comparison",
    "ReportSettings": "report",
    "compare": "comparison",
    "make_report": "report",
    "write_analysis": "analysis",
    "write_report": "page.build",
}
__all__ = ["CompareSettings", "ReportSettings", "compare", "make_report", "write_analysis", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
