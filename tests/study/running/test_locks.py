"""Who works on a cell: known while it lives, and forgotten when it is dead."""

import multiprocessing
import os
import signal
import socket
from pathlib import Path

import pytest

from trimsft.errors import RunError
from trimsft.study.running.locks import claimed, who_holds
from trimsft.study.running.workers import Taken


def hold(path: Path, held: object) -> None:
    with claimed(path):
        held.set()  # type: ignore[attr-defined]
        signal.pause()


def test_a_claim_is_known_while_its_holder_lives(tmp_path: Path) -> None:
    path = tmp_path / "cell" / ".claim"
    assert who_holds(path) is None
    processes = multiprocessing.get_context("spawn")
    held = processes.Event()
    other = processes.Process(target=hold, args=(path, held))
    other.start()
    try:
        assert held.wait(60)
        holder = who_holds(path)
        assert holder is not None and (holder.pid, holder.host) == (other.pid, socket.gethostname())
        with pytest.raises(Taken, match=f"process {other.pid} on "), claimed(path):
            pass
    finally:
        assert other.pid is not None
        os.kill(other.pid, signal.SIGKILL)
        other.join()
    assert path.read_bytes()  # its note is still there, and says nothing
    assert who_holds(path) is None
    with claimed(path):
        mine = who_holds(path)
        assert mine is not None and mine.pid == os.getpid()
    assert who_holds(path) is None and not path.read_bytes()


def test_a_folder_that_cannot_be_is_an_error_and_no_claim(tmp_path: Path) -> None:
    (tmp_path / "cell").touch()
    with (
        pytest.raises(RunError, match="cannot be used as a run directory"),
        claimed(tmp_path / "cell" / ".claim"),
    ):
        pass
