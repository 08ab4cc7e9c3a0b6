"""Processes that end with the one that launched them, even where that is killed and can ask nobody.

code = launch([sys.executable, "-m", "trimsft.study.running", ORDER])

On Linux this file stands between as a program of its own, `python -I -S launch.py PARENT COMMAND...`:

PARENT -> outer -> inner -> COMMAND, each told by the kernel (PR_SET_PDEATHSIG) when the one before it dies. Ray kills
the children of a task it cancels, but not theirs: the outer one is there to be killed. The inner one asks the command
and its group to end, once, since a second SIGTERM would stop torchrun while it is ending its ranks (each leads a
session of its own, which no signal to our group reaches), and kills what is left after a while. Exit codes and signals
of the command are passed on. Elsewhere it is a plain call. Knows nothing but the standard library.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

PATIENCE = 8  # seconds that the command has to end: fewer than the worker waits for all of this
PR_SET_PDEATHSIG = 1


def launch(command: list[str], **options: Any) -> int:
    """The exit code of a command, as `subprocess.run` gives it; its first word is a path."""
    import subprocess

    return subprocess.run(tied(command), **options).returncode


def tied(command: list[str]) -> list[str]:
    """The command line that ends with this process."""
    if sys.platform != "linux":
        return command
    # a process of its own: what runs between fork and exec here must not take a lock, and there are threads
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def _main(parent: int, command: list[str]) -> NoReturn:
    _tie_to(parent)
    outer = os.getpid()
    inner = os.fork()
    if not inner:
        _tie_to(outer)
        _keep(command)
    _pass_on(os.waitpid(inner, 0)[1])


def _tie_to(parent: int) -> None:
    """SIGTERM when it dies; one that has died before has another number now."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _keep(command: list[str]) -> NoReturn:
    inner = os.getpid()
    child = os.fork()
    if not child:
        os.setsid()
        _tie_to(inner)
        os.execv(command[0], command)
    is_ending = False

    def end(number: int, frame: Any) -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            _send(child, signal.SIGTERM)
            signal.alarm(PATIENCE)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGALRM, lambda number, frame: _send(child, signal.SIGKILL))
    status = os.waitpid(child, 0)[1]
    if is_ending:
        _send(child, signal.SIGKILL)
    _pass_on(status)


def _send(child: int, number: int) -> None:
    """To its group; to it alone where it leads none yet."""
    try:
        os.killpg(child, number)
    except ProcessLookupError:
        with suppress(ProcessLookupError):
            os.kill(child, number)


def _pass_on(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no other effect that could be set aside
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
