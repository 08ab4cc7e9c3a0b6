"""How every command ends: errors in one line, exit codes, signals; the only place that decides.

0 done, 1 failed on the way, 2 refused as it stands, 129 after SIGHUP, 130 after Ctrl-C, 143 after SIGTERM.
"""

import _thread
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import NoReturn

import typer

from trimsft.errors import TrimSFTError, exit_code, one_line
from trimsft.signals import end_at_once, heed, how, interruption

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def ending(
    names: Mapping[str, str], *, level: int = logging.WARNING, resumes: bool = False, quiet: bool = False
) -> Iterator[None]:
    """Turn what is raised within into a message and an exit code.

    Args:
        names: what fields are called on the command line of this command.
        level: what this package logs from here on is told as lines on stderr.
        resumes: whether the command, interrupted and called again, goes on with what it has done.
        quiet: whether results and errors alone are printed.
    """
    before, drops = _quiet.set(quiet), sys.unraisablehook
    if quiet:
        os.environ["TQDM_DISABLE"] = "1"  # the bars of libraries that are not imported yet
    try:
        with _log_told(logging.ERROR if quiet else level):
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


def is_quiet() -> bool:
    """Whether the command that is under way was called with --quiet."""
    return _quiet.get()


@contextmanager
def leaving(there: Callable[[], str]) -> Iterator[None]:
    """An interruption within says what there is to continue from."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise type(error)(str(error) or f"{how(type(error))}; {there()}") from None


def _last_line(error: BaseException, names: Mapping[str, str], *, resumes: bool) -> str | None:
    """What is said of an error, empty if another process says it; None for a bug, which keeps its traceback."""
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


def tell(text: str) -> None:
    """A line for the user on stderr; of several processes, each but the first says which one it is."""
    rank = "" if is_first_process() else f"[rank {os.environ['RANK']}] "
    with contextlib.suppress(OSError):  # of a terminal that is gone
        typer.echo(f"trimsft: {rank}{text}", err=True)


def note(text: str) -> None:
    """A line that may be left out."""
    if not is_quiet():
        tell(text)


def is_first_process() -> bool:
    """Whether this is the first, or only, process of a launcher such as torchrun."""
    return os.environ.get("RANK", "0") == "0"


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise interruption(number)


def _interrupt_again(dropped: "sys.UnraisableHookArgs") -> None:
    """A signal that falls into the end of an object, where Python drops whatever is raised, comes again afterwards."""
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        # not threading.Thread, whose lock the interrupted code may hold
        _thread.start_new_thread(_signal_later, (exit_code(dropped.exc_value) - 128,))
    else:
        sys.__unraisablehook__(dropped)


def _signal_later(number: int) -> None:
    time.sleep(0.02)
    os.kill(os.getpid(), number)


class _Tell(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(one_line(Exception(record.getMessage())))


@contextmanager
def _log_told(level: int) -> Iterator[None]:
    """What this package logs as lines on stderr of the first process, unless somebody listens already."""
    logger = logging.getLogger("trimsft")
    before = logger.level
    if logger.handlers:
        yield
        return
    handler = _Tell() if is_first_process() else logging.NullHandler()
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
