"""The results in the form of the paper's Table 1: methods as rows, tiers and their average as columns.

           lab-easy       lab-medium     lab-hard       average
average@8
  SFT      75.3 68-81     66.9 60-73     57.8 51-65     66.7 63-70
  TrimSFT  94.1↑ 91-97    88.1↑ 83-92    83.8↑ 77-88    88.6↑ 86-91
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimsft.report.tables.scores import DOWN, UP
from trimsft.scoring.intervals import Interval
from trimsft.scoring.compare import AVERAGE
from trimsft.study.quickstart.results import BASELINE, Results
from trimsft.study.quickstart.settings import LABELS

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def main_table(results: Results) -> Table:
    """average@k, and greedy below it."""
    columns = [*results.tiers, AVERAGE]
    table = _table("", *columns)
    for number, metric in enumerate(("average", "greedy")):
        if number:
            table.add_section()
        table.add_row(_bold(results.metrics[metric]))
        for name in results.scores:
            table.add_row(f"  {LABELS[name]}", *(_cell(results, name, metric, column) for column in columns))
    return table


def other_table(results: Results) -> Table:
    """pass@k and majority@k, the mean over tiers."""
    metrics = list(results.metrics)[2:]
    table = _table("mean over tiers", *(results.metrics[metric] for metric in metrics))
    for name in results.scores:
        table.add_row(f"  {LABELS[name]}", *(_cell(results, name, metric, AVERAGE) for metric in metrics))
    return table


def legend(results: Results) -> str:
    """What the marks mean."""
    problems = sum(score.problems for score in next(iter(results.scores.values())))
    text = f"Percent, with 95 % intervals over {problems} problems; bold is the highest."
    if BASELINE in results.scores:
        text += f" {UP} {DOWN}: differs from SFT, paired by problem, Holm-corrected p < 0.05."
    return text


def _cell(results: Results, name: str, metric: str, column: str) -> Text:
    from rich.text import Text

    interval = results.score(name, metric, column)
    best = max(_shown(results.score(other, metric, column)) for other in results.scores)
    mark = {1: UP, -1: DOWN, 0: " "}[results.direction(name, metric, column)]
    style = "bold" if _shown(interval) == best else ""
    low, high = (round(100 * bound) for bound in (interval.low, interval.high))
    return Text.assemble((f"{_shown(interval):5.1f}", style), mark, (f" {f'{low}-{high}':<6}", "dim"))


def _shown(interval: Interval) -> float:
    return round(100 * interval.value, 1)


def _bold(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
