"""Workers that are killed, that die, that run out of memory: each costs one question."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimsft.errors import TrimSFTError
from trimsft.grading import Grader
from trimsft.grading import pool as module
from trimsft.grading.pool import Pool

RUNAWAY = r"\sum_{k=1}^{9999} \frac{1}{k^{k}}"
PATIENCE = 120.0


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """A worker that is ready at once, because it imports no algebra."""
    monkeypatch.setattr(module, "_WORKER", Path(__file__).with_name("fake_worker.py"))
    own = Pool(1, 1 << 30)
    yield own
    own.close()


def _host(pool: Pool) -> int:
    process = pool._workers[0]._process
    assert process is not None
    return process.pid


def test_what_math_verify_says(grader: Grader) -> None:
    pool = grader._pool
    assert pool.ask("x+1", "1+x", PATIENCE) == "equal"
    assert pool.ask("x+1", "1-x", PATIENCE) == "different"
    assert pool.ask("x+1", r"\frac{", PATIENCE) == "unparsable"
    host = _host(pool)
    assert pool.ask("5", RUNAWAY, 0.3) == "timeout"
    assert pool.ask("1", "1", PATIENCE) == "equal"
    assert _host(pool) == host  # only the child was replaced


def test_a_worker_started_early_is_the_one_that_answers(pool: Pool) -> None:
    two = Pool(2, 1 << 30)
    two.start(1)
    host = _host(two)
    assert two._workers[1]._process is None
    assert two.ask("1", "2", PATIENCE) == "different" and _host(two) == host
    two.close()


def test_a_dead_worker_costs_one_question(pool: Pool) -> None:
    assert pool.ask("1", "1", PATIENCE) == "equal"
    host = _host(pool)
    killer = threading.Timer(0.2, os.killpg, (host, signal.SIGKILL))
    killer.start()
    assert pool.ask("5", "hang", PATIENCE) == "timeout"
    killer.join()
    assert pool.ask("1", "1", PATIENCE) == "equal"
    assert _host(pool) != host


def test_a_stopped_worker_is_killed_from_outside(pool: Pool) -> None:
    assert pool.ask("1", "1", PATIENCE) == "equal"
    host = _host(pool)
    os.killpg(host, signal.SIGSTOP)
    assert pool.ask("1", "1", 0.1) == "timeout"
    with pytest.raises(ProcessLookupError):
        os.kill(host, 0)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="reads the limits from /proc")
def test_memory_is_bounded_and_running_out_is_a_timeout(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.ask("1", "1", PATIENCE) == "equal"
    host = _host(pool)
    child = Path(f"/proc/{host}/task/{host}/children").read_text().split()[0]
    limits = Path(f"/proc/{child}/limits").read_text()
    assert next(line for line in limits.splitlines() if "address space" in line).split()[3] == str(1 << 30)
    monkeypatch.setattr(pool._workers[0], "_line", lambda process, seconds: {"said": "memory"})
    assert pool.ask("1", "1", PATIENCE) == "timeout"


@pytest.mark.parametrize("is_ready", [True, False])
def test_close_ends_the_processes(is_ready: bool, pool: Pool) -> None:
    pool.start(4)
    if is_ready:
        assert pool.ask("1", "1", PATIENCE) == "equal"
    host = _host(pool)
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.killpg(host, 0)


def test_a_worker_that_cannot_start_is_a_failure_and_no_grade(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_WORKER", tmp_path / "gone.py")
    with Grader() as grader:
        grader.expect(["7", " -12 "])
        assert grader._pool._workers[0]._process is None  # whole numbers are compared without one
        grader.expect(["7", r"\frac12"])
        assert grader._pool._workers[0]._process is not None
        with pytest.raises(TrimSFTError, match="the grading worker did not start; run `"):
            grader.grade(r"\boxed{\int_0^1 2x dx}", "1")
    assert grader._pool._workers[0]._process is None
