"""Where cells stand, by what is on disk.

for state in read_status(Path("runs/study-lab")):
    state.cell.name, state.state, state.note      # "lab/sft/seed0", "running", "training, process 42 on host since ..."
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.runs import holder_of
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running.job import STAGES, all_needs
from trimsft.study.scales import Scale


@dataclass(frozen=True)
class CellState:
    """One cell as it is now."""

    cell: Cell
    state: str  # running, failed, missing or done
    note: str  # the stage and who is at it; why it failed; what there is already of one that is missing

    def as_dict(self) -> dict[str, Any]:
        return {"cell": self.cell.name, **self.cell.as_dict(), "state": self.state, "note": self.note}


def read_status(out: Path) -> list[CellState]:
    """Every cell that was asked for in a folder, also while others work on it, on whatever machine."""
    folder = StudyFolder(out)
    scale = folder.read_scale()
    return [_look(folder, scale, cell, all_needs(scale, needs)) for cell, needs in folder.asked_for().items()]


def _look(folder: StudyFolder, scale: Scale, cell: Cell, needs: frozenset[str]) -> CellState:
    """One cell; what is done before who is at it, because a finished cell may be looked at again."""
    missing = folder.missing(cell, scale, needs)
    if not missing:
        return CellState(cell, "done", "")
    if holder := holder_of(folder.claim(cell)):
        updates = folder.updates_done(cell) if missing[0] == "train" else 0
        return CellState(cell, "running", f"{STAGES[missing[0]]}{f', update {updates}' if updates else ''}, {holder}")
    if reason := folder.read_failure(cell):
        return CellState(cell, "failed", reason)
    is_begun = missing[0] != "train" and not cell.is_base
    return CellState(cell, "missing", f"still to do: {', '.join(missing)}" if is_begun else "")
