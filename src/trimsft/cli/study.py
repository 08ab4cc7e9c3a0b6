"""`trimsft study list | run | status`, `trimsft sweep` and `trimsft quickstart`.

While cells run, stderr gets a line for each change:

    lab/trim-margin1-bandwidth4/seed0: failed, learning_rate: must not be below 0, got -1
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from trimsft.cli.from_settings import command_of
from trimsft.cli.terminal import JsonFlag, Output, ending, print_output, tell
from trimsft.errors import counted
from trimsft.quickstart import QuickstartSettings, describe, headline, run_quickstart, tables_of
from trimsft.study import run as command
from trimsft.study.cell import Cell, method_name
from trimsft.study.paper import printed_name
from trimsft.study.plan import plan_study
from trimsft.study.run import CellState, OnEvent, Outcome, read_status
from trimsft.study.studies import STUDIES
from trimsft.study.sweep import SweepSettings
from trimsft.tables import text_table

HELP = "Repeat the paper's tables and figures, on your models.\n\n\b\nExample:\n  trimsft study run main --scale lab"
study_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)
Folder = Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the study.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what is missing and what it takes.")]
STUDY = "names scale models benchmarks fields seeds samples gpus out workers"  # which --help lists
SWEEP = "grid scale models benchmarks seeds out workers select_on"


@study_app.command("list")
def study_list(as_json: JsonFlag = False) -> None:
    """List the studies, with the paper's tables that they repeat."""
    rows = [(one.name, one.title, ", ".join(map(printed_name, one.paper))) for one in STUDIES.values()]
    table = text_table(("study", "title", "paper"), rows)
    print_output(Output([dict(zip(table.header, row, strict=True)) for row in rows], [table]), as_json)


@study_app.command("run")
@command_of(command.StudySettings, shown=STUDY)
def study_run(settings: command.StudySettings, *, dry_run: DryRun = False) -> Output:
    """Run what is missing of a study, and write its tables; rerun to resume.

    \b
    Examples:
      trimsft study run main
      trimsft study run main ablation --scale lab --seeds 3
      trimsft study run main --scale paper --dry-run --gpus 2xA6000
    """
    return run_or_plan(settings, dry_run=dry_run)


def run_or_plan(settings: command.RunOptions, *, dry_run: bool) -> Output:
    """Run what is missing, or say what that is; on named GPUs also what it takes there."""
    if not dry_run:
        return outcomes_output(command.run_study(settings, on_event=cell_lines(lambda cell: cell.name)))
    plan = plan_study(settings)
    hours = "" if plan.gpu_hours is None else f", {plan.gpu_hours:,.1f} GPU hours"
    total = f"{counted(len(plan.cells), 'cell')} to run, {plan.already_done} done{hours}"
    return Output(asdict(plan), lines=[*plan.cells, total, *(f"- {note}" for note in plan.notes)])


def outcomes_output(outcomes: Sequence[Outcome]) -> Output:
    """Return the table of each study, and where the rest is."""
    lines = []
    for outcome in outcomes:
        lines += [path.read_text(encoding="utf-8") for path in outcome.files if path.suffix == ".txt"]
        lines.append(f"{counted(len(outcome.done), 'cell')} done: {outcome.folder.out}")
        lines += [f"  {path}" for path in outcome.files if path.suffix in (".md", ".html")]
    failures = [line for outcome in outcomes for line in outcome.failures()]
    return Output([outcome.as_dict() for outcome in outcomes], lines=lines, failures=failures)


@study_app.command("status")
def study_status(out: Folder, as_json: JsonFlag = False) -> None:
    """Show which cells are done, running, failed or missing, also while the study runs.

    \b
    Example:
      trimsft study status runs/study-lab
    """
    with ending():
        states = read_status(out)
    total = f"{[one.state for one in states].count('done')} of {len(states)} done"
    table = text_table(("cell", "state", ""), [(one.cell.name, one.state, one.note) for one in states], [total])
    print_output(Output([state.as_dict() for state in states], [table]), as_json)


@command_of(SweepSettings, shown=SWEEP)
def sweep(settings: SweepSettings, *, dry_run: DryRun = False) -> Output:
    """Train a grid of settings of trimsft train and say which is best; rerun to resume.

    \b
    Examples:
      trimsft sweep --grid margin=0,2,4,6 --grid bandwidth=0.5,1,2 --seeds 3
      trimsft sweep --grid objective=trim,dft --select-on lab-easy --dry-run
    """
    return run_or_plan(settings, dry_run=dry_run)


@command_of(QuickstartSettings)
def quickstart(settings: QuickstartSettings) -> Output:
    """Compare objectives on a small model, on a CPU, offline.

    Trains the lab's base model with the paper's six objectives and AutoTrim, samples and grades answers, and writes a
    report, in minutes. Rerun the command to resume.

    \b
    Examples:
      trimsft quickstart
      trimsft quickstart --fast --out runs/first-look
    """
    show = cell_lines(lambda cell: method_name(cell.objective), lambda cell: headline(settings, cell))
    outcome = run_quickstart(settings, on_event=show)
    lines = [textwrap.fill(" ".join(describe(outcome)), 80), ""]
    if outcome.report:
        lines.append(f"Every score, token and gap: {outcome.report}")
    lines.append(f"Run directories: {outcome.cells.folder.out} ({outcome.total_seconds:,.0f} s)")
    lines.append("Next, with your own model and data, one problem and one solution a line:")
    lines.append("  trimsft tokens MODEL --data DATA.jsonl --sample 200")
    return Output(outcome.as_dict(), tables_of(outcome), lines, outcome.failures())


def cell_lines(label: Callable[[Cell], str], result: Callable[[Cell], str] = lambda cell: "") -> OnEvent:
    """Return a function that prints every change of a cell by its `label`, and the `result` of one that is done."""

    def on_event(event: CellState) -> None:
        what = event.note or (result(event.cell) if event.state == "done" else "")
        shown = ([] if event.state == "running" else [event.state]) + ([what] if what else [])
        tell(f"{label(event.cell)}: {', '.join(shown)}")

    return on_event
