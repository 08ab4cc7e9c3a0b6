"""What `trimsft study` and `trimsft sweep` print: studies, what they would take, and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from trimsft.study.plan import StudyPlan
from trimsft.study.run import StudyOutcome
from trimsft.study.studies import STUDIES, find_studies, in_the_paper
from trimsft.study.sweeps.command import SweepOutcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def list_table() -> Table:
    """Every study, and which of the paper's tables and figures it makes again."""
    from rich import box
    from rich.table import Table

    table = Table("study", "", "in the paper", box=box.SIMPLE_HEAD)
    for study in STUDIES.values():
        table.add_row(study.name, study.title, in_the_paper(study))
    return table


def show_study(described: Mapping[str, Any], console: Console) -> None:
    """What `describe_study` returns, for people."""
    (study,) = find_studies([described["study"]])
    where = in_the_paper(study)
    console.print(f"{study.name}: {study.title}{f' ({where} of the paper)' if where else ''}", markup=False)
    for what in ("models", "benchmarks", "needs"):
        console.print(f"{what}: {', '.join(described[what])}", markup=False, soft_wrap=True)
    for cell in described["cells"]:
        console.print(f"  {cell}", markup=False, soft_wrap=True)


def show_outcomes(outcomes: Iterable[StudyOutcome], console: Console) -> None:
    """The table of each study, what it says to the paper's claims, and where the rest is."""
    for outcome in outcomes:
        for path in outcome.files:
            if path.suffix == ".txt":
                console.print(path.read_text(encoding="utf-8"), soft_wrap=True, markup=False)
        count, out = len(outcome.cells.done), outcome.cells.folder.out
        console.print(f"{count} cell{' is' if count == 1 else 's are'} done: {out}", soft_wrap=True, markup=False)
        for path in outcome.files:
            if path.suffix in (".md", ".html"):
                console.print(f"  {path}", soft_wrap=True, markup=False)
        others = sum(path.suffix not in (".md", ".html") for path in outcome.files)
        if others:
            console.print(f"  and {others} more in {out / 'tables'}", soft_wrap=True, markup=False)


def show_sweep(outcome: SweepOutcome, console: Console) -> None:
    """The table, what it says, where the rest is."""
    from trimsft.study.sweeps.writing import conclusions, sweep_table
    from trimsft.tables import to_rich

    if outcome.swept is None:
        return
    console.print(to_rich(sweep_table(outcome.swept, brief=True)))
    for sentence in (*conclusions(outcome.swept), *outcome.notes):
        console.print(sentence, markup=False)
    for path in outcome.files:
        if path.suffix in (".html", ".md", ".png"):
            console.print(f"  {path}", soft_wrap=True, markup=False)


def show_plan(plan: StudyPlan, console: Console, most: int = 30) -> None:
    """What is missing, the first cells by name; where GPUs are named, what it takes there."""
    for cell in plan.cells[:most]:
        hours = "" if cell.gpu_hours is None else f": {cell.gpu_hours:,.1f} GPU hours"
        tokens = f", {cell.trained_tokens / 1e6:,.1f} M tokens trained, {cell.generated_tokens / 1e6:,.1f} M generated"
        console.print(f"{cell.name}{hours}{tokens if hours else ''}", soft_wrap=True, markup=False)
    if len(plan.cells) > most:
        console.print(f"and {len(plan.cells) - most} more")
    hours = f", {plan.hours:,.0f} GPU hours" if any(cell.gpu_hours is not None for cell in plan.cells) else ""
    cells = f"{len(plan.cells)} cell{'' if len(plan.cells) == 1 else 's'}"
    console.print(f"{cells} to run, {plan.already_done} done{hours}")
    for note in plan.notes:
        console.print(f"- {note}", soft_wrap=True, markup=False)
