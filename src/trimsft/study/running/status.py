"""Where the cells of a study stand, by what is on disk: right while others work on it, on whatever machine.

for state in read_status(Path("runs/study-lab")):
    state.cell.name, state.state, state.note      # "lab/sft/seed0", "running", "training, process 42 on host since ..."
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.study.cells import Cell
from trimsft.study.places import Place
from trimsft.study.running.execution import all_needs, updates_done
from trimsft.study.running.locks import who_holds
from trimsft.study.running.steps import STAGES, CellJob
from trimsft.study.scales import Scale

if TYPE_CHECKING:
    from rich.table import Table

STATES = ("running", "failed", "missing", "done")


@dataclass(frozen=True)
class CellState:
    """One cell as it is now."""

    cell: Cell
    state: str
    """running, failed, missing or done."""
    note: str
    """The stage and who is at it; why it failed; what there is already of one that is missing."""

    def as_dict(self) -> dict[str, Any]:
        return {"cell": self.cell.name, **self.cell.as_dict(), "state": self.state, "note": self.note}


def read_status(out: Path) -> list[CellState]:
    """Every cell that was asked for in this folder; raises `RunError` where it holds no study."""
    place = Place(out)
    scale = place.read_scale()
    return [look(place, scale, cell, all_needs(scale, needs)) for cell, needs in place.asked_for().items()]


def look(place: Place, scale: Scale, cell: Cell, needs: frozenset[str]) -> CellState:
    """One cell; what is done before who is at it, because a finished cell may be looked at again."""
    job = CellJob(place, scale, needs, {cell.name: cell})
    missing = job.missing(cell)
    if not missing:
        return CellState(cell, "done", "")
    holder = who_holds(place.claim(cell))
    if holder is not None:
        return CellState(cell, "running", f"{_stage(place, cell, missing[0])}, {holder}")
    if reason := place.read_failure(cell):
        return CellState(cell, "failed", reason)
    begun = missing[0] != "train" and not cell.is_base
    return CellState(cell, "missing", f"still to do: {', '.join(missing)}" if begun else "")


def _stage(place: Place, cell: Cell, step: str) -> str:
    if step == "train" and (updates := updates_done(place, cell)):
        return f"training, update {updates}"
    return STAGES[step]


def status_table(states: Sequence[CellState]) -> Table:
    """For the terminal: what needs looking at first."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, caption=summary(states), caption_justify="left")
    table.add_column("cell", overflow="fold", min_width=20)  # names differ at their ends
    table.add_column("state", no_wrap=True)
    table.add_column("")
    styles = {"running": "cyan", "failed": "red", "missing": "dim", "done": "green"}
    for state in sorted(states, key=lambda state: STATES.index(state.state)):
        table.add_row(Text(state.cell.name), Text(state.state, style=styles[state.state]), Text(state.note))
    return table


def summary(states: Sequence[CellState]) -> str:
    counts = Counter(state.state for state in states)
    parts = [f"{counts[name]} {name}" for name in ("running", "failed", "missing") if counts[name]]
    return ", ".join([f"{counts['done']} of {len(states)} done", *parts])
