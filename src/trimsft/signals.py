"""Ctrl-C, SIGTERM and SIGHUP: who is called, and what is raised."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from trimsft.errors import HungUp, Interrupted, Stopped

Handler = Callable[[int, FrameType | None], Any] | int | None
_RAISED = {signal.SIGINT: Interrupted, signal.SIGTERM: Stopped}
if hasattr(signal, "SIGHUP"):  # not on Windows
    _RAISED[signal.SIGHUP] = HungUp


def heed(handler: Handler) -> dict[int, Handler]:
    """Have the signals that ask a program to end call `handler`; returns who was called before.

    Also SIGINT that was inherited as ignored, as a shell starts what stands in the background; SIGHUP stays ignored,
    which is what `nohup` is for. Outside of the main thread Python delivers no signals, so nothing is changed there.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = [number for number in _RAISED if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)]
    return {number: signal.signal(number, handler) for number in numbers}


def restore(before: dict[int, Handler]) -> None:
    """Have those called again who were before."""
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End a program that has not begun its work.

    It raises nothing: a library in the middle of its import might swallow it, or print a traceback.
    """
    if os.environ.get("RANK", "0") == "0":
        os.write(2, f"trimsft: {how(_RAISED[signal.Signals(number)])} before anything was begun\n".encode())
    os._exit(128 + number)


def interruption(number: int, details: str = "") -> KeyboardInterrupt:
    """Return the exception for a signal; `details` follow the word for it, and say what there is to continue from."""
    kind = _RAISED[signal.Signals(number)]
    return kind(how(kind) + details) if details else kind()


def how(kind: type[KeyboardInterrupt]) -> str:
    """Return what has happened to a program that ends with this exception."""
    return {Stopped: "terminated", HungUp: "hung up"}.get(kind, "interrupted")
