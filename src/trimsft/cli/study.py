"""`trimsft study list | show | run | status | table`, `trimsft sweep` and `trimsft quickstart`."""

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from trimsft.cli.cells import Progress, cell_label, status_table
from trimsft.cli.from_settings import command_of
from trimsft.cli.studies import list_table, show_outcomes, show_plan, show_study, show_sweep
from trimsft.cli.terminal import JsonFlag, called, ending, leaving, make_console, tell
from trimsft.errors import FAILED
from trimsft.quickstart import QuickstartSettings, run_quickstart
from trimsft.runs.secrets import hide_secrets
from trimsft.study import run as command
from trimsft.study.plan import plan_study
from trimsft.study.run import read_status
from trimsft.study.scales import ScaleOptions
from trimsft.study.sweeps.command import SweepSettings, plan_sweep, run_sweep

HELP = """Repeat the paper's tables and figures, on your models.

\b
Examples:
  trimsft study list
  trimsft study run main --scale lab
  trimsft study run main --scale paper --model Qwen2.5-Math-1.5B --dry-run --gpus 2xA6000
"""
study_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)
Name = Annotated[str, typer.Argument(metavar="STUDY", help="A study, see trimsft study list.")]
Folder = Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the study, such as runs/study-lab.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what is missing, with --gpus 2xA6000 also what it takes.")
]
_SHOWN = ("scale", "models", "benchmarks", "seeds")
_NOT_SHOWN: dict[str, Any] = {field.name: field.default for field in fields(ScaleOptions) if field.name not in _SHOWN}


def study_list(as_json: JsonFlag = False) -> None:
    """List the studies, with the paper's tables that they repeat."""
    from trimsft.study import STUDIES

    if as_json:
        listed = [{"study": s.name, "title": s.title, "paper": list(s.paper)} for s in STUDIES.values()]
        typer.echo(json.dumps(listed))
    else:
        make_console().print(list_table())


@command_of(ScaleOptions, **_NOT_SHOWN)
def study_show(options: ScaleOptions, *, name: Name, as_json: JsonFlag = False) -> None:
    """Show the models, benchmarks and cells of a study.

    \b
    Example:
      trimsft study show main --scale paper
    """
    described = command.describe_study(name, options)
    if as_json:
        typer.echo(json.dumps(described))
        return
    show_study(described, make_console())


@command_of(command.StudySettings, resumes=True)
def study_run(settings: command.StudySettings, *, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Run what is missing of a study, and write its tables.

    The tables stand beside the paper's. Rerun the command to resume. Several of these may run at once in one folder,
    on one machine or on many that share it.

    \b
    Examples:
      trimsft study run main
      trimsft study run main ablation --scale lab --seeds 3
      trimsft study run objectives --objective dft --objective my_module:Mine
      trimsft study run main --scale paper --model Qwen2.5-Math-1.5B --dry-run --gpus 2xA6000
    """
    for line in command.study_notes(settings):
        typer.echo(line, err=True)
    if dry_run:
        plan = plan_study(settings)
        if as_json:
            typer.echo(json.dumps({"studies": [study.name for study in settings.studies()], **plan.as_dict()}))
        else:
            show_plan(plan, make_console())
        return
    with Progress(make_console(stderr=True), cell_label) as progress, leaving(progress.there):
        outcomes = command.run_study(settings, on_event=progress)
    if as_json:
        typer.echo(json.dumps([outcome.as_dict() for outcome in outcomes]))
    else:
        show_outcomes(outcomes, make_console())
    exit_with([line for outcome in outcomes for line in outcome.failures()])


def exit_with(failures: list[str]) -> None:
    """Say what failed on the way, and end so."""
    for line in failures:
        tell(line)
    if failures:
        raise typer.Exit(FAILED)


def study_status(out: Folder, as_json: JsonFlag = False) -> None:
    """Show which cells are done, running, failed or missing.

    Also while the study runs, and on whichever machine.

    \b
    Example:
      trimsft study status runs/study-lab
    """
    with ending({}):
        states = read_status(out)
    if as_json:
        typer.echo(json.dumps([state.as_dict() for state in states]))
    else:
        make_console().print(status_table(states))


def study_table(name: Name, out: Folder, as_json: JsonFlag = False) -> None:
    """Write the tables of a study again, from what is finished.

    \b
    Example:
      trimsft study table main runs/study-lab
    """
    with ending({}):
        files = command.rebuild_tables(name, out)
    typer.echo(json.dumps([str(path) for path in files]) if as_json else "\n".join(map(str, files)))


@command_of(SweepSettings, resumes=True)
def sweep(settings: SweepSettings, *, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Train a grid of settings and say which is best.

    Any field of trimsft train may be varied. Every point is a run directory. Rerun the command to resume.

    \b
    Examples:
      trimsft sweep --grid margin=0:6:1 --grid bandwidth=0.5,1,2 --seeds 3
      trimsft sweep --grid objective=trim,dft --select-on lab-easy --dry-run
    """
    if dry_run:
        plan = plan_sweep(settings)
        if as_json:
            typer.echo(json.dumps(plan.as_dict()))
        else:
            show_plan(plan, make_console())
        return
    with Progress(make_console(stderr=True), cell_label) as progress, leaving(progress.there):
        outcome = run_sweep(settings, on_event=progress, command=shlex.join(["trimsft", *hide_secrets(sys.argv[1:])]))
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        show_sweep(outcome, make_console())
    exit_with(outcome.failures())


@command_of(QuickstartSettings, resumes=True)
def quickstart(settings: QuickstartSettings, *, as_json: JsonFlag = False) -> None:
    """Compare objectives on a small model, on a CPU, offline.

    Trains the lab's base model with the paper's six objectives and AutoTrim, samples and grades answers, and writes a
    report, in minutes. Rerun the command to resume.

    \b
    Examples:
      trimsft quickstart
      trimsft quickstart --fast --out runs/first-look
    """
    from trimsft.cli.quickstart import quickstart_progress, show_quickstart

    with quickstart_progress(settings, make_console(stderr=True)) as progress, leaving(progress.there):
        outcome = run_quickstart(settings, on_event=progress)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        show_quickstart(outcome, make_console(), program=called())
    exit_with(outcome.failures())


COMMANDS: dict[str, Callable[..., None]] = {
    "list": study_list, "show": study_show, "run": study_run, "status": study_status, "table": study_table,
}  # fmt: skip
"""Of `trimsft study`, in the order of --help."""
