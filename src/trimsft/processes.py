"""A module of this package in a process of its own: it is sent lines of JSON and answers in lines of JSON.

Here:

    child = Child("trimsft.evaluate.engines.several", {"CUDA_VISIBLE_DEVICES": "1"})
    child.send({"model": "runs/trim"})
    child.read()                      # its next line; None: it has ended
    child.close()                     # ends it, with all that it has started

There, in `main`:

    say = answers()                   # before anything is imported that may print
    for message in messages():        # the process ends when nobody is left to send any
        say(done=256)

Errors cross as data, with their kind, field, value and hint: `error_as_data`, `error_from`.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from trimsft import errors
from trimsft.errors import TrimSFTError, one_line

# ---- whoever starts it


class Child:
    """The process, both ends of its pipes, and a log of what it prints."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        package = str(Path(__file__).parents[1])
        paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **(environment or {}), "PYTHONPATH": paths},
            start_new_session=True,  # so that it ends with the processes that it has started
        )
        self.pid = self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died, and its last words are in the log
            self._process.stdin.write(_line(message))
            self._process.stdin.flush()

    def read(self) -> dict[str, Any] | None:
        """Return the next line that it says; None when it has ended, in the middle of a line too."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        message: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return message

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        return self._process.wait()

    def last_words(self) -> str | None:
        """Return the last line that it printed before it ended; None where it printed nothing."""
        self.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else None

    def close(self) -> None:
        """End it, whatever it is doing: nothing of it is to be saved."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        for end in (self._process.stdin, self._process.stdout, self._log):
            assert end is not None
            with contextlib.suppress(BrokenPipeError):  # what was not read any more
                end.close()


def error_from(
    data: Mapping[str, Any], kind: type[TrimSFTError] | None = None, where: str | None = None
) -> TrimSFTError:
    """Return what a process could not do, as an error of its own kind or of this one.

    `where` stands before it where no field is to blame.
    """
    fields = dict(data)
    own_kind: type[TrimSFTError] = getattr(errors, fields.pop("kind", "TrimSFTError"))
    problem = fields.pop("problem")
    if remedy := fields.get("remedy"):
        fields["remedy"] = tuple(remedy)
    return (kind or own_kind)(f"{where}: {problem}" if where and not fields.get("field") else problem, **fields)


# ---- the process itself


def answers() -> Callable[..., None]:
    """Return a function that writes its keywords as a line; what libraries print goes to the log from now on."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(**message: Any) -> None:
        out.write(_line(message))
        out.flush()

    return say


def messages() -> Iterator[dict[str, Any]]:
    """Yield what is sent; when its sender is gone the process is killed, in the middle of its work too."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        # not sys.stdin: Python closes that when it ends, and would wait for this thread
        with open(0, "rb", closefd=False) as sent:
            for line in sent:
                lines.put(line)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(lines.get())


def error_as_data(error: Exception) -> dict[str, Any]:
    """Return an error for `error_from`; of a class that is not in `trimsft.errors`, the nearest that is."""
    if not isinstance(error, TrimSFTError):
        return {"problem": one_line(error)}
    kind = next(one for one in type(error).__mro__ if one.__module__ == errors.__name__)
    value = {"value": error.value} if error.has_value else {}
    fields = {"problem": error.problem, "field": error.field, "hint": error.hint, "remedy": error.remedy}
    return {"kind": kind.__name__, **fields, **value}


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, default=str).encode() + b"\n"
