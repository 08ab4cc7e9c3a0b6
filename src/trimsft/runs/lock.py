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
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_held.clear)  # filelock closes the child's descriptors itself


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, as it has described itself."""

    host: str = "an unknown host"
    pid: int = 0
    since: str = "an unknown time"
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
            self._lock.acquire(timeout=patience)
        except Timeout:
            holder = _note(self._path)
            hint = "wait until it ends, or choose another output directory"
            refusal = RunInUse(f"{path.parent}: in use by {holder or 'another process'}", hint=hint)
            refusal.holder = holder
            raise refusal from None
        except OSError as error:
            hint = "choose another output directory"
            problem = f"{path.parent}: cannot be used as a run directory ({error.strerror})"
            raise RunError(problem, hint=hint) from error
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


def holder_of(path: Path) -> Holder | None:
    """Return who holds a lock now; None where nobody does.

    Only a file with a note in it is asked for its lock, and for a moment: a holder empties it when it is done.
    """
    path = path.resolve()
    if not path.is_file() or not path.stat().st_size:
        return None
    if path not in _held:
        with contextlib.suppress(Timeout), FileLock(path, timeout=0, fallback_to_soft=False):
            return None
    return _note(path) or Holder()


def _note(path: Path) -> Holder | None:
    try:
        return checked(Holder, parse_json(path.read_bytes()), where="note")
    except (OSError, ParseError, RunError):
        return None


def command_line() -> str:
    """Return the command line of this process without secrets; `python -m` by the name of its package."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return shlex.join(hide_secrets([name, *sys.argv[1:]]))


def now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
