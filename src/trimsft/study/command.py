"""What `trimsft study list | show | run | status | table` do, but for reading options.

outcome = run_study(find_study("main"), scale, Path("runs/study-lab"), Console(stderr=True))
outcome.failures, outcome.files
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import RunError, one_line
from trimsft.study.cells import Cell
from trimsft.study.places import Place
from trimsft.study.running.checks import check_at_hand, check_settings
from trimsft.study.running.cost import Cost, cost_table, estimate_cost, size_text, sum_costs
from trimsft.study.running.execution import Outcome, run_cells
from trimsft.study.scales import Scale
from trimsft.study.studies import STUDIES, Study, belonging, find_study

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

REFUSALS = (RunError, ValueError, ImportError)
"""What is wrong with a request, said in one line; ImportError is a package that is not installed."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """How cells are run."""

    executor: str = "local"
    workers: int | None = None
    retries: int = 1


@dataclass(frozen=True)
class StudyOutcome:
    """What a study came to."""

    study: str
    out: Path
    cells: Outcome
    files: list[Path] = field(default_factory=list)
    """Tables, figures, report."""
    table_error: str = ""

    @property
    def has_failed(self) -> bool:
        return bool(self.cells.failed or self.table_error)

    def failures(self) -> list[str]:
        """Each in one line, with where to read more."""
        lines = self.cells.failures(self.out)
        return [*lines, f"tables of {self.study}: {self.table_error}"] if self.table_error else lines

    def as_dict(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "out": str(self.out),
            "done": {cell.name: str(path) for cell, path in self.cells.done.items()},
            "failed": {cell.name: reason for cell, reason in self.cells.failed.items()},
            "seconds": {cell.name: steps for cell, steps in self.cells.seconds.items()},
            "files": [str(path) for path in self.files],
        }


def default_folder(scale: Scale, *, smoke: bool = False) -> Path:
    """Studies of one scale share it, and their cells."""
    return Path("runs") / f"study-{scale.name}{'-smoke' if smoke else ''}"


def run_study(
    study: Study, scale: Scale, out: Path, console: Console, *, running: Running | None = None
) -> StudyOutcome:
    """Do what is missing of a study and write its tables; raises one of `REFUSALS` before anything is run."""
    from trimsft.study.running.progress import Progress

    how = running or Running()
    cells = study.cells(scale)
    check_settings(scale, out)
    check_at_hand(scale)
    with Progress(console) as progress:
        outcome = run_cells(
            cells,
            scale,
            out,
            executor=how.executor,
            workers=how.workers,
            retries=how.retries,
            on_event=progress,
            needs=study.needs,
        )
    files, error = _try_tables(study, scale, out) if outcome.done else ([], "")
    return StudyOutcome(study.name, out, outcome, files, error)


def find_studies(names: Sequence[str]) -> list[Study]:
    """Each once; "all" is all of them."""
    wanted = list(STUDIES) if list(names) == ["all"] else names
    return list({name: find_study(name) for name in wanted}.values())


def dry_run(studies: Sequence[Study], scale: Scale, out: Path) -> Cost:
    """What they would take together, cells that they share once; nothing is written."""
    check_settings(scale, out)
    needs: dict[Cell, frozenset[str]] = {}
    for study in studies:
        for cell in study.cells(scale):
            needs[cell] = needs.get(cell, frozenset()) | study.needs
    return sum_costs(
        estimate_cost([cell for cell in needs if needs[cell] == kind], scale, out, kind)
        for kind in dict.fromkeys(needs.values())
    )


def show_cost(cost: Cost, scale: Scale, console: Console) -> None:
    console.print(cost_table(cost, scale))
    if not cost.cells:
        return
    kept = "kept" if scale.keep_weights else "deleted once a cell is evaluated (--keep-weights keeps them)"
    console.print(
        f"Weights are {kept}. A cell at work takes up to {size_text(cost.total.peak_bytes)} of disk, each of those "
        "that go side by side.",
        soft_wrap=True,
    )
    for text in cost.assumptions:
        console.print(f"- {text}", soft_wrap=True, markup=False)


def rebuild_tables(name: str, out: Path, *, focus: str = "") -> list[Path]:
    """The tables of a study from what is finished in a folder, whoever asked for it and when.

    `focus`: the model of a study that takes one only; by default the folder's first.
    """
    from trimsft.study.tables.writing import write_study

    study, place = find_study(name), Place(out)
    scale = place.read_scale()
    scale = replace(scale, focus=focus or scale.focus)
    return write_study(study, scale, belonging(place.asked_for(), [study], scale), out)


def _try_tables(study: Study, scale: Scale, out: Path) -> tuple[list[Path], str]:
    try:
        return rebuild_tables(study.name, out, focus=scale.focus_model), ""
    except Exception as error:  # the runs are worth more than their table, which can be made again
        return [], f"{one_line(error)}; trimsft study table {study.name} {out}"


def show_outcome(outcome: StudyOutcome, console: Console) -> None:
    """Where everything is."""
    count = len(outcome.cells.done)
    console.print(f"{count} cell{' is' if count == 1 else 's are'} done: {outcome.out}", soft_wrap=True)
    for path in outcome.files:
        console.print(f"  {path}", soft_wrap=True)


def list_table() -> Table:
    """Every study, and which of the paper's tables and figures it makes again."""
    from rich import box
    from rich.table import Table

    table = Table("study", "", "in the paper", box=box.SIMPLE_HEAD)
    for study in STUDIES.values():
        table.add_row(study.name, study.title, ", ".join(study.paper))
    return table


def describe(study: Study, scale: Scale) -> dict[str, Any]:
    """One study at one scale, for people and programs."""
    return {
        "study": study.name,
        "title": study.title,
        "paper": list(study.paper),
        "needs": sorted(study.needs),
        "scale": scale.name,
        "models": {name: at.path or at.recipe for name, at in scale.models.items()},
        "benchmarks": list(scale.benchmarks),
        "cells": [cell.name for cell in study.cells(scale)],
    }
