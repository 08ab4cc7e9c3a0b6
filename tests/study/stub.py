"""Cells that take no time: what becomes of one is in the name of its model."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

from trimsft.errors import TrimSFTError
from trimsft.runs import RunDirectory, locked
from trimsft.study.cell import Cell
from trimsft.study.folder import Job, Result, StudyFolder
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


class StubJob(Job):
    """A cell that is done has scores; each attempt leaves a mark."""

    def run(self, cell: Cell) -> dict[str, float]:
        with locked(self.folder.claim(cell)):
            run = self.folder.run(cell)
            tries = [*run.glob("attempt-*")]
            (run / f"attempt-{len(tries)}").touch()
            if cell.model == "bad" or (cell.model == "flaky" and not tries):
                raise TrimSFTError("learning_rate: must not be below 0, got -1")
            if cell.model == "dying":
                os.kill(os.getpid(), signal.SIGKILL)
            if cell.model == "launching":
                with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
                    (run / "pid").write_text(str(child.pid))
                    try:
                        while child.poll() is None:
                            time.sleep(0.05)
                    except BaseException:
                        child.terminate()
                        raise
            if cell.model == "slow" and not tries:
                time.sleep(600)
            finish(self, cell)
            self.folder.failure(cell).unlink(missing_ok=True)
        return {"train": 0.0}


class InlinePool:
    """Runs each cell in this process; one that would kill its own is said to have done so."""

    size = 9

    def __init__(self, job: Job, *_: object) -> None:
        self.job = job

    def __enter__(self) -> "InlinePool":
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def submit(self, cell: Cell) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_result(Result("killed") if cell.model == "dying" else self.job.attempt(cell))
        return future

    def release(self, future: Future[Result], *, failed: bool = False) -> None:
        pass


def finish(job: Job, cell: Cell) -> None:
    """Write all that a cell must have to be done."""
    run = RunDirectory(job.folder.run(cell))
    run.mark_finished()
    job.folder.tokens(cell).touch()
    for name in job.scale.benchmark_names:
        (run.eval_dir / name).mkdir(parents=True, exist_ok=True)
        (run.eval_dir / name / "scores.json").touch()


def cells(*models: str, seeds: int = 1) -> list[Cell]:
    return [Cell(model=model, objective="sft", seed=seed) for model in models for seed in range(seeds)]


def job_of(out: Path, scale: Scale = SCALE) -> StubJob:
    return StubJob(StudyFolder(out), scale)


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
