"""`trimsft watch`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimsft.cli.base import make_console
from trimsft.cli.declared import command_of
from trimsft.report.watch import WatchSettings

if TYPE_CHECKING:
    from trimsft.report.watch.follow import Watched


@command_of(WatchSettings)
def watch(settings: WatchSettings) -> None:
    """See how a training is going, while it runs.

    Loss, nll, the quantiles of the gap with the band, effective ratio and AutoTrim's gate over the steps, from
    train/telemetry.jsonl alone: as a page of this machine that grows by itself, or in the terminal. The runs of
    a folder share the panels. A run that has not begun is waited for. Ctrl-C ends the watch; the training goes on.

    \b
    Examples:
      trimsft watch runs/trim
      trimsft watch runs/trim --text
      trimsft watch runs/quickstart --once --out curves.png
      ssh -L 8765:127.0.0.1:8765 MACHINE trimsft watch runs/trim
    """
    from trimsft.report.watch.follow import Watched

    watched = Watched(settings.run)
    if settings.once:
        _show_once(watched, settings)
        return
    try:
        if settings.text:
            _show_text(watched, settings.every)
        else:
            _serve(watched, settings)
    except KeyboardInterrupt as error:
        raise type(error)("no longer watching; a training goes on as it was") from None


def _show_once(watched: Watched, settings: WatchSettings) -> None:
    from trimsft.report.watch.page import write_once
    from trimsft.report.watch.text import text_of

    snapshot = watched.look()
    if settings.text:
        typer.echo(text_of(snapshot, make_console().width))
        return
    files = write_once(snapshot, settings.out or Path("watch.html"), title=f"Watched {watched.path}")
    typer.echo(f"Wrote {' and '.join(map(str, files))}")


def _show_text(watched: Watched, every: float) -> None:
    """In place on a terminal, and one block after another elsewhere; ends with the training."""
    from rich.live import Live
    from rich.text import Text

    from trimsft.report.watch.text import text_of

    console, seen = make_console(), ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            snapshot = watched.look()
            if snapshot.version != seen:
                shown, seen = Text(text_of(snapshot, console.width)), snapshot.version
                if console.is_terminal:
                    live.update(shown, refresh=True)
                else:
                    console.print(shown)
            if snapshot.is_over:
                return
            time.sleep(every)


def _serve(watched: Watched, settings: WatchSettings) -> None:
    from trimsft.report.watch.server import WatchServer

    with WatchServer(watched, port=settings.port, every=settings.every) as server:
        said = "; ".join(f"{run.label} {run.said}" for run in watched.look().runs)
        typer.echo(f"{server.address} shows {watched.path}: {said}")
        server.serve_forever()
