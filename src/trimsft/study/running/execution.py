"""Running the cells of a study: those that are missing, side by side, each until it is done or has failed too often.

outcome = run_cells(study.cells(scale), scale, StudyFolder(Path("runs/study-lab")), needs=study.needs)
outcome.done[cell], outcome.failed            # run directories; why

Whoever runs the same study in the same folder, on this machine or on another one, takes other cells. At the end each
waits for those that others have taken, and takes over what a dead one has left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import RunError
from trimsft.options import unknown_name
from trimsft.runs import holder_of
from trimsft.study.cells import PARAMETERS, Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running.checks import (
    refuse_absent_engine,
    refuse_changed_objectives,
    refuse_lost_weights,
    with_attention,
)
from trimsft.study.running.job import CellJob, all_needs
from trimsft.study.running.training import updates_of
from trimsft.study.running.workers import Busy, Done, Failed, Message, Task, Team, Told
from trimsft.study.scales import Scale

if TYPE_CHECKING:
    from trimsft.study.running.ray import RayCrew

EXECUTORS = ("local", "ray")
ROUNDS = 2  # trainings a core, the last ones of a study, that go before evaluations: no core then waits for another
POLL = 5.0  # seconds between two looks at cells that others work on
logger = logging.getLogger("trimsft")


@dataclass(frozen=True)
class Event:
    """A change in the state of a cell."""

    cell: Cell
    state: str  # waiting, running, elsewhere, retrying, done, failed
    note: str = ""  # the stage, who has it, or why it failed
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a run of cells came to."""

    folder: StudyFolder
    done: dict[Cell, Path] = field(default_factory=dict)
    failed: dict[Cell, str] = field(default_factory=dict)
    seconds: dict[Cell, dict[str, float]] = field(default_factory=dict)
    """For this start: cell, step, seconds; nothing for what was there already or was done elsewhere."""

    def failures(self, label: Callable[[Cell], str] = lambda cell: cell.name) -> list[str]:
        """Each in one line, with where to read more."""
        return [
            f"{label(cell)}: {reason}; see {self.folder.log(cell)}; rerun the command to try it again"
            for cell, reason in self.failed.items()
        ]


OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    pass


def run_cells(
    cells: Sequence[Cell],
    scale: Scale,
    folder: StudyFolder,
    *,
    needs: frozenset[str] = frozenset({"scores"}),
    executor: str = "local",
    workers: int | None = None,
    retries: int = 1,
    on_event: OnEvent = ignore,
) -> Outcome:
    """Do what is missing of each cell, in the order given; raises `RunError` where the folder holds another scale.

    Args:
        needs: of "scores" and "tokens".
        executor: "local", processes on this machine; "ray", tasks on a cluster that shares the file system.
        workers: cells side by side; by default as many as fit.
        retries: how often a failed cell is tried again.
        on_event: called with every change.
    """
    needs, cells = all_needs(scale, needs), in_order(cells)
    for cell in cells:
        scale.at(cell.model)
    if executor == "ray":  # tasks of a cluster have a folder of their own
        folder = replace(folder, out=folder.out.absolute())
    scale = with_attention(scale, folder)
    job = CellJob(folder, scale, needs, {cell.name: cell for cell in cells})
    refuse_lost_weights(job)
    refuse_changed_objectives(job)
    if executor == "local":
        refuse_absent_engine(job)
    missing = sum(bool(job.missing(cell)) for cell in cells)
    campaign = _Campaign(job, retries, on_event)
    # both refuse what is not there, before anything is written
    crew = make_crew(job, executor, workers, missing) if missing else None
    with crew or nullcontext():
        folder.settle(scale)
        folder.remember(cells, needs)
        waiting = campaign.begin()
        if crew is not None:
            campaign.work(crew, campaign.trained_first(waiting, ROUNDS * crew.cores if scale.keep_weights else 0))
    return campaign.outcome


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Each once; bases first, then seed by seed: after each seed there is a whole table."""
    return sorted(dict.fromkeys(cells), key=lambda cell: (not cell.is_base, cell.seed))


def make_crew(job: CellJob, executor: str, workers: int | None, cells: int) -> Team | RayCrew:
    """Who does the work: processes here, or tasks of a cluster."""
    if executor == "ray":
        from trimsft.study.running.ray import RayCrew

        return RayCrew(job, workers)
    if executor != "local":
        raise unknown_name("executor", executor, EXECUTORS)
    from trimsft.study.running.slots import make_slots

    return Team(job, make_slots(job, workers, cells))


class _Campaign:
    """The cells of one call: which are done, which have failed how often, which are somebody else's."""

    def __init__(self, job: CellJob, retries: int, on_event: OnEvent) -> None:
        self._job, self._retries, self._on_event = job, retries, on_event
        self._attempts: dict[str, int] = {}
        self._elsewhere: set[Task] = set()
        self._training: dict[Task, int] = {}
        self._at_once: dict[tuple[Any, str], set[Cell]] = {}
        self.outcome = Outcome(job.folder)

    def begin(self) -> list[Task]:
        """The cells that are not done, after having told of those that are."""
        waiting = []
        for name, cell in self._job.cells.items():
            if self._job.missing(cell):
                waiting.append(Task(name))
                self._tell(cell, "waiting")
            else:
                self._settle(cell, "before")
        return waiting

    def trained_first(self, waiting: list[Task], most: int) -> list[Task]:
        """The same cells; of those at the end whose trainings are missing, at most so many, the training is first."""
        untrained = [task for task in waiting if not self._job.folder.is_trained(self._cell(task))]
        late = {*untrained[max(0, len(untrained) - most) :]}
        return [task._replace(only_training=task in late) for task in waiting]

    def work(self, crew: Team | RayCrew, waiting: list[Task]) -> None:
        while waiting:
            for message in crew.work(waiting):
                self._follow_training()
                if message is not None:
                    self._take(message, waiting)
            while self._elsewhere and not waiting:
                waiting += self._come_back()
                if self._elsewhere and not waiting:
                    time.sleep(POLL)

    def _take(self, message: Message, waiting: list[Task]) -> None:
        cell = self._cell(message.task)
        self._training.pop(message.task, None)
        match message:
            case Told(stage="training"):
                self._training[message.task] = -1
            case Told():
                self._tell(cell, "running", message.stage, message.done, message.total)
            case Done():
                if message.seconds:
                    self.outcome.seconds.setdefault(cell, {}).update(message.seconds)
                if message.task.only_training and self._job.missing(cell):
                    waiting.append(Task(cell.name))
                    self._tell(cell, "waiting", "trained")
                else:
                    self._settle(cell)
            case Busy():
                self._elsewhere.add(message.task)
                self._tell(cell, "elsewhere", message.holder)
            case Failed():
                self._fail(cell, message, waiting)
        self._follow_training()

    def _fail(self, cell: Cell, message: Failed, waiting: list[Task]) -> None:
        with suppress(OSError, RunError):  # what keeps a cell from its folder keeps this note from it, too
            self._job.folder.note_failure(cell, message.error)
        self._attempts[cell.name] = self._attempts.get(cell.name, 0) + 1
        if self._is_hopeless(cell, message):
            self._give_up(cell, message.error, waiting)
        elif self._attempts[cell.name] <= self._retries:
            waiting.append(Task(cell.name))
            self._tell(cell, "retrying", message.error)
        else:
            self.outcome.failed[cell] = message.error
            self._tell(cell, "failed", message.error)

    def _is_hopeless(self, cell: Cell, message: Failed) -> bool:
        """Whether two trainings that differ in their objective alone have failed alike before their first update."""
        if cell.is_base or message.was_killed or self._job.folder.updates_done(cell):
            return False
        alike = self._at_once.setdefault((_setup(cell), message.error), set())
        alike.add(cell)
        return len(alike) > 1

    def _give_up(self, cell: Cell, error: str, waiting: list[Task]) -> None:
        """Those that have failed so are not tried again, and those that would are not tried at all."""
        failed = self._at_once[_setup(cell), error]
        for one in failed - self.outcome.failed.keys():
            self.outcome.failed[one] = error
            self._tell(one, "failed", error)
        like = [task for task in waiting if _setup(self._cell(task)) == _setup(cell)]
        left = {task: self._cell(task) for task in like if not self._job.folder.is_trained(self._cell(task))}
        waiting[:] = [task for task in waiting if task not in left]
        if untried := len({*left.values()} - failed):
            logger.warning("%s: %d more trainings would fail alike and stay missing", cell.model, untried)

    def _come_back(self) -> list[Task]:
        """What others have finished is done; what they have left undone is for us."""
        free = []
        for task in sorted(self._elsewhere):
            cell = self._cell(task)
            if not self._job.missing(cell):
                self._elsewhere.remove(task)
                self._settle(cell, "elsewhere")
            elif holder_of(self._job.folder.claim(cell)) is None:
                self._elsewhere.remove(task)
                free.append(task)
        return free

    def _follow_training(self) -> None:
        for task, before in self._training.items():
            cell = self._cell(task)
            now = self._job.folder.updates_done(cell)
            if now != before:
                self._training[task] = now
                total = updates_of(self._job.scale, cell)  # its last line sums up
                self._tell(cell, "running", "training", min(now, total or now), total)

    def _cell(self, task: Task) -> Cell:
        return self._job.cells[task.name]

    def _settle(self, cell: Cell, note: str = "") -> None:
        self.outcome.done[cell] = self._job.folder.run(cell)
        self.outcome.failed.pop(cell, None)  # given up while its second attempt was under way
        self._tell(cell, "done", note)

    def _tell(self, cell: Cell, state: str, note: str = "", done: int = 0, total: int = 0) -> None:
        self._on_event(Event(cell, state, note, done, total))


def _setup(cell: Cell) -> tuple[Any, ...]:
    """What decides whether a training can begin: all but the objective and the seed."""
    return cell.model, *(field for field in cell.fields if field[0] not in PARAMETERS)
