"""Who works on a cell: a lock on a file of its run directory, which the kernel frees however its holder ends.

It is a lock of its own beside that of `trimsft train`, which is taken by the processes that train. On a shared file
system it holds between machines, too (NFS and Lustre pass flock on); one that has no locks is refused by `runs`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trimsft.runs import RunError, RunLock
from trimsft.study.running.workers import Taken


@dataclass(frozen=True)
class Holder:
    """The process that works on a cell, as it has described itself."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold a cell; raises `Taken` where somebody else does."""
    try:
        lock = RunLock(path)
    except RunError as error:
        if "in use by" not in str(error):
            raise
        raise Taken(str(who_holds(path) or "another process")) from None
    with lock:
        yield


def who_holds(path: Path) -> Holder | None:
    """Who holds a cell now; None where nobody does.

    Only a file with a note in it is asked for its lock, and for a moment: a holder empties it when it is done.
    """
    import fcntl

    try:
        note = path.read_bytes()
    except OSError:
        return None
    if not note.strip():
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(note)
    finally:
        os.close(descriptor)
    return None


def _read(note: bytes) -> Holder:
    try:
        who = json.loads(note)
        return Holder(str(who["host"]), int(who["pid"]), str(who["since"]))
    except (ValueError, TypeError, KeyError):
        return Holder("an unknown machine", 0, "some time")
