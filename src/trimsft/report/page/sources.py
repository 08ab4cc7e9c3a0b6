"""The reader of runs, under the names that the page knows."""

from trimsft.report.runs import Run, read_run
from trimsft.report.runs import in_percent as percent

__all__ = ["Run", "percent", "read_run"]
