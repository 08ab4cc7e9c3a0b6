"""What `trimsft quickstart` prints: a live view, then scores in the form of the paper's Table 1, and what to do next.

           lab-easy       lab-medium     lab-hard       average
average@8
  SFT      75.3 68-81     66.9 60-73     57.8 51-65     66.7 63-70
  TrimSFT  94.1↑ 91-97    88.1↑ 83-92    83.8↑ 77-88    88.6↑ 86-91
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimsft.cli.cells import Progress
from trimsft.evaluate.compare import AVERAGE
from trimsft.evaluate.scores import load_run
from trimsft.intervals import Interval
from trimsft.lab import TIERS
from trimsft.quickstart import (
    BASELINE,
    GREEDY,
    SAMPLED,
    QuickstartOutcome,
    QuickstartSettings,
    Results,
    describe,
    next_commands,
)
from trimsft.study.cell import BASE, Cell, method_name
from trimsft.tables import DOWN, UP

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def quickstart_progress(settings: QuickstartSettings, console: Console) -> Progress:
    """A live view that names methods as the paper does, with one number for each that is done."""

    def headline(cell: Cell) -> str:
        scores = load_run(settings.folder().run(cell), tuple(TIERS))
        mean = sum(score.interval("average").value for score in scores) / len(scores)
        return f"average@{settings.samples} {100 * mean:.1f}"

    return Progress(console, lambda cell: method_name(cell.objective), headline)


def show_quickstart(outcome: QuickstartOutcome, console: Console, *, program: str = "trimsft") -> None:
    """The table, what it says, where the rest is, and how to go on; `program` is how the user's shell calls it."""
    out, results = outcome.cells.folder.out, outcome.results
    if results is not None:
        for part in (main_table(results), other_table(results), legend(results) + "\n", describe(results) + "\n"):
            console.print(part)
    if outcome.report:
        console.print(f"Every score, token and gap: {outcome.report}", soft_wrap=True, markup=False)
    minutes, seconds = divmod(round(outcome.total_seconds), 60)
    console.print(f"Run directories: {out} ({minutes} min {seconds} s)", soft_wrap=True, markup=False)
    trained = {cell.objective: run for cell, run in outcome.cells.done.items() if cell.objective != BASE}
    if trained:
        took = {cell.objective: steps for cell, steps in outcome.cells.seconds.items()}
        length = outcome.settings.max_tokens
        following = next_commands(out, trained, program=program, max_tokens=length, seconds=took)
        console.print("\n" + following, soft_wrap=True, markup=False)


def main_table(results: Results) -> Table:
    """average@k, and greedy below it."""
    columns = [*results.tiers, AVERAGE]
    table = _table("", *columns)
    for metric in (SAMPLED, GREEDY):
        table.add_section()
        table.add_row(f"[bold]{results.metrics[metric]}[/]")
        for name in results.scores:
            table.add_row(f"  {method_name(name)}", *(_cell(results, name, metric, column) for column in columns))
    return table


def other_table(results: Results) -> Table:
    """pass@k and majority@k, the mean over tiers."""
    metrics = list(results.metrics)[2:]
    table = _table("mean over tiers", *(results.metrics[metric] for metric in metrics))
    for name in results.scores:
        table.add_row(f"  {method_name(name)}", *(_cell(results, name, metric, AVERAGE) for metric in metrics))
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


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
