"""`trimsft compare`: from the scores of runs to tables and a verdict.

result = compare(CompareSettings(runs=(Path("runs/sft"), Path("runs/trim"))))
print(result.render("markdown"))
result.comparisons[0].difference, result.comparisons[0].significant
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trimsft.errors import UsageError
from trimsft.options import check_options, option
from trimsft.report.table import FORMATS, Table, render
from trimsft.runs import write_whole

if TYPE_CHECKING:
    from trimsft.scoring.compare import Comparison


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """Which runs are compared by what, and how the result is shown."""

    runs: tuple[Path, ...] = option(help="Run directories; the first is the baseline.", argument="RUN")
    metric: str = option("average", help="Metric to compare: average, greedy, pass@K or majority@K.")
    benchmark: tuple[str, ...] = option(
        (), help="Compare on this benchmark only; repeatable.", flags=("--benchmark", "-b")
    )
    style: str = option("terminal", help="How to show the tables.", flags=("--format",), choices=tuple(FORMATS))
    out: Path | None = option(None, help="File to write to instead of the terminal; needs another --format.")

    def __post_init__(self) -> None:
        check_options(self)
        if len(self.runs) < 2:
            raise UsageError("must be two or more", field="runs", value=" ".join(map(str, self.runs)))
        if self.out is not None and self.style == "terminal":
            hint = "needs a format to write: markdown, latex, csv or json"
            raise UsageError("has no effect on a terminal", field="out", value=str(self.out), hint=hint)


@dataclass(frozen=True)
class Compared:
    """Scores of runs beside each other, and the differences to the first one."""

    scores: Table
    differences: Table
    comparisons: Sequence[Comparison]

    def render(self, style: str) -> str:
        """Both tables in one of `FORMATS`; JSON has the comparisons."""
        if style == "json":
            return json.dumps([one.as_dict() for one in self.comparisons], indent=1)
        return "\n".join(render(table, style) for table in (self.scores, self.differences))


def compare(settings: CompareSettings) -> Compared:
    """Compare runs problem by problem; `settings.out` gets the result where it is given."""
    from trimsft.report.tables.scores import comparison_table, score_table
    from trimsft.scoring.compare import compare_runs
    from trimsft.scoring.records import load_run

    names = [path.resolve().name for path in settings.runs]
    if len(set(names)) < len(names):  # the folders' names repeat
        names = [str(path) for path in settings.runs]
    scores = {name: load_run(path, settings.benchmark) for name, path in zip(names, settings.runs, strict=True)}
    baseline, *candidates = names
    others = {name: scores[name] for name in candidates}
    try:
        comparisons = compare_runs(scores[baseline], others, settings.metric, name=baseline)
    except ValueError as error:  # a metric or problems that one of the runs lacks
        raise UsageError(str(error)) from error
    table = score_table(scores, settings.metric, comparisons=comparisons)
    result = Compared(table, comparison_table(comparisons), comparisons)
    if settings.out is not None:
        write_whole(settings.out, (result.render(settings.style) + "\n").encode())
    return result
