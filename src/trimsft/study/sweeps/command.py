"""What `trimsft sweep` does, but for reading options.

plan = plan_sweep(["margin=0:6:1", "bandwidth=0.5,1,2"], scale, seeds=3)
outcome = run_sweep(plan, scale, Path("runs/sweep"), Console(stderr=True), select_on="lab-easy")
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import RunError
from trimsft.evaluate.problem_files import benchmark_name
from trimsft.scoring.metrics import metric_names
from trimsft.study.cells import Cell
from trimsft.study.command import Running
from trimsft.study.running.checks import check_at_hand, check_settings
from trimsft.study.running.execution import Outcome, run_cells
from trimsft.study.scales import Scale
from trimsft.study.sweeps.grid import Point, left_out, points, read_axes
from trimsft.study.sweeps.sweep import Selection, Swept, read_sweep, select, sweep_cells

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Plan:
    """What a sweep is made of."""

    points: tuple[Point, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]
    """Which values make no further runs."""


@dataclass(frozen=True)
class SweepOutcome:
    """What a sweep came to."""

    out: Path
    cells: Outcome
    swept: Swept | None
    """None where no point is finished."""
    selection: Selection | None = None
    files: list[Path] = field(default_factory=list)

    def failures(self) -> list[str]:
        return self.cells.failures(self.out)


def plan_sweep(
    grids: Sequence[str], scale: Scale, *, objective: str = "trim", seeds: int = 1, baseline: bool = True
) -> Plan:
    """Read the grid and make its cells; raises `ValueError` for what cannot be trained."""
    if not grids:
        raise ValueError("--grid: there is none; name a field and its values, such as --grid margin=0:6:1")
    axes = read_axes(grids)
    found = points(axes, objective)
    return Plan(
        tuple(found),
        tuple(sweep_cells(found, scale.focus_model, seeds, baseline=baseline)),
        tuple(left_out(axes, objective)),
    )


def check_one_model(models: Sequence[str]) -> None:
    if len(models) > 1:
        raise ValueError(f"--model: a sweep takes one, got {' and '.join(models)}; sweep once for each")


def check_choice(scale: Scale, metric: str, select_on: str | None) -> None:
    """Refuse a metric or a development benchmark that there will not be, before anything is run."""
    known = [
        name for name in metric_names(scale.samples, greedy=True) if name not in ("no_answer", "truncated", "tokens")
    ]
    if metric not in known:
        raise ValueError(
            f"--metric: no {metric!r} with {scale.samples} samples; known: average, greedy, pass@1 to "
            f"pass@{scale.samples}, majority@1 to majority@{scale.samples}"
        )
    names = [benchmark_name(name) for name in scale.benchmarks]
    if select_on is not None and select_on not in names:
        near = difflib.get_close_matches(select_on, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"--select-on: {select_on!r} is no benchmark of this sweep; {hint}it has {', '.join(names)}")
    if select_on is not None and len(names) < 2:
        raise ValueError(f"--select-on: {select_on!r} is the only benchmark; another one is needed to report on")


def run_sweep(
    plan: Plan,
    scale: Scale,
    out: Path,
    console: Console,
    *,
    metric: str = "average",
    select_on: str | None = None,
    running: Running | None = None,
    command: str = "",
) -> SweepOutcome:
    """Do what is missing, then choose and write; raises `RunError` or `ValueError` before anything is run."""
    from trimsft.study.running.progress import Progress
    from trimsft.study.sweeps.files import write_sweep

    check_choice(scale, metric, select_on)
    check_settings(scale, out)
    check_at_hand(scale)
    how = running or Running()
    with Progress(console) as progress:
        done = run_cells(
            plan.cells,
            scale,
            out,
            executor=how.executor,
            workers=how.workers,
            retries=how.retries,
            on_event=progress,
        )
    try:
        swept = read_sweep(plan.cells, out, metric, keep=plan.points)
    except RunError:
        return SweepOutcome(out, done, None)  # everything failed: the reasons say more
    selection = None if select_on is None else select(swept, select_on)
    files = write_sweep(swept, out, selection=selection, notes=plan.notes, command=command)
    return SweepOutcome(out, done, swept, selection, files)


def show_sweep(outcome: SweepOutcome, notes: Sequence[str], console: Console) -> None:
    """The table, what it says, where the rest is."""
    from trimsft.report.tables.formats import to_rich
    from trimsft.study.sweeps.tables import conclusions, sweep_table

    if outcome.swept is None:
        return
    console.print(to_rich(sweep_table(outcome.swept, outcome.selection, brief=True)))
    for sentence in (*conclusions(outcome.swept, outcome.selection), *notes):
        console.print(sentence, markup=False)
    for path in outcome.files:
        if path.suffix in (".html", ".md", ".png"):
            console.print(f"  {path}", soft_wrap=True, markup=False)


def as_json(outcome: SweepOutcome) -> dict[str, Any]:
    """sweep.json, and what failed."""
    import json

    path = outcome.out / "sweep.json"
    content = json.loads(path.read_bytes()) if outcome.swept is not None else {}
    return content | {"failed": {cell.name: reason for cell, reason in outcome.cells.failed.items()}}
