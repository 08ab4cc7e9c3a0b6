"""`trimsft study`: settings in, outcomes out; and how cells are run, side by side.

settings = StudySettings(names=("main",), seeds=3)
for outcome in run_study(settings):
    outcome.done, outcome.failures(), outcome.files

One process at a time works in a folder; a second one is refused. Of many machines, Ray is the way.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from trimsft.errors import RunError, UsageError, one_line
from trimsft.options import option, unknown_name
from trimsft.runs import RunDirectory, holder_of
from trimsft.study.cell import Cell
from trimsft.study.folder import Job, Result, StudyFolder, check_code, check_study
from trimsft.study.pools import LocalPool
from trimsft.study.scales import Scale, ScaleOptions
from trimsft.study.studies import STUDIES, Study

POLL = 0.5  # seconds between two looks at the files of cells under way
STAGES = {"train": "training", "evaluate": "evaluating", "tokens": "measuring tokens"}


@dataclass(frozen=True)
class CellState:
    """A cell as it is now."""

    cell: Cell
    state: str  # running, failed, missing or done
    note: str = ""  # the stage and who is at it; why it failed; what is still to do

    def as_dict(self) -> dict[str, Any]:
        return {"cell": self.cell.name, **self.cell.as_dict(), "state": self.state, "note": self.note}


OnEvent = Callable[[CellState], None]


def ignore(event: CellState) -> None:
    """Do nothing with an event."""


@dataclass(frozen=True)
class Outcome:
    """Result of a run of cells, and of a study where its tables are written."""

    folder: StudyFolder
    done: dict[Cell, Path] = field(default_factory=dict)
    failed: dict[Cell, str] = field(default_factory=dict)
    seconds: dict[Cell, dict[str, float]] = field(default_factory=dict)
    """For this start: cell, step, seconds; nothing for what was there already."""
    study: str = ""
    files: list[Path] = field(default_factory=list)  # tables, figures
    table_error: str = ""

    def failures(self, label: Callable[[Cell], str] = lambda cell: cell.name) -> list[str]:
        """Return a line for each, with where to read more."""
        lines = [
            f"{label(cell)}: {reason}; see {self.folder.log(cell)}; rerun the command to try it again"
            for cell, reason in self.failed.items()
        ]
        return [*lines, f"tables of {self.study}: {self.table_error}"] if self.table_error else lines

    def as_dict(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "out": str(self.folder.out),
            "done": {cell.name: str(path) for cell, path in self.done.items()},
            "failed": {cell.name: reason for cell, reason in self.failed.items()},
            "seconds": {cell.name: steps for cell, steps in self.seconds.items()},
            "files": [str(path) for path in self.files],
        }


def run_cells(
    cells: Sequence[Cell],
    scale: Scale,
    folder: StudyFolder,
    *,
    executor: str = "local",
    workers: int | None = None,
    on_event: OnEvent = ignore,
) -> Outcome:
    """Do what is missing of each cell; raises `RunError` where the folder holds another scale, or is in use.

    Args:
        executor: "local", processes on this machine; "ray", tasks on a cluster that shares the file system.
        workers: cells side by side; by default as many as fit.
        on_event: called with every change.
    """
    outcome = Outcome(folder)
    check_code(folder, cells)
    job = Job(folder, scale)
    missing = [cell for cell in cells if job.missing(cell)]
    make_pool: Any = LocalPool
    if missing and executor == "ray":
        from trimsft.study.ray_pool import RayPool as make_pool
    # what the machines cannot do is refused before anything is written
    with make_pool(job, missing, workers) as pool, RunDirectory(folder.out).lock():
        folder.settle(scale, cells)
        for cell in (cell for cell in cells if cell not in missing):
            outcome.done[cell] = folder.run(cell)
            on_event(CellState(cell, "done", "before"))
        for cell, result in _results(missing, job, pool, on_event):
            if result.seconds:
                outcome.seconds.setdefault(cell, {}).update(result.seconds)
            if result.failure:
                with suppress(OSError, RunError):  # what keeps a cell from its folder
                    folder.note_failure(cell, result.failure)
                outcome.failed[cell] = result.failure
                on_event(CellState(cell, "failed", result.failure))
            elif not job.missing(cell):
                outcome.done[cell] = folder.run(cell)
                on_event(CellState(cell, "done"))
    return outcome


def _results(cells: Sequence[Cell], job: Job, pool: Any, on_event: OnEvent) -> Iterator[tuple[Cell, Result]]:
    """Give cells to the pool until each is done or has failed, and yield what comes back."""
    # seed by seed, after each there is a whole table; a base takes the least time, so it is last
    waiting = sorted(cells, key=lambda cell: (cell.seed, cell.is_base))
    running, stages = dict[Future[Result], Cell](), dict[Cell, str]()
    while waiting or running:
        while waiting and len(running) < pool.size:
            cell = waiting.pop(0)
            running[pool.submit(cell)] = cell
        for cell in running.values():
            if (steps := job.missing(cell)) and stages.get(cell) != steps[0]:
                stages[cell] = steps[0]
                on_event(CellState(cell, "running", STAGES[steps[0]]))
        for future in wait(running, timeout=POLL, return_when=FIRST_COMPLETED).done:
            cell, error = running.pop(future), future.exception()
            killed = f"its process was killed ({one_line(error)}): too little memory?" if error else ""
            result = Result(killed) if error else future.result()
            pool.release(future, failed=bool(result.failure))
            if not result.failure and job.missing(cell):  # its next step is for a fresh process
                waiting.insert(0, cell)
            yield cell, result


def read_status(out: Path) -> list[CellState]:
    """Return every cell that was requested in a folder, also while the study runs."""
    folder = StudyFolder(out)
    scale, states = folder.read_scale(), []
    for cell in folder.requested():
        # what is done comes first: a finished cell may be looked at again
        if not (missing := folder.missing(cell, scale)):
            states.append(CellState(cell, "done"))
        elif holder := holder_of(folder.claim(cell)):
            states.append(CellState(cell, "running", f"{STAGES[missing[0]]}, {holder}"))
        elif folder.failure(cell).exists():
            states.append(CellState(cell, "failed", folder.failure(cell).read_text(encoding="utf-8")))
        else:
            states.append(CellState(cell, "missing", ", ".join(missing)))
    return states


# ---- studies


@dataclass(frozen=True, kw_only=True)
class RunOptions(ScaleOptions):
    """A scale, and how and where its cells are run."""

    kind: ClassVar[str] = "study"
    out: Path | None = option(
        None, help="Folder for everything (default: runs/study-SCALE, or runs/sweep-SCALE); what is there is kept."
    )
    executor: str = option(
        "local", help="Where cells run: here, or on a cluster (RAY_ADDRESS).", choices=("local", "ray")
    )
    workers: int | None = option(None, help="Cells side by side (default: one on each core or group of GPUs).", least=1)

    @property
    def folder(self) -> StudyFolder:
        """Studies of one scale share a folder, and their cells."""
        return StudyFolder(self.out or Path("runs") / f"{self.kind}-{self.scale}{'-smoke' if self.smoke else ''}")

    def studies(self, scale: Scale) -> list[Study]:
        """Return what is to be run."""
        raise NotImplementedError

    def prepare(self) -> tuple[list[Study], list[Cell], Scale, StudyFolder]:
        """Return what is to be run and where, after a look at everything that is here."""
        scale = self.to_scale()
        studies = self.studies(scale)
        cells = list(dict.fromkeys(cell for study in studies for cell in study.cells(scale)))
        check_study(scale, self.folder, cells)
        return studies, cells, scale, self.folder


@dataclass(frozen=True, kw_only=True)
class StudySettings(RunOptions):
    """Settings of `trimsft study run`."""

    names: tuple[str, ...] = option(argument="NAMES", help="Studies, see trimsft study list; or all.")

    def studies(self, scale: Scale) -> list[Study]:
        wanted = list(STUDIES) if tuple(self.names) == ("all",) else dict.fromkeys(self.names)
        if unknown := next((name for name in wanted if name not in STUDIES), None):
            raise unknown_name("study", unknown, STUDIES)
        return [STUDIES[name] for name in wanted]


def run_study(settings: RunOptions, *, on_event: OnEvent = ignore) -> list[Outcome]:
    """Do what is missing of each study and write its tables."""
    if settings.gpu_kind is not None:  # a study takes the GPUs that are there
        raise UsageError("names a kind, which is for --dry-run", field="gpus", value=settings.gpus)
    studies, _, scale, folder = settings.prepare()
    how: dict[str, Any] = {"executor": settings.executor, "workers": settings.workers, "on_event": on_event}
    outcomes = []
    for study in studies:
        done = run_cells(study.cells(scale), scale, folder, **how)
        files, error = list[Path](), ""
        try:
            files = write_tables(study, folder, scale) if done.done else []
        except Exception as failure:  # the runs are worth more than their table
            error = f"{one_line(failure)}; rerun the command"
        outcomes.append(replace(done, study=study.name, files=files, table_error=error))
    return outcomes


def write_tables(study: Study, folder: StudyFolder, scale: Scale) -> list[Path]:
    """Write the tables of a study from what is finished in a folder, whoever requested it."""
    from trimsft.study.paper_tables import write_study

    scale = replace(scale, models={**scale.models, **folder.read_scale().models})
    requested = folder.requested()
    cells = [cell for run in dict.fromkeys(study.runs(scale)) for cell in requested if cell.setting == run]
    return study.write(cells, folder.out) if study.write else write_study(study, scale, cells, folder.out)
