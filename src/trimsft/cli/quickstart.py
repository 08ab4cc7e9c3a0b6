"""`trimsft quickstart`."""

from __future__ import annotations

import json

import typer

from trimsft.cli.base import JsonFlag, make_console
from trimsft.cli.declared import command_of
from trimsft.cli.study import exit_with
from trimsft.study.quickstart import QuickstartSettings


@command_of(QuickstartSettings)
def quickstart(settings: QuickstartSettings, *, as_json: JsonFlag = False) -> None:
    """The paper's comparison on a small model, in minutes on a CPU, offline; the same command continues.

    Trains the lab's base model with each of the six objectives, samples and grades, and writes a report.

    \b
    Examples:
      trimsft quickstart
      trimsft quickstart --fast --out runs/first-look
    """
    from rich.console import Console

    from trimsft.study.quickstart.command import quickstart_progress, run_quickstart, show_quickstart

    with quickstart_progress(settings, Console(stderr=True, highlight=False)) as progress:
        outcome = run_quickstart(settings, on_event=progress)
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        show_quickstart(outcome, make_console())
    exit_with(outcome.failures())
