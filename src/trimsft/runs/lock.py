"""Who works on a run: a lock that the kernel frees however its holder ends, and a note that says who that is.

with RunLock(Path("runs/trim/.lock")):
    ...
holder_of(Path("runs/trim/.lock"))      # None, or Holder(host="a", pid=42, since="2026-11-02T10:00:00+01:00", ...)

On a shared file system it holds between machines, too: NFS and Lustre pass flock on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from trimsft.errors import RunError, RunInUse
from trimsft.runs.files import refuse_links
from trimsft.runs.parsing import ParseError, checked, parse_json
from trimsft.runs.secrets import hide_secrets

_held: dict[Path, FileLock] = {}
"""The locks of this process: one that nobody keeps a name for would be freed by the garbage collector."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, as it has described itself."""

    host: str
    pid: int
    since: str
    command: str = ""

    def __str__(self) -> str:
        command = f" ({self.command})" if self.command else ""
        return f"process {self.pid} on {self.host} since {self.since}{command}"


class RunLock:
    """Held from the moment it is made until it is released or the process ends.

    Taking it again in the same process is harmless: it is held until each has been released. A forked child does not
    hold it.

    Args:
        patience: seconds to wait for whoever holds it; then `RunInUse` is raised.
    """

    def __init__(self, path: Path, *, patience: float = 0.0) -> None:
        refuse_links(path)
        self._path = path.resolve()
        self._lock = _held.get(self._path) or FileLock(self._path, thread_local=False, fallback_to_soft=False)
        self._is_released = False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"{path.parent}: cannot be used as a run directory ({error.strerror})",
                hint="choose another output directory",
            ) from error
        try:
            self._lock.acquire(timeout=patience)
        except Timeout:
            holder = _read(_note(path))
            hint = "wait until it ends, or choose another output directory"
            refusal = RunInUse(f"{path.parent}: in use by {holder or 'another process'}", hint=hint)
            refusal.holder = holder
            raise refusal from None
        except OSError as error:
            raise RunError(
                f"{path.parent}: cannot be locked (flock: {error.strerror})",
                hint="choose an output directory on another file system",
            ) from error
        if self._path not in _held:
            _held[self._path] = self._lock
            note = asdict(Holder(socket.gethostname(), os.getpid(), now(), command_line()))
            with contextlib.suppress(OSError):  # a full disk: the lock holds without its note
                self._path.write_text(json.dumps(note) + "\n", encoding="utf-8")

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._is_released or _held.get(self._path) is not self._lock:
            return
        self._is_released = True
        if self._lock.lock_counter == 1:
            del _held[self._path]
            with contextlib.suppress(OSError):
                os.truncate(self._path, 0)
        self._lock.release()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_held.clear)  # filelock closes the child's descriptors itself


def holder_of(path: Path) -> Holder | None:
    """Return who holds a lock now; None where nobody does.

    Only a file with a note in it is asked for its lock, and for a moment: a holder empties it when it is done.
    """
    path = path.resolve()
    note = _note(path)
    if not note:
        return None
    if path not in _held:
        try:
            with FileLock(path, timeout=0, fallback_to_soft=False):
                return None
        except Timeout:
            pass
    return _read(note) or Holder("an unknown host", 0, "an unknown time")


def _note(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read(note: str) -> Holder | None:
    try:
        return checked(Holder, parse_json(note), where="note")
    except (ParseError, RunError):
        return None


def command_line() -> str:
    """Return the command line of this process without secrets; `python -m` by the name of its package."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return shlex.join(hide_secrets([name, *sys.argv[1:]]))


def now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
