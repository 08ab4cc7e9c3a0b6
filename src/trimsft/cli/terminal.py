"""What commands share on a terminal: how they end, what they say on stderr, progress, tables.

A command ends with 0 when all is done, 1 when something failed on the way, 2 when it is refused as it stands, 129 after
SIGHUP, 130 after Ctrl-C, 143 after SIGTERM. Everything but results goes to stderr, and no progress with --quiet.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trimsft.errors import TrimSFTError, exit_code, one_line
from trimsft.signals import end_at_once, heed, how, interruption

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from trimsft.tables import Table as Results

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds between two lines of progress
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only, no progress or notes.")]
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


# ---- how commands end


@contextmanager
def ending(
    names: Mapping[str, str], *, level: int = logging.WARNING, resumes: bool = False, quiet: bool = False
) -> Iterator[None]:
    """Turn what is raised within into a message and an exit code.

    Args:
        names: what fields are called on the command line of this command.
        level: what this package logs from here on becomes lines on stderr.
        resumes: whether the command, interrupted and called again, goes on with what it has done.
        quiet: whether results and errors alone are printed.
    """
    before, drops = _quiet.set(quiet), sys.unraisablehook
    if quiet:
        os.environ["TQDM_DISABLE"] = "1"  # the bars of libraries that are not imported yet
    try:
        with _log_lines(logging.ERROR if quiet else level):
            if signal.getsignal(signal.SIGTERM) is end_at_once:  # of a program, not of a caller in Python
                heed(_interrupt)
                sys.unraisablehook = _interrupt_again
            yield
    except (TrimSFTError, KeyboardInterrupt, OSError, FloatingPointError, MemoryError, RuntimeError) as error:
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGTERM) is _interrupt:
            heed(signal.SIG_IGN)  # a second one would cut off what is said of the first
        line = _last_line(error, names, resumes=resumes)
        if line is None:
            raise
        if line:
            tell(line)
        raise typer.Exit(exit_code(error)) from None
    finally:
        sys.unraisablehook = drops
        _quiet.reset(before)


@contextmanager
def leaving(there: Callable[[], str]) -> Iterator[None]:
    """Have an interruption within say what there is to continue from."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise type(error)(str(error) or f"{how(type(error))}; {there()}") from None


def _last_line(error: BaseException, names: Mapping[str, str], *, resumes: bool) -> str | None:
    """Return the line for an error, empty if another process says it; None for a bug, which keeps its traceback."""
    if isinstance(error, TrimSFTError):
        return "" if error.is_told else error.told_with(names)
    if isinstance(error, KeyboardInterrupt):
        kept = "; what is finished is kept; rerun the command to resume" if resumes else ""
        return str(error) or how(type(error)) + kept if is_first_process() else ""
    if isinstance(error, OSError) and error.filename:
        return f"cannot write or read {str(error.filename)!r}: {error.strerror}"
    if isinstance(error, RuntimeError):
        torch = sys.modules.get("torch")
        if torch is None:
            return None
        # gloo, unlike NCCL, has no class of errors, and names itself in the text alone
        if isinstance(error, torch.distributed.DistError) or (type(error) is RuntimeError and "gloo" in str(error)):
            return f"a connection between ranks is lost ({one_line(error)}); the rank that ended first says why"
        # too little memory, a device that is gone: nothing that a traceback would explain
        is_from_torch = isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError)
        return str(error).partition("\n")[0] if is_from_torch else None
    return one_line(error)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise interruption(number)


def _interrupt_again(dropped: sys.UnraisableHookArgs) -> None:
    """Repeat a signal that came while an object was deleted, where Python drops whatever is raised."""
    if not isinstance(dropped.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
        return
    number = exit_code(dropped.exc_value) - 128
    signal.signal(signal.SIGALRM, lambda _, frame: _interrupt(number, frame))
    signal.setitimer(signal.ITIMER_REAL, 0.02)


# ---- lines on stderr


def tell(text: str) -> None:
    """Print a line on stderr; of several processes, each but the first says which one it is."""
    rank = "" if is_first_process() else f"[rank {os.environ['RANK']}] "
    with contextlib.suppress(OSError):  # of a terminal that is gone
        typer.echo(f"trimsft: {rank}{text}", err=True)


def note(text: str) -> None:
    """Print a line that --quiet leaves out."""
    if not is_quiet():
        tell(text)


def is_quiet() -> bool:
    """Return whether the command that is under way was called with --quiet."""
    return _quiet.get()


def is_first_process() -> bool:
    """Return whether this is the first, or only, process of a launcher such as torchrun."""
    return os.environ.get("RANK", "0") == "0"


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(one_line(Exception(record.getMessage())))


@contextmanager
def _log_lines(level: int) -> Iterator[None]:
    """Print what this package logs in the first process, unless somebody listens already."""
    logger = logging.getLogger("trimsft")
    before = logger.level
    if logger.handlers:
        yield
        return
    handler = _LogHandler() if is_first_process() else logging.NullHandler()
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


# ---- progress


class Lines:
    """Prints a text if it is about something new, is the last one, or enough time has passed since the one before.

    A first line comes at once, the next ones after 5, 10, 20, 40 and then every 60 seconds: a log file stays short.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._about = ""
        self._next = self._pause = 0.0

    def __call__(self, text: str, *, about: str = "", is_last: bool = False) -> None:
        now = self._clock()
        if self._about != about or not self._pause:
            self._pause = FIRST_PAUSE
        elif now >= self._next:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        elif not is_last:
            return
        self._about, self._next = about, now + self._pause
        note(text)


@contextmanager
def progress_lines() -> Iterator[Callable[..., None]]:
    """Yield a function that shows how far the work is: `show(text, about="math500", is_last=False)`."""
    console = make_console(stderr=True)
    if not console.is_terminal or is_quiet():
        yield Lines()
        return
    with console.status("") as status:
        yield lambda text, **_: status.update(text)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows how many rows of something are done: a bar for each name, or lines."""
    from rich.progress import Progress

    console = make_console(stderr=True)
    if not console.is_terminal or is_quiet():
        lines = Lines()
        yield lambda name, done, total: lines(f"{name}: {done:,} of {total:,} rows", about=name, is_last=done == total)
        return
    with Progress(console=console) as progress:
        bars: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(f"{name}: rows")
            progress.update(bars[name], completed=done, total=total)

        yield show


# ---- results


def called() -> str:
    """Return how this program is called in the user's shell, for commands that are printed to be copied.

    `trimsft`, where the shell finds this one by that name; else the path or the `python -m trimsft` that was typed.
    """
    typed = Path(sys.argv[0])
    if typed.parts[-2:] == ("trimsft", "__main__.py"):
        is_known = shutil.which("python") and os.path.samefile(shutil.which("python") or "", sys.executable)
        return f"{'python' if is_known else sys.executable} -m trimsft"
    first = shutil.which("trimsft")
    if typed.name != "trimsft" or (first and typed.exists() and os.path.samefile(first, typed)):
        return "trimsft"
    return str(typed)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console without colours for numbers and paths; on stderr it is silent with --quiet."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, quiet=stderr and is_quiet())


def make_table(*columns: str, texts: bool = False) -> Table:
    """Return an empty table: names on the left, numbers on the right, or `texts` that may be folded."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        is_number = bool(number) and not texts
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number or (texts and not number))
    return table


def print_tables(tables: Iterable[Results]) -> None:
    """Print tables of results."""
    from trimsft.tables import to_rich

    for table in tables:
        make_console().print(to_rich(table))
