"""A worker that dies costs its run and no other; it leaves Ctrl-C to its parent, and ends with it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from trimsft.study.quickstart import Settings
from trimsft.study.quickstart.steps import Place
from trimsft.study.quickstart.workers import Failed, Team, Told, how_many


def test_a_killed_worker_is_a_failed_run_and_is_replaced(tmp_path: Path) -> None:
    killed: dict[str, int] = {}
    failures: dict[str, str] = {}
    with Team(Place(tmp_path), Settings(), count=1) as team:
        for message in team.work(["base", "trim"]):
            if isinstance(message, Told) and message.name not in killed:
                (worker,) = multiprocessing.active_children()
                assert worker.pid is not None and worker.pid not in killed.values()
                killed[message.name] = worker.pid
                if message.name == "base":
                    os.kill(worker.pid, signal.SIGINT)
                    worker.join(4)  # who listens to it is gone by then
                    assert worker.is_alive()
                os.kill(worker.pid, signal.SIGKILL)
            elif isinstance(message, Failed):
                failures[message.name] = message.error
    assert failures == dict.fromkeys(["base", "trim"], "its process ended (killed by signal 9: too little memory?)")
    assert multiprocessing.active_children() == []


def test_as_many_workers_as_cores_and_runs() -> None:
    assert how_many(1) == 1
    assert 1 <= how_many(100) <= 6


ORPHAN = """
import os, signal, sys
from pathlib import Path
from trimsft.study.quickstart import Settings
from trimsft.study.quickstart.steps import Place
from trimsft.study.quickstart.workers import Done, Runs
from trimsft.study.running.workers import _Worker

if __name__ == "__main__":
    worker = _Worker(Runs(Place(Path(sys.argv[1])), Settings()), {}, "base")
    assert worker.receive() == Done("base", {})
    print(worker._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    script, out = tmp_path / "orphan.py", tmp_path / "out"
    script.write_text(ORPHAN)
    for tier in Settings().tiers:  # all that the base needs is there
        (out / "base" / "eval" / tier).mkdir(parents=True)
        (out / "base" / "eval" / tier / "scores.json").touch()
    (out / "base" / "tokens.parquet").touch()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    done = subprocess.run(
        [sys.executable, str(script), str(out)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    end = time.monotonic() + 20
    while is_running(int(done.stdout)):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")
