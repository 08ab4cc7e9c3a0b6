"""Processes of this machine: one that dies costs no other its cell, none outlives its parent."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from tests.study.stub import StubJob, cells, is_running, job_of, wait_until_gone
from trimsft.errors import UsageError
from trimsft.study import pools
from trimsft.study.cell import Cell
from trimsft.study.pools import LocalPool, environments
from trimsft.study.scales import SCALES

PARENT = """
import sys, time
from pathlib import Path
from tests.study.stub import cells, job_of
from trimsft.study.pools import LocalPool
if __name__ == "__main__":
    with LocalPool(job_of(Path(sys.argv[1])), cells("launching"), 1) as pool:
        pool.submit(*cells("launching"))
        time.sleep(600)
"""
BOTH, PAPER = cells("good", seeds=2), SCALES["paper"]


def wait_for(done: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_core_or_a_group_of_gpus_for_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    job = job_of(tmp_path)
    one = environments(job, BOTH, None)
    assert len(one) == 2 and one[0]["OMP_NUM_THREADS"] == "1" and one[0]["CUDA_VISIBLE_DEVICES"] == ""
    assert len(environments(job, cells("good", seeds=9), None)) == pools.MOST
    assert len(environments(job, BOTH, 5)) == 5
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,7")
    paper = [Cell(model="Qwen2.5-Math-1.5B", objective="sft")]
    two = StubJob(job.folder, PAPER)
    assert [each["CUDA_VISIBLE_DEVICES"] for each in environments(two, paper, None)] == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UsageError, match=r"gpus: a training needs 2 and there are 1"):
        environments(two, paper, None)


def test_a_process_that_dies_costs_no_other_its_cell(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    dying, good, bad = cells("dying", "good", "bad")
    with LocalPool(job, [dying, good], 2) as pool:
        killed, done = (pool.submit(cell) for cell in (dying, good))
        assert isinstance(killed.exception(), BrokenProcessPool) and done.result().failure == ""
        pool.release(killed, failed=True)
        pool.release(done)
        future = pool.submit(bad)
        assert future.result().failure.startswith("learning_rate: must not be below 0")
        pool.release(future, failed=True)
        assert "TrimSFTError" in job.folder.log(bad).read_text()
    assert multiprocessing.active_children() == []


def test_an_interruption_ends_the_cell_and_its_process(tmp_path: Path) -> None:
    (cell,) = cells("launching")
    job = job_of(tmp_path)
    launched = job.folder.run(cell) / "pid"
    with LocalPool(job, [cell], 1) as pool:  # and it is left before the cell is done
        pool.submit(cell)
        wait_for(lambda: launched.exists() and launched.read_text())
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid or 0, signal.SIGINT)  # a terminal's Ctrl-C reaches every process
        worker.join(0.3)
        assert worker.is_alive(), "Ctrl-C is left to its parent"
    wait_until_gone(int(launched.read_text()))
    assert multiprocessing.active_children() == []


def test_an_interrupt_while_a_process_starts_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = cells("launching")
    submit = pools.ProcessPoolExecutor.submit

    def submit_and_interrupt(*given: Any) -> Any:
        future = submit(*given)
        os.kill(os.getpid(), signal.SIGINT)  # held back until the process has started
        return future

    monkeypatch.setattr(pools.ProcessPoolExecutor, "submit", submit_and_interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), LocalPool(job_of(tmp_path), [cell], 1) as pool:
        pool.submit(cell)
    signal.signal(signal.SIGINT, before)
    assert multiprocessing.active_children() == []


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    launched = job_of(tmp_path).folder.run(*cells("launching")) / "pid"
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    path = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen([sys.executable, str(script), str(tmp_path)], env={**os.environ, **path}) as parent:
        wait_for(lambda: launched.exists() and launched.read_text())
        pid = int(launched.read_text())
        assert is_running(pid)
        parent.kill()
    wait_until_gone(pid)


def test_the_tracker_of_multiprocessing_unblocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts with the first process, and unblocks what would then reach that process."""
    for name in ("_fd", "_pid"):
        monkeypatch.setattr(resource_tracker._resource_tracker, name, None)
    with pools._signals_blocked():
        resource_tracker.ensure_running()
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
