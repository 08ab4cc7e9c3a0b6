"""Workers that are killed, that die, that run out of memory: each costs one question."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimsft.grading import Grader
from trimsft.grading.pool import Pool

RUNAWAY = r"\sum_{k=1}^{9999} \frac{1}{k^{k}}"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    shared = Pool(1, 1 << 30)
    yield shared
    shared.close()


def _host(pool: Pool) -> int:
    process = pool._workers[0]._process
    assert process is not None
    return process.pid


def test_what_it_says(pool: Pool) -> None:
    assert pool.ask("x+1", "1+x", 5) == "equal"
    assert pool.ask("x+1", "1-x", 5) == "different"
    assert pool.ask("x+1", r"\frac{", 5) == "unparsable"


def test_a_child_past_its_time_is_ended_and_replaced(pool: Pool) -> None:
    assert pool.ask("1", "1", 5) == "equal"
    host = _host(pool)
    started = time.perf_counter()
    assert pool.ask("5", RUNAWAY, 0.5) == "timeout"
    assert time.perf_counter() - started < 0.9
    assert pool.ask("1", "1", 5) == "equal"
    assert _host(pool) == host  # only the child was replaced


def test_a_dead_worker_costs_one_question(pool: Pool) -> None:
    assert pool.ask("1", "1", 5) == "equal"
    host = _host(pool)
    killer = threading.Timer(0.5, os.killpg, (host, signal.SIGKILL))
    killer.start()
    assert pool.ask("5", RUNAWAY, 30) == "timeout"
    killer.join()
    assert pool.ask("1", "1", 5) == "equal"
    assert _host(pool) != host


def test_a_stopped_worker_is_killed_from_outside(pool: Pool) -> None:
    assert pool.ask("1", "1", 5) == "equal"
    host = _host(pool)
    os.killpg(host, signal.SIGSTOP)
    started = time.perf_counter()
    assert pool.ask("1", "1", 0.3) == "timeout"
    assert time.perf_counter() - started < 1.5
    with pytest.raises(ProcessLookupError):
        os.kill(host, 0)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="reads the limits from /proc")
def test_memory_is_bounded(pool: Pool) -> None:
    assert pool.ask("1", "1", 5) == "equal"
    host = _host(pool)
    child = Path(f"/proc/{host}/task/{host}/children").read_text().split()[0]
    limits = Path(f"/proc/{child}/limits").read_text()
    assert next(line for line in limits.splitlines() if "address space" in line).split()[3] == str(1 << 30)


def test_running_out_of_memory_is_a_timeout(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.ask("1", "1", 5) == "equal"
    monkeypatch.setattr(pool._workers[0], "_line", lambda process, seconds: {"said": "memory"})
    assert pool.ask("1", "1", 5) == "timeout"
    pool._workers[0].stop()  # its reply is still in the pipe


def test_a_worker_started_early_is_the_one_that_answers() -> None:
    pool = Pool(2, 1 << 30)
    pool.start(1)
    host = _host(pool)
    assert pool._workers[1]._process is None
    assert pool.ask("1", "1", 5) == "equal"
    assert _host(pool) == host
    pool.close()


def test_a_worker_that_is_still_starting_can_be_closed() -> None:
    pool = Pool(1, 1 << 30)
    pool.start(4)
    host = _host(pool)
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(host, 0)


def test_entering_a_grader_starts_workers() -> None:
    with Grader(workers=1) as grader:
        assert grader._pool._workers[0]._process is not None


def test_close_ends_the_processes() -> None:
    pool = Pool(2, 1 << 30)
    assert pool.ask("1", "1", 5) == "equal"
    host = _host(pool)
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(host, 0)
