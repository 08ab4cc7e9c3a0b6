"""`trimsft sweep`."""

from __future__ import annotations

import json
import shlex
import sys

import typer

from trimsft.cli.base import JsonFlag, make_console
from trimsft.cli.declared import command_of
from trimsft.cli.study import DryRun, exit_with
from trimsft.study.sweeps.command import SweepSettings


@command_of(SweepSettings)
def sweep(settings: SweepSettings, *, dry_run: DryRun = False, as_json: JsonFlag = False) -> None:
    """Train a grid of settings, say which is best and what matters; the same command continues.

    Any field of trimsft train may be varied. Every point is a run directory.

    \b
    Examples:
      trimsft sweep --grid margin=0:6:1 --grid bandwidth=0.5,1,2 --seeds 3 --select-on lab-easy
      trimsft sweep --grid objective=trim,dft --grid learning_rate=2e-4,5e-4 --dry-run
    """
    from rich.console import Console

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
    with Progress(Console(stderr=True, highlight=False)) as progress:
        outcome = run_sweep(settings, on_event=progress, command=shlex.join(["trimsft", *sys.argv[1:]]))
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        show_sweep(outcome, make_console())
    exit_with(outcome.failures())
