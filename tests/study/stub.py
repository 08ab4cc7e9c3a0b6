"""Cells that take no time: what becomes of one is in the name of its model, or of its objective."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trimsft.runs import RunDirectory
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running.job import CellJob, StepError, tell_nobody
from trimsft.study.running.launch import launch
from trimsft.study.running.workers import Failed, Message, Task, attempt
from trimsft.study.scales import ModelAt, Scale

BEHAVIOURS = ("good", "flaky", "bad", "dying", "slow", "launching")
SCALE = Scale(
    name="stub",
    models={name: ModelAt(path=name) for name in BEHAVIOURS},
    benchmarks=("toy",),
    rows=1,
    defaults={"per_device_train_batch_size": 1, "num_train_epochs": 1},
    device="cpu",
)
KILLED = "its process ended (killed by signal 9: too little memory?)"
SCORES = frozenset({"scores"})
LAUNCHER = """
import os, signal, subprocess, sys, time

def end(*signal):
    time.sleep(0.3)
    rank.terminate()
    rank.wait()
    sys.exit()

signal.signal(signal.SIGTERM, end)
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{os.getpid()} {rank.pid}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
while True:
    signal.pause()
"""
"""As torchrun does: ranks with sessions of their own, which it ends when it is asked to end. Run by
`python -c LAUNCHER FILE`, it writes its own number and that of its rank to the file."""


class StubJob(CellJob):
    """A cell that is done has scores; each attempt leaves a mark."""

    def _timed(self, cell: Cell, step: str, tell: object) -> float:
        run = RunDirectory(self.folder.run(cell))
        attempts = [*run.path.glob("attempt-*")]
        (run.path / f"attempt-{len(attempts)}").touch()
        if cell.model == "bad" or (cell.model == "flaky" and not attempts):
            raise StepError("learning_rate: must not be below 0, got -1")
        if cell.model == "dying":
            os.kill(os.getpid(), signal.SIGKILL)
        if cell.model == "launching":
            launch([sys.executable, "-c", LAUNCHER, str(run.path / "ranks")])
        if cell.model == "slow" and not attempts:
            time.sleep(600)
        finish(self, cell)
        return 0.0

    def missing(self, cell: Cell) -> list[str]:
        return super().missing(cell)[:1]  # one mark is enough


class InlineCrew:
    """A crew without processes; a cell that would kill its own is said to have done so."""

    cores = 0

    def __init__(self, job: CellJob) -> None:
        self._job = job

    def __enter__(self) -> "InlineCrew":
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def work(self, waiting: list[Task]) -> Iterator[Message | None]:
        while waiting:
            task = waiting.pop(0)
            cell = self._job.cells[task.name]
            if cell.model == "dying":
                folder = self._job.folder.run(cell)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"attempt-{len([*folder.glob('attempt-*')])}").touch()
                yield Failed(task, KILLED, was_killed=True)
            else:
                yield attempt(self._job, task, tell_nobody)


def finish(job: CellJob, cell: Cell) -> None:
    """All that a cell must have to be done."""
    run = RunDirectory(job.folder.run(cell))
    run.mark_finished()
    for name in job.folder.names_of(job.scale):
        (run.eval_dir / name).mkdir(parents=True, exist_ok=True)
        (run.eval_dir / name / "scores.json").touch()


def cells(*models: str, seeds: int = 1) -> list[Cell]:
    return [Cell(model=model, objective="sft", seed=seed) for model in models for seed in range(seeds)]


def job_of(out: Path, *wanted: Cell, scale: Scale = SCALE, needs: frozenset[str] = SCORES) -> StubJob:
    return StubJob(StudyFolder(out), scale, needs, {cell.name: cell for cell in wanted})


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < end
        time.sleep(0.05)
