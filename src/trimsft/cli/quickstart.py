"""`trimsft quickstart`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from trimsft.cli.base import JsonFlag, make_console, whole_number, writing


def quickstart(
    out: Annotated[
        Path | None, typer.Option(help="Folder for everything; runs/quickstart, or runs/quickstart-fast.")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="SFT and TrimSFT only, under a minute.")] = False,
    seed: Annotated[int, whole_number("--seed", "Of training data, training and samples.", least=0)] = 0,
    as_json: JsonFlag = False,
) -> None:
    """The paper's comparison on a small model, in minutes on a CPU, offline; the same command continues.

    Trains the lab's base model with each of the six objectives, samples and grades, and writes a report.

    \b
    Examples:
      trimsft quickstart
      trimsft quickstart --fast --out runs/first-look
    """
    from rich.console import Console

    from trimsft.errors import RunError
    from trimsft.study.quickstart import Settings, command

    settings = Settings.fast(seed) if fast else Settings(seed=seed)
    folder = out or Path("runs/quickstart-fast" if fast else "runs/quickstart")
    try:
        with writing(folder):
            outcome = command.run(folder, settings, Console(stderr=True, highlight=False))
    except RunError as error:
        typer.echo(f"trimsft: --out: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("trimsft: interrupted; what is done is kept; the same command continues", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(outcome.as_dict()))
    else:
        command.show(outcome, folder, make_console())
    for name, reason in outcome.failures.items():
        typer.echo(f"trimsft: {command.describe_failure(folder, name, reason)}", err=True)
    if outcome.failures:
        raise typer.Exit(1)
