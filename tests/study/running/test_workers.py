"""A team of workers: messages and logs, what a dead worker costs, and that nothing outlives whoever started it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.study.stub import LAUNCHER, is_running, wait_until_gone
from trimsft.signals import heed, interruption, restore
from trimsft.study.running import launch as launching
from trimsft.study.running.launch import launch, tied
from trimsft.study.running.slots import CoreSlots
from trimsft.study.running.workers import Busy, Done, Failed, Message, Taken, Task, Team, Told, attempt

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells nobody of a dead parent")


@dataclass(frozen=True)
class Launching:
    """The name of a task is what becomes of it: a process that sleeps, or one of the messages."""

    out: Path

    def environment(self) -> dict[str, str]:
        return {"GIVEN": "by the job"}

    def log(self, name: str) -> Path:
        return self.out / f"{name}.log"

    def do(self, task: Task, tell: object) -> dict[str, float]:
        name = task.name
        if name == "sleeps":
            launched = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            (self.out / "blocked").write_text(f"{signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])}")
            (self.out / "pid").write_text(str(launched.pid))
            tell("sleeping")  # type: ignore[operator]
            launched.wait()
        if name == "dies":
            subprocess.Popen([sys.executable, "-c", LAUNCHER, str(self.out / "ranks")])
            while not (self.out / "ranks").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "taken":
            raise Taken("process 1 on the moon")
        if name == "fails":
            raise ValueError("no\nluck")
        (self.out / f"{name}.pid").write_text(str(os.getpid()))
        sys.stdout.write(f"{name} {os.environ['GIVEN']} {os.environ['OMP_NUM_THREADS']}\n")
        return {"step": 1.0}


def test_messages_come_back_logs_are_kept_and_a_dead_worker_costs_its_task_alone(tmp_path: Path) -> None:
    waiting, messages = [Task(name) for name in ("one", "taken", "fails", "dies", "two")], list[Message]()
    with Team(Launching(tmp_path), CoreSlots(1)) as team:
        for message in team.work(waiting):
            if message is not None:
                messages.append(message)
            if message == Done(Task("two"), {"step": 1.0}):
                waiting.append(Task("three"))  # what is appended meanwhile is done, too
            if isinstance(message, Failed) and message.task.name == "dies":
                launched = [int(pid) for pid in (tmp_path / "ranks").read_text().split()]
                assert len(launched) == 2 and not any(map(is_running, launched)), "its place was free too early"
    assert messages == [
        Done(Task("one"), {"step": 1.0}),
        Busy(Task("taken"), "process 1 on the moon"),
        Failed(Task("fails"), "no luck"),
        Failed(Task("dies"), "its process ended (killed by signal 9: too little memory?)", was_killed=True),
        Done(Task("two"), {"step": 1.0}),
        Done(Task("three"), {"step": 1.0}),
    ]
    assert (tmp_path / "one.log").read_text() == "one by the job 1\n"
    assert "ValueError" in (tmp_path / "fails.log").read_text()
    two, three = ((tmp_path / f"{name}.pid").read_text() for name in ("two", "three"))
    assert two == three, "a new process imports everything again"
    assert multiprocessing.active_children() == []


@pytest.fixture
def first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has started no other: multiprocessing starts its tracker with the first worker."""
    for name in ("_fd", "_pid"):
        monkeypatch.setattr(resource_tracker._resource_tracker, name, None)


@pytest.mark.usefixtures("first_process")
def test_a_worker_leaves_ctrl_c_to_its_parent_and_ends_what_it_has_launched(tmp_path: Path) -> None:
    with Team(Launching(tmp_path), CoreSlots(1)) as team:
        assert next(message for message in team.work([Task("sleeps")]) if message) == Told(Task("sleeps"), "sleeping")
        (worker,) = multiprocessing.active_children()
        assert worker.pid is not None
        assert (tmp_path / "blocked").read_text() == "True"
        os.kill(worker.pid, signal.SIGINT)
        pid = int((tmp_path / "pid").read_text())
        worker.join(0.5)
        assert worker.is_alive() and is_running(pid)
        assert os.getpgid(worker.pid) == worker.pid, "a terminal's Ctrl-C does not reach its group"
    wait_until_gone(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_worker_starts_counts_once_it_has_started(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned = type(multiprocessing.get_context("spawn").Process())
    start, steps = spawned.start, list[str]()

    def interrupted(process: multiprocessing.Process) -> None:
        signal.raise_signal(number)
        steps.append("held")
        start(process)
        steps.append("started")

    def end(number: int, frame: object) -> None:
        raise interruption(number)

    monkeypatch.setattr(spawned, "start", interrupted)
    before = heed(end)
    try:
        with pytest.raises(KeyboardInterrupt), Team(Launching(tmp_path), CoreSlots(1)) as team:
            next(team.work([Task("one")]))
    finally:
        restore(before)
    assert steps == ["held", "started"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_launched_command_has_its_exit_code_input_and_environment(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIVEN", "here")
    script = "import os, sys; print(os.environ['GIVEN'], sys.stdin.read(), sys.argv[1:]); sys.exit(3)"
    assert launch([sys.executable, "-c", script, "--a", "b c"], input=b"told") == 3
    assert capfd.readouterr().out == "here told ['--a', 'b c']\n"
    assert launch([sys.executable, "-c", "import os; os.abort()"], stderr=subprocess.DEVNULL) == -signal.SIGABRT
    monkeypatch.setattr(launching.sys, "platform", "darwin")
    assert tied(["/bin/echo", "x"]) == ["/bin/echo", "x"], "elsewhere it is a plain call"


@needs_linux
def test_what_is_launched_and_its_ranks_end_with_a_killed_parent(tmp_path: Path) -> None:
    started = tmp_path / "ranks"
    parent_script = "import runpy, sys; runpy.run_path(sys.argv[1])['launch']([sys.executable, '-c', *sys.argv[2:]])"
    words = [sys.executable, "-c", parent_script, launching.__file__, LAUNCHER, str(started)]
    parent = subprocess.Popen(words)
    while not started.exists():
        assert parent.poll() is None
        time.sleep(0.01)
    launched = [int(pid) for pid in started.read_text().split()]
    assert all(map(is_running, launched))
    parent.kill()
    parent.wait()
    for pid in launched:
        wait_until_gone(pid)


@needs_linux
def test_a_parent_that_is_gone_already_is_noticed(tmp_path: Path) -> None:
    script = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"
    command = tied([sys.executable, "-c", script, str(tmp_path / "x")])
    command[command.index(str(os.getpid()))] = str(2**30)
    assert subprocess.run(command).returncode == 1 and not (tmp_path / "x").exists()


def test_a_log_that_cannot_be_written_fails_the_task_and_not_the_worker(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = attempt(Launching(tmp_path / "file"), Task("a"), None)  # type: ignore[arg-type]
    assert isinstance(message, Failed) and str(tmp_path / "file") in message.error
