"""`trimsft study list | show | run | status | table`, `trimsft sweep` and `trimsft quickstart`."""

import json
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from trimsft.cli.base import JsonFlag, called, make_console
from trimsft.cli.declared import command_of
from trimsft.cli.ending import ending, tell
from trimsft.errors import FAILED
from trimsft.runs.secrets import hide_secrets
from trimsft.study import command
from trimsft.study.quickstart import QuickstartSettings
from trimsft.study.scales import ScaleOptions
from trimsft.study.sweeps.command import SweepSettings

HELP = """The paper's tables and figures, on your models.

\b
Examples:
  trimsft study list
  trimsft study run main --scale lab
  trimsft study run main --scale paper --model Qwen2.5-Math-1.5B --dry-run
"""
study_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)
Name = Annotated[str, typer.Argument(metavar="STUDY", help="A study, see trimsft study list.")]
Folder = Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the study.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what it would take; run nothing.")]
_SHOWN = ("scale", "models", "benchmarks", "seeds")
_NOT_SHOWN: dict[str, Any] = {field.name: field.default for field in fields(ScaleOptions) if field.name not in _SHOWN}


@study_app.command("list")
def study_list(as_json: JsonFlag = False) -> None:
    """Every study, and which tables and figures of the paper it makes again."""
    from trimsft.study import STUDIES

    if as_json:
        listed = [{"study": s.name, "title": s.title, "paper": list(s.paper)} for s in STUDIES.values()]
        typer.echo(json.dumps(listed))
    else:
        make_console().print(command.list_table())


@study_app.command("show")
@command_of(ScaleOptions, **_NOT_SHOWN)
def study_show(options: ScaleOptions, *, name: Name, as_json: JsonFlag = False) -> None:
    """What a study is made of: models, benchmarks, and the run directory of each cell."""
    described = command.describe_study(name, options)
    if as_json:
        typer.echo(json.dumps(described))
        return
    typer.echo(f"{name}: {described['title']} ({', '.join(described['paper'])})")
    for what in ("models", "benchmarks", "needs"):
        typer.echo(f"{what}: {', '.join(described[what])}")
    typer.echo("\n".join(f"  {cell}" for cell in described["cells"]))


@study_app.command("run")
@command_of(command.StudySettings, resumes=True)
def study_run(settings: command.StudySettings, *, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Run what is missing of a study and write its tables beside the paper's; the same command continues.

    Several of these may run at once in one folder, on one machine or on many that share it.

    \b
    Examples:
      trimsft study run main
      trimsft study run main ablation --scale lab --seeds 3
      trimsft study run objectives --objective dft --objective my_module:MyObjective
      trimsft study run main --scale paper --model Qwen2.5-Math-1.5B --dry-run
    """
    from trimsft.study.running.cost import show_cost
    from trimsft.study.running.watch import Progress

    for line in command.study_notes(settings):
        typer.echo(line, err=True)
    if dry_run:
        cost = command.study_cost(settings)
        if as_json:
            typer.echo(json.dumps({"studies": [study.name for study in settings.studies()], **cost.as_dict()}))
        else:
            show_cost(cost, settings, make_console())
        return
    with Progress(make_console(stderr=True), command.cell_label) as progress:
        outcomes = command.run_study(settings, on_event=progress)
    if as_json:
        typer.echo(json.dumps([outcome.as_dict() for outcome in outcomes]))
    else:
        command.show_outcomes(outcomes, make_console())
    exit_with([line for outcome in outcomes for line in outcome.failures()])


def exit_with(failures: list[str]) -> None:
    """Say what failed on the way, and end so."""
    for line in failures:
        tell(line)
    if failures:
        raise typer.Exit(FAILED)


@study_app.command("status")
def study_status(out: Folder, as_json: JsonFlag = False) -> None:
    """What is done, running and where, failed and why, or missing; also while it runs."""
    from trimsft.study.running.watch import read_status, status_table

    with ending({}):
        states = read_status(out)
    if as_json:
        typer.echo(json.dumps([state.as_dict() for state in states]))
    else:
        make_console().print(status_table(states))


@study_app.command("table")
def study_table(name: Name, out: Folder, as_json: JsonFlag = False) -> None:
    """The tables and figures of a study once more, from what is finished."""
    with ending({}):
        files = command.rebuild_tables(name, out)
    typer.echo(json.dumps([str(path) for path in files]) if as_json else "\n".join(map(str, files)))


@command_of(SweepSettings, resumes=True)
def sweep(settings: SweepSettings, *, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Train a grid of settings, say which is best and what matters; the same command continues.

    Any field of trimsft train may be varied. Every point is a run directory.

    \b
    Examples:
      trimsft sweep --grid margin=0:6:1 --grid bandwidth=0.5,1,2 --seeds 3 --select-on lab-easy
      trimsft sweep --grid objective=trim,dft --grid learning_rate=2e-4,5e-4 --dry-run
    """
    from trimsft.study.running.cost import show_cost
    from trimsft.study.running.watch import Progress
    from trimsft.study.sweeps.command import run_sweep, show_sweep, sweep_cost

    if dry_run:
        cost = sweep_cost(settings)
        if as_json:
            typer.echo(json.dumps(cost.as_dict()))
        else:
            show_cost(cost, settings, make_console())
        return
    with Progress(make_console(stderr=True), command.cell_label) as progress:
        outcome = run_sweep(settings, on_event=progress, command=shlex.join(["trimsft", *hide_secrets(sys.argv[1:])]))
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        show_sweep(outcome, make_console())
    exit_with(outcome.failures())


@command_of(QuickstartSettings, resumes=True)
def quickstart(settings: QuickstartSettings, *, as_json: JsonFlag = False) -> None:
    """The paper's comparison on a small model, in minutes on a CPU, offline; the same command continues.

    Trains the lab's base model with the paper's six objectives and AutoTrim, samples and grades, and writes a report.

    \b
    Examples:
      trimsft quickstart
      trimsft quickstart --fast --out runs/first-look
    """
    from trimsft.study.quickstart.command import quickstart_progress, run_quickstart, show_quickstart

    with quickstart_progress(settings, make_console(stderr=True)) as progress:
        outcome = run_quickstart(settings, on_event=progress)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        show_quickstart(outcome, make_console(), program=called())
    exit_with(outcome.failures())
