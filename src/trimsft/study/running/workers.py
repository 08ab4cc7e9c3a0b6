"""Processes that do one task after the other, side by side, each with a pipe of its own.

with Team(job, CoreSlots(2)) as team:
    for message in team.work([Task("lab/base/seed0"), Task("lab/sft/seed0")]):  # Told, Done, Failed or Busy
        ...

A worker is told what to do by the parent and ends with it, however that ends: its pipe closes. What libraries print
goes to the log of the cell. One that has failed is replaced: it may still hold memory, or a lock.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from trimsft.errors import RunError, one_line
from trimsft.signals import heed, restore

if TYPE_CHECKING:
    from trimsft.study.running.job import CellJob
    from trimsft.study.running.slots import CoreSlots, GpuSlots

SHARE = "TRIMSFT_GPU_SHARE"  # how much of a GPU's memory generation may take where several cells share it
QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
ENDING = 10.0  # seconds that a worker has to end what it has launched


class Task(NamedTuple):
    """What a worker is asked for: all that a cell still lacks, or its training alone."""

    name: str
    """The cell's."""
    only_training: bool = False


@dataclass(frozen=True)
class Told:
    """How far a task is; total 0 where that is not counted."""

    task: Task
    stage: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Done:
    task: Task
    seconds: dict[str, float]  # for each step that this start had to do


@dataclass(frozen=True)
class Failed:
    task: Task
    error: str
    was_killed: bool = False  # by a signal, and so perhaps not by what it did


@dataclass(frozen=True)
class Busy:
    """Somebody else is at it."""

    task: Task
    holder: str


Message: TypeAlias = Told | Done | Failed | Busy


class Taken(Exception):
    """Raised by a job whose cell somebody else works on; says who."""


class Team:
    """Workers, started when there is work and replaced where one dies or fails; each has a copy of the job."""

    def __init__(self, job: CellJob, slots: CoreSlots | GpuSlots) -> None:
        self._job, self._slots = job, slots
        self._workers: dict[Connection, _Worker] = {}
        self.cores = slots.cores
        """How many cells go side by side, one on each core; 0 where they have GPUs."""

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *failure: object) -> None:
        for worker in self._workers.values():
            worker.end()
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()

    def work(self, waiting: list[Task], pause: float = 0.25) -> Iterator[Message | None]:
        """Every message as it comes, and None now and then, so that somebody may look at the clock.

        What is appended to `waiting` meanwhile is done, too.
        """
        while waiting or self._workers:
            while waiting and (slot := self._slots.take(waiting[0].name)) is not None:
                worker = _Worker(self._job, slot, waiting.pop(0))
                self._workers[worker.pipe] = worker
            ready = wait(list(self._workers), timeout=pause)
            for pipe in ready:
                worker = self._workers[pipe]  # type: ignore[index]
                message = worker.receive()
                if not worker.is_usable:
                    self._go_on(worker, waiting)
                yield message  # what comes of it may be more work, for which a new process would import all anew
                if worker.is_usable and worker.current is None:
                    self._go_on(worker, waiting)
            if not ready:
                yield None

    def _go_on(self, worker: _Worker, waiting: list[Task]) -> None:
        """The next task for a worker whose place it can take; else its end."""
        self._slots.give_back(worker.slot)
        if waiting and worker.is_usable:
            slot = self._slots.take(waiting[0].name)
            if slot == worker.slot:
                worker.give(waiting.pop(0))
                return
            if slot is not None:
                self._slots.give_back(slot)
        del self._workers[worker.pipe]
        worker.stop()


class _Worker:
    """A process and what it is doing."""

    def __init__(self, job: CellJob, slot: Mapping[str, str], task: Task) -> None:
        processes = multiprocessing.get_context("spawn")
        self.pipe, far = processes.Pipe()
        self.slot, self.is_usable = slot, True
        self._process = processes.Process(target=_serve, args=(far, job, slot), daemon=True)
        with _signals_held():
            self._process.start()
        far.close()
        self.current: Task | None = None
        self.give(task)

    def give(self, task: Task) -> None:
        """Go on with this task; a worker that has died meanwhile says so when it is heard next."""
        self.current = task
        with suppress(OSError):
            self.pipe.send(task)

    def receive(self) -> Message:
        """The next message; of a worker that has died, that its task failed."""
        try:
            message: Message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            assert self.current is not None
            code = self._process.exitcode
            message = Failed(self.current, f"its process ended ({ended_by(code)})", was_killed=(code or 0) < 0)
        self.is_usable = not isinstance(message, Failed)
        if not isinstance(message, Told):
            self.current = None
        return message

    def end(self) -> None:
        """Ask it, and what it has launched, to end."""
        if not _signal_group(self._process.pid, signal.SIGTERM):
            self._process.terminate()  # it does not lead a group yet

    def stop(self) -> None:
        """End it and all that it has launched, also where it is dead already: its group outlives it."""
        self.end()
        end = time.monotonic() + ENDING
        self._process.join(ENDING)
        # a launcher needs a moment to end its ranks, which have groups of their own
        while _signal_group(self._process.pid, 0) and time.monotonic() < end:
            time.sleep(0.02)
        _signal_group(self._process.pid, signal.SIGKILL)  # what is recorded outlives it
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _signal_group(leader: int | None, number: int) -> bool:
    """To all that a worker has started and itself; false where there is nobody left."""
    try:
        assert leader is not None
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextmanager
def _signals_held() -> Iterator[None]:
    """A process begun within leaves Ctrl-C to its parent; what asks the parent to end meanwhile does so afterwards."""
    held: list[int] = []
    before = heed(lambda number, frame: held.append(number))
    resource_tracker.ensure_running()  # which is started with the first process, and unblocks SIGINT then
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # which a new process inherits
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        restore(before)
        for number in held[:1]:
            signal.raise_signal(number)


def ended_by(code: int | None) -> str:
    """How a process ended, by its exit code."""
    if code is not None and code < 0:
        return f"killed by signal {-code}" + (": too little memory?" if code == -signal.SIGKILL else "")
    return f"exit code {code}"


# ---- in the worker


def _serve(pipe: Connection, job: CellJob, slot: Mapping[str, str]) -> None:
    os.setpgid(0, 0)
    os.environ.update({**QUIET, **job.environment(), **slot})
    say_into(Path(os.devnull))
    tasks = _listen(pipe)
    settle_threads()

    def tell(stage: str, done: int = 0, total: int = 0) -> None:
        if done % 8 == 0 or done == total:  # a sample takes milliseconds
            pipe.send(Told(task, stage, done, total))

    with suppress(KeyboardInterrupt):  # a training that was asked to end
        while True:
            task = tasks.get()
            pipe.send(attempt(job, task, tell))


def attempt(job: CellJob, task: Task, tell: Any) -> Message:
    """One task, whatever comes of it; what is printed goes to its log."""
    try:
        say_into(job.log(task.name))
        return Done(task, job.do(task, tell))
    except Taken as taken:
        return Busy(task, str(taken))
    except Exception as error:  # whatever a library raises ends this task, and no other
        with suppress(OSError):  # a full disk
            traceback.print_exc()
        return Failed(task, one_line(error), was_killed=getattr(error, "was_killed", False))


def settle_threads() -> None:
    """As many threads as the environment says; torch looks at it when it is imported, and not again."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    count, torch = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0], sys.modules.get("torch")
    if count.isdecimal() and int(count) and torch is not None:  # what is no number OpenMP passes over, too
        torch.set_num_threads(int(count))
    tqdm.set_lock(threading.RLock())  # its own is shared by processes, and one that is killed would leak it


def _listen(pipe: Connection) -> queue.SimpleQueue[Task]:
    """What the parent asks for; the process ends as soon as there is no parent."""
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                tasks.put(pipe.recv())
        except (EOFError, OSError):
            os.killpg(0, signal.SIGTERM)  # and with it what it has launched
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    return tasks


def say_into(log: Path) -> None:
    """From now on, what is printed goes there."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise RunError(f"{log.parent}: cannot be used as a run directory ({error.strerror})") from error
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
