"""Running the cells of a study: those that are missing, side by side, each until it is done or has failed too often.

outcome = run_cells(study.cells(scale), scale, Path("runs/study-lab"), needs=study.needs)
outcome.done[cell], outcome.failed            # run directories; why

Whoever runs the same study in the same folder, on this machine or on another one, takes other cells. At the end each
waits for those that others have taken, and takes over what a dead one has left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from trimsft.errors import RunError
from trimsft.study.cells import PARAMETERS, Cell
from trimsft.study.places import Place
from trimsft.study.running.checks import refuse_lost_weights, with_attention
from trimsft.study.running.locks import who_holds
from trimsft.study.running.steps import CellJob
from trimsft.study.running.workers import Busy, Done, Failed, Message, Team, Told
from trimsft.study.scales import Scale

EXECUTORS = ("local", "ray")
logger = logging.getLogger("trimsft")

POLL = 5.0
"""Seconds between two looks at cells that others work on."""


@dataclass(frozen=True)
class Event:
    """A change in the state of a cell."""

    cell: Cell
    state: str
    """waiting, running, elsewhere, retrying, done, failed."""
    note: str = ""
    """The stage, who has it, or why it failed."""
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a run of cells came to."""

    done: dict[Cell, Path]
    failed: dict[Cell, str]
    seconds: dict[Cell, dict[str, float]] = field(default_factory=dict)
    """Of this start: cell, step, seconds; nothing for what was there already or was done elsewhere."""

    def failures(self, out: Path) -> list[str]:
        """Each in one line, with where to read more."""
        place = Place(out)
        return [
            f"{cell.name}: {reason}; see {place.log(cell)}; the same command tries it again"
            for cell, reason in self.failed.items()
        ]


class Crew(Protocol):
    """Who does the work: processes here, or tasks of a cluster."""

    def __enter__(self) -> Crew: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def work(self, waiting: list[str]) -> Iterator[Message | None]:
        """Every message as it comes, and None now and then; what is appended to `waiting` is done, too."""


def _ignore(event: Event) -> None:
    pass


def run_cells(
    cells: Sequence[Cell],
    scale: Scale,
    out: Path,
    *,
    executor: str = "local",
    workers: int | None = None,
    retries: int = 1,
    on_event: Callable[[Event], None] = _ignore,
    needs: frozenset[str] = frozenset({"scores"}),
) -> Outcome:
    """Do what is missing of each cell, in the order given; raises `RunError` where `out` holds another scale.

    Args:
        executor: "local", processes on this machine; "ray", tasks on a cluster that shares the file system.
        workers: cells side by side; by default as many as fit.
        retries: how often a failed cell is tried again.
        on_event: told of every change.
        needs: of "scores" and "tokens".
    """
    if executor not in EXECUTORS:
        raise ValueError(f"executor: unknown name {executor!r}; known: {', '.join(EXECUTORS)}")
    for name, value, low in (("workers", workers, 1), ("retries", retries, 0)):
        if value is not None and value < low:
            raise ValueError(f"{name}: must be at least {low}, got {value}")
    needs = all_needs(scale, needs)
    cells = in_order(cells)
    for cell in cells:
        scale.at(cell.model)
    # tasks of a cluster have a folder of their own
    place = Place(Path(out).absolute() if executor == "ray" else Path(out))
    scale = with_attention(scale, place.scale_if_any())
    job = CellJob(place, scale, needs, {cell.name: cell for cell in cells})
    refuse_lost_weights(job)
    missing = sum(not place.is_done(cell, scale, needs) for cell in cells)
    campaign = _Campaign(job, retries, on_event)
    # both refuse what is not there, before anything is written
    crew = make_crew(job, executor, workers, missing) if missing else None
    with crew or nullcontext():
        place.settle(scale)
        place.remember(cells, needs)
        waiting = campaign.begin()
        if crew is not None:
            campaign.work(crew, waiting)
    return campaign.outcome


def all_needs(scale: Scale, needs: Collection[str]) -> frozenset[str]:
    """Before weights are deleted, tokens are measured, too: it takes seconds, and there is no other time for it."""
    unknown = sorted(set(needs) - {"scores", "tokens"})
    if unknown:
        raise ValueError(f"needs: unknown name {unknown[0]!r}; known: scores, tokens")
    drops = not scale.keep_weights and "scores" in needs
    return frozenset(needs) | ({"tokens"} if drops else set())


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Each once; bases first, then seed by seed: after each seed there is a whole table."""
    distinct = list(dict.fromkeys(cells))
    return sorted(distinct, key=lambda cell: (not cell.is_base, cell.seed))


def make_crew(job: CellJob, executor: str, workers: int | None, cells: int) -> Crew:
    """Who does it, by name."""
    if executor == "ray":
        from trimsft.study.running.ray_executor import RayCrew

        return RayCrew(job, workers)
    from trimsft.study.running.local import make_slots

    return Team(job, make_slots(job, workers, cells))


class _Campaign:
    """The cells of one call: which are done, which have failed how often, which are somebody else's."""

    def __init__(self, job: CellJob, retries: int, on_event: Callable[[Event], None]) -> None:
        self._job, self._retries, self._on_event = job, retries, on_event
        self._attempts: dict[str, int] = {}
        self._elsewhere: dict[str, str] = {}
        self._training: dict[str, int] = {}
        self._at_once: dict[tuple[Any, str], set[Cell]] = {}
        self.outcome = Outcome({}, {})

    def begin(self) -> list[str]:
        """Names of the cells that are not done, after having told of those that are."""
        missing = []
        for name, cell in self._job.cells.items():
            if self._is_done(name):
                self._settle(name, "before")
            else:
                missing.append(name)
                self._tell(cell, "waiting")
        return missing

    def work(self, crew: Crew, waiting: list[str]) -> None:
        while waiting:
            for message in crew.work(waiting):
                self._follow_training()
                if message is not None:
                    self._take(message, waiting)
            while self._elsewhere and not waiting:
                waiting += self._come_back()
                if self._elsewhere and not waiting:
                    time.sleep(POLL)

    def _take(self, message: Message, waiting: list[str]) -> None:
        cell = self._job.cells[message.name]
        self._training.pop(message.name, None)
        if isinstance(message, Told):
            if message.stage == "training":
                self._training[message.name] = 0
            self._tell(cell, "running", message.stage, message.done, message.total)
        elif isinstance(message, Done):
            if message.seconds:
                self.outcome.seconds[cell] = message.seconds
            self._settle(message.name)
        elif isinstance(message, Busy):
            self._elsewhere[message.name] = message.holder
            self._tell(cell, "elsewhere", message.holder)
        elif isinstance(message, Failed):
            self._fail(message, waiting)

    def _fail(self, message: Failed, waiting: list[str]) -> None:
        cell, name = self._job.cells[message.name], message.name
        with suppress(OSError, RunError):  # what keeps a cell from its folder keeps this note from it, too
            self._job.place.note_failure(cell, message.error)
        self._attempts[name] = self._attempts.get(name, 0) + 1
        if self._is_hopeless(cell, message.error):
            self._give_up(cell, message.error, waiting)
        elif self._attempts[name] <= self._retries:
            waiting.append(name)
            self._tell(cell, "retrying", message.error)
        else:
            self.outcome.failed[cell] = message.error
            self._tell(cell, "failed", message.error)

    def _is_hopeless(self, cell: Cell, error: str) -> bool:
        """Whether two trainings that differ in their objective alone have failed alike before their first update."""
        if cell.is_base or updates_done(self._job.place, cell) or "killed by signal" in error:
            return False
        alike = self._at_once.setdefault((_setup(cell), error), set())
        alike.add(cell)
        return len(alike) > 1

    def _give_up(self, cell: Cell, error: str, waiting: list[str]) -> None:
        """Those that have failed so are not tried again, and those that would are not tried at all."""
        failed = self._at_once[_setup(cell), error]
        for one in failed - self.outcome.failed.keys():
            self.outcome.failed[one] = error
            self._tell(one, "failed", error)
        like = [name for name in waiting if _setup(self._job.cells[name]) == _setup(cell)]
        left = [name for name in like if not self._job.cells[name].is_base]
        waiting[:] = [name for name in waiting if name not in left]
        if untried := len({*left} - {one.name for one in failed}):
            logger.warning("%s: %d more trainings would fail alike and stay missing", cell.model, untried)

    def _come_back(self) -> list[str]:
        """What others have finished is done; what they have left undone is for us."""
        free = []
        for name in list(self._elsewhere):
            cell = self._job.cells[name]
            if self._is_done(name):
                del self._elsewhere[name]
                self._settle(name, "elsewhere")
            elif who_holds(self._job.place.claim(cell)) is None:
                del self._elsewhere[name]
                free.append(name)
        return free

    def _follow_training(self) -> None:
        for name, before in self._training.items():
            cell = self._job.cells[name]
            now = updates_done(self._job.place, cell)
            if now != before:
                self._training[name] = now
                self._tell(cell, "running", "training", now)

    def _is_done(self, name: str) -> bool:
        return self._job.place.is_done(self._job.cells[name], self._job.scale, self._job.needs)

    def _settle(self, name: str, note: str = "") -> None:
        cell = self._job.cells[name]
        self.outcome.done[cell] = self._job.place.run(cell)
        self._tell(cell, "done", note)

    def _tell(self, cell: Cell, state: str, note: str = "", done: int = 0, total: int = 0) -> None:
        self._on_event(Event(cell, state, note, done, total))


def _setup(cell: Cell) -> tuple[Any, ...]:
    """What decides whether a training can begin: all but the objective and the seed."""
    return cell.model, *(field for field in cell.fields if field[0] not in PARAMETERS)


def updates_done(place: Place, cell: Cell) -> int:
    """How far a training is, by what it has written down."""
    try:
        return place.telemetry(cell).read_bytes().count(b"\n")
    except OSError:
        return 0
