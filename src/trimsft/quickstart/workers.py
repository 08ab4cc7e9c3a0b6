"""Processes that do one run after the other, side by side, each with one thread and a pipe of its own.

with Team(place, settings, count=2) as team:
    for message in team.work(["base", "sft", "trim"]):       # Told, Done or Failed, as they come
        ...

A worker is told what to do by the parent and ends with it, however that ends: its pipe closes. What libraries print
goes to the log of the run.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from trimsft.quickstart.settings import Settings
from trimsft.quickstart.steps import Place, do_run

MOST = 6
"""Each takes most of a gigabyte."""
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


@dataclass(frozen=True)
class Told:
    """How far a run is; total 0 where that is not counted."""

    name: str
    stage: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Done:
    name: str
    seconds: dict[str, float]
    """Of each step that this start had to do."""


@dataclass(frozen=True)
class Failed:
    name: str
    error: str


Message: TypeAlias = Told | Done | Failed


def how_many(runs: int) -> int:
    """As many workers as there are cores for this process, at most one for each run."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, MOST, runs))


class Team:
    """Workers, started when there is work and replaced where one dies."""

    def __init__(self, place: Place, settings: Settings, count: int) -> None:
        self._place, self._settings, self._count = place, settings, count
        self._workers: dict[Connection, _Worker] = {}

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.stop()

    def work(self, names: Sequence[str], pause: float = 0.25) -> Iterator[Message | None]:
        """Every message as it comes, and None now and then, so that somebody may look at the clock."""
        waiting = list(names)
        while waiting or self._workers:
            while waiting and len(self._workers) < self._count:
                worker = _Worker(self._place, self._settings, waiting.pop(0))
                self._workers[worker.pipe] = worker
            ready = wait(list(self._workers), timeout=pause)
            for pipe in ready:
                worker = self._workers[pipe]  # type: ignore[index]
                message = worker.receive()
                if worker.current is None and not (waiting and worker.give(waiting)):
                    del self._workers[worker.pipe]
                    worker.stop()
                yield message
            if not ready:
                yield None


class _Worker:
    """A process and what it is doing."""

    def __init__(self, place: Place, settings: Settings, name: str) -> None:
        processes = multiprocessing.get_context("spawn")
        self.pipe, far = processes.Pipe()
        self._process = processes.Process(target=_serve, args=(far, place, settings), daemon=True)
        with _without_interrupts():
            self._process.start()
        far.close()
        self.current: str | None = name
        self._is_alive = True
        self.pipe.send(name)

    def receive(self) -> Message:
        """The next message; of a worker that has died, that its run failed."""
        try:
            message: Message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            assert self.current is not None
            message = Failed(self.current, f"its process ended ({_cause(self._process.exitcode)})")
            self._is_alive = False
        if not isinstance(message, Told):
            self.current = None
        return message

    def give(self, waiting: list[str]) -> bool:
        """Go on with the next run; False where there is nobody to do it."""
        if not self._is_alive:
            return False
        self.current = waiting.pop(0)
        self.pipe.send(self.current)
        return True

    def stop(self) -> None:
        self._process.kill()  # what is recorded outlives it, and it holds nothing else
        self._process.join()
        self.pipe.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process begun within leaves Ctrl-C to its parent."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by signal {-code}" + (": too little memory?" if code == -signal.SIGKILL else "")
    return f"exit code {code}"


# ---- in the worker


def _serve(pipe: Connection, place: Place, settings: Settings) -> None:
    os.environ.update(QUIET)
    if settings.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = (
            ""  # the same figures everywhere; so small a model gains little by a GPU
        )
    _say_into(Path(os.devnull))
    names = _listen(pipe)
    import torch
    from tqdm import tqdm  # type: ignore[import-untyped]

    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its own is shared by processes, and one that is killed would leak it
    while True:
        name = names.get()
        _say_into(place.log(name))
        try:
            seconds = do_run(place, settings, name, _teller(pipe, name))
            pipe.send(Done(name, seconds))
        except Exception as error:  # whatever a library raises ends this run, and no other
            traceback.print_exc()
            pipe.send(Failed(name, " ".join(str(error).split()) or type(error).__name__))


def _listen(pipe: Connection) -> queue.SimpleQueue[str]:
    """What the parent asks for; the process ends as soon as there is no parent."""
    names: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                names.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    return names


def _teller(pipe: Connection, name: str) -> Any:
    def tell(stage: str, done: int = 0, total: int = 0) -> None:
        if done % 8 == 0 or done == total:  # a sample takes milliseconds
            pipe.send(Told(name, stage, done, total))

    return tell


def _say_into(log: Path) -> None:
    """From now on, what is printed goes there."""
    sys.stdout.flush()
    sys.stderr.flush()
    if log.name != os.path.basename(os.devnull):
        log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
