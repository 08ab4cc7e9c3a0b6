"""Parts that commands share on a terminal: how they end, what they say on stderr, progress, results.

A command ends with 0 when all is done, 1 when something failed on the way, 2 when it is refused
as it stands, 129 after SIGHUP, 130 after Ctrl-C, 143 after SIGTERM. All but results goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimsft.errors import FAILED, SIGNALS, TrimSFTError, end_at_once, exit_code, handle_signals, interrupt, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from trimsft.tables import Table

PAUSE = 30.0  # seconds between two lines of progress, where there is no terminal
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


@contextlib.contextmanager
def ending(name_of: Callable[[str], str] = str, *, level: int = logging.WARNING) -> Iterator[None]:
    """Turn what is raised within into a line and an exit code, what is logged into lines.

    Args:
        name_of: gives what a field is called on the command line of this command.
        level: the least that is printed of what this package logs.
    """
    logger, handler = logging.getLogger("trimsft"), logging.Handler()
    handler.emit = lambda record: is_first_process() and tell(one_line(Exception(record.getMessage())))  # type: ignore
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        if signal.getsignal(signal.SIGTERM) is end_at_once:  # not for a caller in Python
            handle_signals(interrupt)
        yield
    except (TrimSFTError, KeyboardInterrupt, OSError, FloatingPointError, MemoryError, RuntimeError) as error:
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGTERM) is interrupt:
            handle_signals(signal.SIG_IGN)  # a second one would cut off what is said of the first
        line = _last_line(error, name_of)
        if line is None:
            raise
        if line:
            tell(line)
        raise typer.Exit(exit_code(error)) from None
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def _last_line(error: BaseException, name_of: Callable[[str], str]) -> str | None:
    """Return the line for an error, empty if another process says it; None for a bug."""
    if isinstance(error, TrimSFTError):
        return "" if error.is_reported else error.message(name_of)
    if isinstance(error, KeyboardInterrupt):
        kept = getattr(error, "details", "") or "; what is finished is kept; rerun the command to resume"
        return SIGNALS[getattr(error, "number", signal.SIGINT)] + kept if is_first_process() else ""
    if not isinstance(error, RuntimeError):
        return one_line(error)
    torch = sys.modules.get("torch")
    # too little memory, a device that is gone: nothing that a traceback would explain
    is_from_torch = torch and isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError)
    return str(error).partition("\n")[0] if is_from_torch else None


# ---- on stderr


def tell(text: str) -> None:
    """Print a line on stderr; of several processes, each but the first says which one it is."""
    rank = "" if is_first_process() else f"[rank {os.environ['RANK']}] "
    with contextlib.suppress(OSError):  # of a terminal that is gone
        typer.echo(f"trimsft: {rank}{text}", err=True)


def is_first_process() -> bool:
    """Return whether this is the first, or only, process of a launcher such as torchrun."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def progress() -> Iterator[Callable[..., None]]:
    """Show a bar for each name on a terminal: `with progress() as show: show("math500", 210, 360)`.

    Elsewhere a line when a name or its stage is new, one at its end, others every half minute.
    """
    from rich.markup import escape
    from rich.progress import Progress

    console, tasks = make_console(stderr=True), dict[str, Any]()
    printed = dict[str, tuple[object, float]]()  # at the last line of a name

    def show(name: str, done: int, total: int, stage: str = "", text: str = "") -> None:
        parts = [text] if text else [stage, f"{done:,} of {total:,}" if total else ""]
        text = f"{name}: {' '.join(filter(None, parts))}"
        if name not in tasks:
            tasks[name] = bars.add_task("")
        bars.update(tasks[name], completed=done, total=total or None, description=escape(text))
        place, now = (stage, 0 < total == done), time.monotonic()
        before, when = printed.get(name, (None, now))
        if bars.disable and (place != before or now >= when + PAUSE):
            printed[name] = (place, now)
            tell(text)

    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        yield show


# ---- results


@dataclass(frozen=True)
class Output:
    """The output of a command: a value for programs; tables, lines and failures for people."""

    value: Any
    tables: Sequence[Table] = ()
    lines: Sequence[str] = ()
    failures: Sequence[str] = ()


def print_output(output: Output, as_json: bool) -> None:
    """Print the result of a command; exit with 1 if something failed."""
    if as_json:
        typer.echo(json.dumps(output.value, default=str))
    else:
        from trimsft.tables import to_rich

        for table in output.tables:
            make_console().print(to_rich(table))
        for line in output.lines:
            typer.echo(line)
    for line in output.failures:
        tell(line)
    if output.failures:
        raise typer.Exit(FAILED)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console without colours for numbers."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)
