"""How every command ends: errors in one line, exit codes, signals; the only place that decides.

0 done, 1 failed on the way, 2 refused as it stands, 129 after SIGHUP, 130 after Ctrl-C, 143 after SIGTERM.
"""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from trimsft.errors import TrimSFTError, exit_code, one_line
from trimsft.signals import end_at_once, heed, how, interruption


@contextmanager
def ending(names: Mapping[str, str], *, level: int = logging.WARNING) -> Iterator[None]:
    """Turn what is raised within into a message and an exit code.

    Args:
        names: what fields are called on the command line of this command.
        level: what this package logs from here on is told as lines on stderr.
    """
    try:
        with _log_told(level):
            if signal.getsignal(signal.SIGTERM) is end_at_once:  # of a program, not of a caller in Python
                heed(_interrupt)
            yield
    except (TrimSFTError, KeyboardInterrupt, OSError, FloatingPointError, MemoryError, RuntimeError) as error:
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGTERM) is _interrupt:
            heed(signal.SIG_IGN)  # a second one would cut off what is said of the first
        line = _last_line(error, names)
        if line is None:
            raise
        if line:
            tell(line)
        raise typer.Exit(exit_code(error)) from None


def _last_line(error: BaseException, names: Mapping[str, str]) -> str | None:
    """What is said of an error, empty if another process says it; None for a bug, which keeps its traceback."""
    if isinstance(error, TrimSFTError):
        return "" if error.is_told else error.told_with(names)
    if isinstance(error, KeyboardInterrupt):
        said = str(error) or f"{how(type(error))}; what is done is kept; run the same command again to continue"
        return said if is_first_process() else ""
    if isinstance(error, OSError) and error.filename:
        return f"cannot write or read {str(error.filename)!r}: {error.strerror}"
    if isinstance(error, RuntimeError):
        torch = sys.modules.get("torch")
        # too little memory, a device that is gone: nothing that a traceback would explain
        is_from_torch = torch is not None and isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError)
        return str(error).partition("\n")[0] if is_from_torch else None
    return one_line(error)


def tell(text: str) -> None:
    """A line for the user on stderr; of several processes, each but the first says which one it is."""
    rank = "" if is_first_process() else f"[rank {os.environ['RANK']}] "
    with contextlib.suppress(OSError):  # of a terminal that is gone
        typer.echo(f"trimsft: {rank}{text}", err=True)


def is_first_process() -> bool:
    """Whether this is the first, or only, process of a launcher such as torchrun."""
    return os.environ.get("RANK", "0") == "0"


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise interruption(number)


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
