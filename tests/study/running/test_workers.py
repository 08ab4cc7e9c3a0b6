"""A worker takes with it what it has launched, whether it is stopped or loses its parent."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.study.launcher import LAUNCHER
from trimsft.study.running.slots import CoreSlots
from trimsft.study.running.workers import Busy, Done, Failed, Taken, Team, Told

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Launching:
    """An item is what becomes of it: a process that sleeps, or one of the messages."""

    out: Path

    def environment(self) -> dict[str, str]:
        return {"GIVEN": "by the job"}

    def log(self, name: str) -> Path:
        return self.out / f"{name}.log"

    def do(self, name: str, tell: object) -> dict[str, float]:
        if name == "sleeps":
            launched = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
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
        sys.stdout.write(f"{name} {os.environ['GIVEN']} {os.environ['OMP_NUM_THREADS']}\n")
        return {"step": 1.0}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_messages_come_back_and_what_is_printed_goes_to_logs(tmp_path: Path) -> None:
    with Team(Launching(tmp_path), CoreSlots(1)) as team:
        messages = [message for message in team.work(["one", "taken", "fails", "two"]) if message is not None]
    assert messages == [
        Done("one", {"step": 1.0}),
        Busy("taken", "process 1 on the moon"),
        Failed("fails", "no luck"),
        Done("two", {"step": 1.0}),
    ]
    assert (tmp_path / "one.log").read_text() == "one by the job 1\n"
    assert "ValueError" in (tmp_path / "fails.log").read_text()


def test_what_is_appended_meanwhile_is_done_too(tmp_path: Path) -> None:
    waiting = ["one"]
    with Team(Launching(tmp_path), CoreSlots(1)) as team:
        for message in team.work(waiting):
            if message == Done("one", {"step": 1.0}):
                waiting.append("two")
    assert (tmp_path / "two.log").exists()


def test_a_worker_that_is_stopped_ends_what_it_has_launched(tmp_path: Path) -> None:
    with Team(Launching(tmp_path), CoreSlots(1)) as team:
        assert next(message for message in team.work(["sleeps"]) if message) == Told("sleeps", "sleeping")
        pid = int((tmp_path / "pid").read_text())
        assert is_running(pid)
    wait_until_gone(pid)


def test_the_place_of_a_killed_worker_is_free_once_all_that_it_launched_has_ended(tmp_path: Path) -> None:
    with Team(Launching(tmp_path), CoreSlots(1)) as team:
        (message,) = (message for message in team.work(["dies"]) if message)
        launched = [int(pid) for pid in (tmp_path / "ranks").read_text().split()]
        assert message == Failed("dies", "its process ended (killed by signal 9: too little memory?)")
        assert len(launched) == 2 and not any(map(is_running, launched))


ORPHAN = """
import os, signal, sys
from pathlib import Path
from tests.study.running.test_workers import Launching
from trimsft.study.running.slots import CoreSlots
from trimsft.study.running.workers import Team

if __name__ == "__main__":
    for message in Team(Launching(Path(sys.argv[1])), CoreSlots(1)).work(["sleeps"]):
        if message is not None:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_worker_has_launched_does_not_outlive_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN)
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until_gone(int((tmp_path / "pid").read_text()))
