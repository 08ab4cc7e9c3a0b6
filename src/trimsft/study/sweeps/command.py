"""What `trimsft sweep` does: settings in, an outcome out.

settings = SweepSettings(grid=("margin=0:6:1", "bandwidth=0.5,1,2"), seeds=3, select_on="lab-easy")
outcome = run_sweep(settings)
outcome.swept.best, outcome.files
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimsft.errors import RunError, UsageError
from trimsft.evaluate.metrics import metric_names
from trimsft.options import option
from trimsft.runs.parsing import read_json
from trimsft.study.cell import Cell
from trimsft.study.checks import check_at_hand, check_settings
from trimsft.study.folder import StudyFolder
from trimsft.study.plan import StudyPlan, plan_cells
from trimsft.study.run import OnEvent, Outcome, RunOptions, ignore
from trimsft.study.scales import Scale
from trimsft.study.sweeps.grid import left_out, points, read_axes
from trimsft.study.sweeps.sweep import Swept, check_choice, select, sweep_cells, swept_of
from trimsft.study.tables.summaries import load_results

NEEDS = frozenset({"scores"})


@dataclass(frozen=True, kw_only=True)
class SweepSettings(RunOptions):
    """What `trimsft sweep` is asked for."""

    grid: tuple[str, ...] = option(
        (), flags=("--grid",), help="FIELD=VALUES: 0.5,1,2 or START:STOP:STEP; repeat it for the product of several."
    )
    objective: str = option("trim", help="Objective of every point, unless the grid has several.")
    select_on: str | None = option(None, help="Benchmark to choose the best point on; the others report it.")
    metric: str = option("average", help="What decides: average, greedy, pass@K or majority@K.")
    baseline: bool = option(True, help="Train SFT beside the points, with each value of the fields it takes too.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.grid:
            hint = "name a field and its values, such as margin=0:6:1"
            raise UsageError("there is none", field="grid", hint=hint)
        if len(self.models) > 1:
            raise UsageError("a sweep takes one", field="models", value=" and ".join(self.models), hint="sweep twice")


@dataclass(frozen=True)
class SweepOutcome:
    """What a sweep came to."""

    cells: Outcome
    swept: Swept | None  # None where no point is finished
    files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # which values make no further runs

    def failures(self) -> list[str]:
        """Each in one line, with where to read more."""
        return self.cells.failures()

    def as_dict(self) -> dict[str, Any]:
        """sweep.json, and what failed."""
        path = self.cells.folder.out / "sweep.json"
        content = read_json(path, dict[str, Any]) if self.swept is not None else {}
        return content | {"failed": {cell.name: reason for cell, reason in self.cells.failed.items()}}


def run_sweep(settings: SweepSettings, *, on_event: OnEvent = ignore, command: str = "") -> SweepOutcome:
    """Do what is missing, then choose and write; what cannot be is refused before anything is run.

    Args:
        on_event: called with every change of a cell.
        command: the command line, for sweep.json and the page.
    """
    from trimsft.study.sweeps.writing import write_sweep

    settings.refuse_gpu_kind()
    grid, cells, scale, folder = _plan(settings)
    check_at_hand(scale)
    done = settings.run(cells, scale, folder, NEEDS, on_event)
    try:
        swept = swept_of(load_results(cells, folder.out), cells, settings.metric, keep=grid)
    except RunError:
        return SweepOutcome(done, None)  # everything failed: the reasons say more
    if settings.select_on is not None:
        swept = select(swept, settings.select_on)
    notes = left_out(read_axes(settings.grid), settings.objective)
    return SweepOutcome(done, swept, write_sweep(swept, folder.out, notes=notes, command=command), notes)


def plan_sweep(settings: SweepSettings) -> StudyPlan:
    """Plan what is missing of a sweep; nothing is written."""
    _, cells, scale, folder = _plan(settings)
    return plan_cells(cells, scale, folder, NEEDS, settings.gpu_kind)


def _plan(settings: SweepSettings) -> tuple[list[Cell], list[Cell], Scale, StudyFolder]:
    """Read the grid and make its cells, after a look at everything that asks nobody."""
    scale, folder = settings.to_scale(), settings.folder("sweep")
    grid = points(read_axes(settings.grid), scale.focus_model, settings.objective)
    known = set(metric_names(scale.samples, greedy=True)) - {"no_answer", "truncated", "tokens"}
    if settings.metric not in known:
        raise UsageError(
            f"there is none of this name with {scale.samples} samples",
            field="metric",
            value=settings.metric,
            hint=f"known: average, greedy, pass@1 to pass@{scale.samples}, majority@1 to majority@{scale.samples}",
        )
    if settings.select_on is not None:
        check_choice(settings.select_on, StudyFolder.names_of(scale))
    check_settings(scale, folder)
    return grid, sweep_cells(grid, scale.seeds, baseline=settings.baseline), scale, folder
