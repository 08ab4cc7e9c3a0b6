"""The process of the patterns, which is killed, dies and runs out of memory; and grading that needs none."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimsft.errors import TrimSFTError
from trimsft.grading.patterns import PatternSearch

HOPELESS = r"(?:a+)+$|(x)"  # takes longer than anybody waits on the text below
TEXT = "a" * 60 + "b"
PATIENCE = 120.0


@pytest.fixture
def search() -> Iterator[PatternSearch]:
    own = PatternSearch()
    yield own
    own.close()


def _pid(search: PatternSearch) -> int:
    assert search._process is not None
    return search._process.pid


def test_the_last_match_that_holds_something(search: PatternSearch) -> None:
    assert search.find(r"#(\d*)", "#1 #2 #", PATIENCE) == "2"
    first = _pid(search)
    assert search.find(r"#(\d*)", "no number, 5 \ud800", PATIENCE) is None
    assert search.find("(.*)", "7" * 5000, PATIENCE) == "7" * 2001
    assert _pid(search) == first  # one process for all


def test_a_pattern_past_its_time_costs_itself_alone(search: PatternSearch) -> None:
    with pytest.raises(TimeoutError):
        search.find(HOPELESS, TEXT, 0.2)
    assert search.find("(b)", TEXT, PATIENCE) == "b"


def test_waiting_for_the_machine_is_not_counted(search: PatternSearch) -> None:
    assert search.find("(b)", TEXT, PATIENCE) == "b"
    os.kill(_pid(search), signal.SIGSTOP)
    threading.Timer(0.6, os.kill, (_pid(search), signal.SIGCONT)).start()
    assert search.find("(b)", TEXT, 0.3) == "b"


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="reads the limits from /proc")
def test_memory_is_bounded(search: PatternSearch) -> None:
    search.find("(b)", TEXT, PATIENCE)
    limits = Path(f"/proc/{_pid(search)}/limits").read_text()
    assert next(line for line in limits.splitlines() if "address space" in line).split()[3] == str(1 << 30)


def test_a_killed_process_costs_one_question(search: PatternSearch) -> None:
    assert search.find("(b)", TEXT, PATIENCE) == "b"
    first = _pid(search)
    killer = threading.Timer(0.2, os.kill, (first, signal.SIGKILL))
    killer.start()
    with pytest.raises(TimeoutError):
        search.find(HOPELESS, TEXT, PATIENCE)
    assert search.find("(b)", TEXT, PATIENCE) == "b" and _pid(search) != first


def test_an_interrupted_question_leaves_no_reply(search: PatternSearch) -> None:
    assert search.find("(b)", TEXT, PATIENCE) == "b"
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        search.find(HOPELESS, TEXT, 5.0)
    assert search.find("(2)", "2", PATIENCE) == "2"


def test_close_ends_the_process(search: PatternSearch) -> None:
    search.find("(b)", TEXT, PATIENCE)
    pid = _pid(search)
    search.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_start_is_a_failure_and_no_grade(search: PatternSearch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(TrimSFTError, match="the process that searches for patterns did not start; run `false"):
        search.find("(b)", TEXT, PATIENCE)
    assert search._process is None


PURE = r"""
import os, subprocess, sys, threading, time
from trimsft.grading import Grader, Rules

def forbidden(*_, **__):
    raise AssertionError("a process, a thread or a clock")

os.fork = os.posix_spawn = subprocess.Popen = threading.Thread.start = forbidden
time.time = time.monotonic = time.perf_counter = time.process_time = forbidden
sys.modules |= {"sympy": None, "math_verify": None}
PAIRS = [
    (r"\frac12", "0.5", "correct"), ("x^2-1", "(x-1)(x+1)", "correct"), ("5", "6", "wrong"),
    (r"\int_0^1 2x dx", "1", "unparsable"), (r"\sum_{k=1}^{\infty}\frac{1}{2^k}", "1", "unparsable"),
    (r"\sum_{k=1}^{9999} \frac{1}{k^{k}}", "2", "unparsable"), ("(((", "2", "unparsable"),
]
for kind in ("strict", "qwen"):
    with Grader(kind=kind) as grader:
        items = [(rf"\boxed{{{answer}}}", gold, Rules(), False) for answer, gold, _ in PAIRS]
        statuses = [grade.status for grade in grader.grade_many(items)]
        grader.equivalent(r"\lim_{x\to 0} x", "0")
    assert kind == "qwen" or statuses == [status for *_, status in PAIRS], statuses
assert not [name for name in sys.modules if name.split(".")[0] in ("latex2sympy2_extended", "antlr4", "torch")]
"""


def test_mathematics_needs_no_process_no_clock_no_sympy() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", PURE], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
