"""Cells that take no time: what becomes of one is in the name of its model."""

import os
import signal
import sys
import time

from tests.study.launcher import LAUNCHER
from trimsft.runs import RunDirectory
from trimsft.study.cells import Cell
from trimsft.study.running.launching import launch
from trimsft.study.running.steps import CellJob, StepError
from trimsft.study.scales import ModelAt, Scale

BEHAVIOURS = ("good", "flaky", "bad", "dying", "slow")
SCALE = Scale(
    name="stub",
    models={name: ModelAt(path=name) for name in BEHAVIOURS},
    benchmarks=("toy",),
    rows=1,
    device="cpu",
)


class StubJob(CellJob):
    """A cell that is done has scores; each attempt leaves a mark."""

    def _do_missing(self, cell: Cell, tell: object) -> dict[str, float]:
        run = RunDirectory(self.place.run(cell))
        attempts = [*run.path.glob("attempt-*")]
        (run.path / f"attempt-{len(attempts)}").touch()
        if cell.model == "bad" or (cell.model == "flaky" and not attempts):
            raise StepError("learning_rate: must not be below 0, got -1")
        if cell.model == "dying":
            os.kill(os.getpid(), signal.SIGKILL)
        if cell.model == "launching":
            launch([sys.executable, "-c", LAUNCHER, str(run.path / "ranks")])
        if cell.model == "slow":
            time.sleep(600)
        finish(self, cell)
        return {"train": 0.0}


def finish(job: CellJob, cell: Cell) -> None:
    """All that a cell must have to be done."""
    run = RunDirectory(job.place.run(cell))
    run.mark_finished()
    (run.eval_dir / "toy").mkdir(parents=True, exist_ok=True)
    (run.eval_dir / "toy" / "scores.json").touch()


def cells(*models: str, seeds: int = 1) -> list[Cell]:
    return [Cell(model=model, objective="sft", seed=seed) for model in models for seed in range(seeds)]
