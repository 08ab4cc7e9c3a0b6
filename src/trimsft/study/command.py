"""What `trimsft study` does: settings in, outcomes out.

settings = StudySettings(names=("main",), seeds=3)
plan_study(settings).hours                              # before anything is run
for outcome in run_study(settings):
    outcome.cells.done, outcome.failures(), outcome.files
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError, one_line
from trimsft.options import option
from trimsft.study.cells import Cell, check_objectives
from trimsft.study.folder import StudyFolder
from trimsft.study.running.checks import check_at_hand, check_settings
from trimsft.study.running.execution import EXECUTORS, OnEvent, Outcome, ignore, run_cells
from trimsft.study.running.planning import StudyPlan, join_plans, plan_cells
from trimsft.study.scales import Scale, ScaleOptions
from trimsft.study.studies import WEIGHED, Study, belonging, find_studies, left_out_models, objectives_study


@dataclass(frozen=True, kw_only=True)
class RunOptions(ScaleOptions):
    """A scale, and how and where its cells are run."""

    out: Path | None = option(
        None, help="Folder for everything (default: runs/study-SCALE, or runs/sweep-SCALE); what is there is kept."
    )
    executor: str = option("local", help="Where cells run: here, or on a cluster (RAY_ADDRESS).", choices=EXECUTORS)
    workers: int | None = option(None, help="Cells side by side (default: as many as fit).", least=1)
    retries: int = option(1, help="How often a cell that fails is tried again.", least=0)

    def folder(self, kind: str) -> StudyFolder:
        """Studies of one scale share a folder, and their cells."""
        return StudyFolder(self.out or Path("runs") / f"{kind}-{self.scale}{'-smoke' if self.smoke else ''}")

    def refuse_gpu_kind(self) -> None:
        """A kind of GPUs is for a plan; a study takes those that are there."""
        if self.gpu_kind is not None:
            raise UsageError("names a kind, which is for --dry-run", field="gpus", value=self.gpus)

    def run(
        self, cells: Sequence[Cell], scale: Scale, folder: StudyFolder, needs: frozenset[str], on_event: OnEvent
    ) -> Outcome:
        """Do what is missing of the cells, here or on a cluster."""
        return run_cells(
            cells,
            scale,
            folder,
            needs=needs,
            executor=self.executor,
            workers=self.workers,
            retries=self.retries,
            on_event=on_event,
        )


@dataclass(frozen=True, kw_only=True)
class StudySettings(RunOptions):
    """What `trimsft study run` is asked for."""

    names: tuple[str, ...] = option(argument="NAMES", help="Studies, see trimsft study list; or all.")
    objectives: tuple[str, ...] = option(
        (),
        flags=("--objective",),
        metavar="NAME",
        help="Of the study 'objectives': what it compares, by name or as my_module:MyObjective; repeat it for several.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objectives:
            if not any(study.is_open for study in find_studies(self.names)):
                hint = "it is for trimsft study run objectives"
                raise UsageError("has no effect here", field="objectives", value=self.objectives[0], hint=hint)
            check_objectives(self.objectives, field="objectives")

    def studies(self) -> list[Study]:
        own = objectives_study(self.objectives or WEIGHED)
        return [own if study.is_open else study for study in find_studies(self.names)]


@dataclass(frozen=True)
class StudyOutcome:
    """What a study came to."""

    study: str
    cells: Outcome
    files: list[Path] = field(default_factory=list)  # tables, figures, report
    table_error: str = ""

    def failures(self) -> list[str]:
        """Each in one line, with where to read more."""
        lines = self.cells.failures()
        return [*lines, f"tables of {self.study}: {self.table_error}"] if self.table_error else lines

    def as_dict(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "out": str(self.cells.folder.out),
            "done": {cell.name: str(path) for cell, path in self.cells.done.items()},
            "failed": {cell.name: reason for cell, reason in self.cells.failed.items()},
            "seconds": {cell.name: steps for cell, steps in self.cells.seconds.items()},
            "files": [str(path) for path in self.files],
        }


def run_study(settings: StudySettings, *, on_event: OnEvent = ignore) -> list[StudyOutcome]:
    """Do what is missing of each study and write its tables; what cannot be is refused before anything is run.

    Args:
        on_event: called with every change of a cell.
    """
    settings.refuse_gpu_kind()
    studies, scale, folder = settings.studies(), settings.to_scale(), settings.folder("study")
    check_settings(scale, folder, [cell for study in studies if study.is_open for cell in study.runs(scale)])
    check_at_hand(scale)
    outcomes = []
    for study in studies:
        outcome = settings.run(study.cells(scale), scale, folder, study.needs, on_event)
        files, error = list[Path](), ""
        try:
            if outcome.done:
                files = rebuild_tables(study.name, folder.out, focus=scale.focus_model, load=settings.objectives)
        except Exception as failure:  # the runs are worth more than their table, which can be made again
            error = f"{one_line(failure)}; trimsft study table {study.name} {folder.out}"
        outcomes.append(StudyOutcome(study.name, outcome, files, error))
    return outcomes


def plan_study(settings: StudySettings) -> StudyPlan:
    """Plan the studies together, cells that they share once; nothing is written."""
    studies, scale, folder = settings.studies(), settings.to_scale(), settings.folder("study")
    check_settings(scale, folder, [cell for study in studies if study.is_open for cell in study.runs(scale)])
    needs: dict[Cell, frozenset[str]] = {}
    for study in studies:
        for cell in study.cells(scale):
            needs[cell] = needs.get(cell, frozenset()) | study.needs
    by_kind = {kind: [cell for cell in needs if needs[cell] == kind] for kind in needs.values()}
    return join_plans(plan_cells(cells, scale, folder, kind, settings.gpu_kind) for kind, cells in by_kind.items())


def study_notes(settings: StudySettings) -> list[str]:
    """For studies that do not take every model of the scale, a sentence that says which they take."""
    return left_out_models(settings.studies(), settings.to_scale())


def rebuild_tables(name: str, out: Path, *, focus: str = "", load: Collection[str] = ()) -> list[Path]:
    """The tables of a study from what is finished in a folder, whoever asked for it and when.

    Args:
        focus: the model of a study that takes one only; by default the folder's first.
        load: objectives of one's own whose code may be loaded, since the user has named them.
    """
    from trimsft.study.tables.writing import write_study

    (study,), folder = find_studies([name]), StudyFolder(out)
    scale = folder.read_scale()
    scale = replace(scale, focus=focus or scale.focus)
    return write_study(study, scale, belonging(folder.asked_for(), [study], scale), out, load=load)


def describe_study(name: str, options: ScaleOptions) -> dict[str, Any]:
    """One study at one scale, for people and programs."""
    (study,), scale = find_studies([name]), options.to_scale()
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
