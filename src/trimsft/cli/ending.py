"""How every command ends: errors in one line, exit codes, Ctrl-C and SIGTERM; the only place that decides.

0 done, 1 failed on the way, 2 refused as it stands, 130 after Ctrl-C, 143 after SIGTERM.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

from trimsft.errors import Stopped, TrimSFTError, exit_code, one_line


@contextmanager
def ending(names: Mapping[str, str], *, level: int = logging.WARNING) -> Iterator[None]:
    """Turn what is raised within into a message and an exit code.

    Args:
        names: what fields are called on the command line of this command.
        level: what this package logs from here on is told as lines on stderr.
    """
    try:
        with _log_told(level):
            yield
    except (TrimSFTError, KeyboardInterrupt, OSError, FloatingPointError, MemoryError, RuntimeError) as error:
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
        how = "terminated" if isinstance(error, Stopped) else "interrupted"
        said = str(error) or f"{how}; what is done is kept; run the same command again to continue"
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
    typer.echo(f"trimsft: {rank}{text}", err=True)


def is_first_process() -> bool:
    """Whether this is the first, or only, process of a launcher such as torchrun."""
    return os.environ.get("RANK", "0") == "0"


def heed_signals() -> None:
    """Ctrl-C and SIGTERM end a command cleanly, also one that a shell has started in the background.

    Such a process inherits SIGINT as ignored, and Python leaves it so.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped


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
