"""Who works on a cell: a lock on a file of its run directory, beside that of `trimsft train`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimsft.errors import RunInUse
from trimsft.runs import RunLock
from trimsft.runs import holder_of as who_holds
from trimsft.study.running.workers import Taken

__all__ = ["claimed", "who_holds"]


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold a cell; raises `Taken` where somebody else does."""
    try:
        lock = RunLock(path)
    except RunInUse as error:
        raise Taken(str(error.holder or "another process")) from None
    with lock:
        yield
