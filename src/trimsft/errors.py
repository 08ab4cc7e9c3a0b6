r"""Errors as data: the field, its value and what would be right; signals; exit codes.

>>> error = UsageError("must be at least 1", field="sample", value=0, hint="leave it out to use all rows")
>>> print(error)
sample: must be at least 1, got 0; leave it out to use all rows
>>> print(error.message("--{}".format))
--sample: must be at least 1, got 0; leave it out to use all rows
"""

import os
import reprlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

FAILED, REFUSED = 1, 2  # exit codes; the second is of a request that cannot be carried out
_UNSET: Any = object()
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 200


class TrimSFTError(Exception):
    """A failure that the user can act on, said in one line.

    Args:
        problem: what is wrong; a whole message where no field is to blame.
        field: the setting or argument, by its name in Python.
        value: what it was given.
        hint: what would be right.
    """

    exit_code = FAILED
    is_reported = False
    """Set where another process of the same job has said it already."""

    def __init__(self, problem: str, *, field: str | None = None, value: Any = _UNSET, hint: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.field, self.hint = problem, field, hint
        self.has_value, self.value = value is not _UNSET, None if value is _UNSET else value

    def message(self, name_of: Callable[[str], str] = str) -> str:
        """Return the message with fields called as `name_of` says."""
        text = f"{name_of(self.field)}: {self.problem}" if self.field else self.problem
        if self.has_value:
            text += f", got {_short.repr(self.value)}"
        if self.hint:
            text += f"; {self.hint}"
        return _printable(text)

    __str__ = message


class UsageError(TrimSFTError, ValueError):
    """A request that cannot be carried out as it stands: a setting, an argument, an input."""

    exit_code = REFUSED


class WrongArgument(UsageError, TypeError):
    """An argument of another kind than is asked for, or given in another way."""


class UnsuitedHead(UsageError, NotImplementedError):
    """A model whose output embedding or logits are not what the fused head takes them for."""


class DataError(UsageError):
    """Data that cannot be used: a file, a row, a column."""


class RunError(TrimSFTError, RuntimeError):
    """A run directory that cannot be used as asked."""

    exit_code = REFUSED


class RunInUse(RunError):
    """Another process works in the run directory."""


class WriteError(RunError):
    """A file that could not be written; nothing that was there before is lost."""

    exit_code = FAILED


def one_line(error: BaseException) -> str:
    """Return the message on one line; the name of the class where there is none."""
    return _printable(str(error)) or type(error).__name__


def _printable(text: str) -> str:
    """Return the text on one line; what would act on a terminal is spelled out."""
    line = " ".join(text.split())
    line = line if len(line) <= 2000 else f"{line[:2000]} ..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts: "1 row", "1,200 tokens"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def and_more(number: int, noun: str) -> str:
    """Return how many there are beyond the one that was named."""
    return f" (and {number - 1:,} more {noun})" if number > 1 else ""


# ---- Ctrl-C, SIGTERM and SIGHUP

Handler = Callable[[int, FrameType | None], Any] | int | None
SIGNALS = {2: "interrupted", 15: "terminated"} | ({1: "hung up"} if hasattr(signal, "SIGHUP") else {})
"""What is said of them; Windows lacks the last."""


class Interrupted(KeyboardInterrupt):
    """One of these signals, raised where Ctrl-C would be; `details` follow the word for it.

    A plain KeyboardInterrupt that has passed an import may end the program by the signal itself.
    """

    def __init__(self, number: int, details: str = "") -> None:
        super().__init__(number, details)
        self.number, self.details = number, details

    def __str__(self) -> str:
        return SIGNALS[self.number] + self.details


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as Python handles Ctrl-C."""
    raise Interrupted(number)


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal before a program has begun its work.

    It raises nothing: a library in the middle of its import might swallow it, or print a traceback.
    """
    if os.environ.get("RANK", "0") == "0":
        os.write(2, f"trimsft: {SIGNALS[number]} before anything was begun\n".encode())
    os._exit(128 + number)


def handle_signals(handler: Handler) -> dict[int, Handler]:
    """Have the signals that ask a program to end call `handler`; return who was called before.

    Also SIGINT that was inherited as ignored, as a shell starts what stands in the background; SIGHUP
    stays ignored, for `nohup`. Outside of the main thread, which alone gets signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    kept = {number for number in SIGNALS if number == 1 and signal.getsignal(number) is signal.SIG_IGN}
    return {number: signal.signal(number, handler) for number in SIGNALS.keys() - kept}


def exit_code(error: BaseException) -> int:
    """Return what a command that ends with this error returns to its shell."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + getattr(error, "number", signal.SIGINT)
    return error.exit_code if isinstance(error, TrimSFTError) else FAILED
