"""Processes of this machine for the cells of a study: one on each core, or for each group of GPUs of a training.

with LocalPool(job, cells, workers=None) as pool:
    future = pool.submit(cell)
    future.result()                       # Result(seconds={"train": 24.1, ...})
    pool.release(future)

All end with the one that started them, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path

from trimsft.errors import UsageError, handle_signals, interrupt
from trimsft.study.cell import Cell
from trimsft.study.folder import ENDING, Job, Result, redirect_output
from trimsft.study.scales import Scale

VISIBLE = "CUDA_VISIBLE_DEVICES"
MOST = 6  # processes on the cores: each takes most of a gigabyte
QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}


def environment_of(scale: Scale) -> dict[str, str]:
    """Return the variables of every process of a study."""
    # one thread each, so that figures are the same everywhere
    cpu = {"OMP_NUM_THREADS": "1", VISIBLE: ""} if scale.device == "cpu" else {}
    return QUIET | cpu | ({"HF_HUB_OFFLINE": "1"} if scale.is_lab else {})


def environments(job: Job, cells: Sequence[Cell], workers: int | None) -> list[dict[str, str]]:
    """Return the variables of each process: the GPUs it may see, or one core and none."""
    scale, common = job.scale, environment_of(job.scale)
    if not cells:
        return []
    need = max(map(scale.gpus_of, cells))
    if scale.device == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        fit = min(len(cells), MOST, cores // need) if scale.is_lab else 1  # others may not fit into memory
        return [common] * (workers or max(1, fit))
    import torch

    everything = ",".join(map(str, range(torch.cuda.device_count())))
    devices = [device.strip() for device in os.environ.get(VISIBLE, everything).split(",") if device.strip()]
    if need > len(devices):
        problem = f"a training needs {need} and there are {len(devices)}"
        raise UsageError(problem, field="gpus", hint="--device cpu needs none")
    groups = [",".join(devices[first : first + need]) for first in range(0, len(devices) - need + 1, need)]
    return [common | {VISIBLE: group} for group in groups[:workers]]


class LocalPool:
    """A pool of one process for each environment, so that a process that dies costs its own cell alone."""

    def __init__(self, job: Job, cells: Sequence[Cell], workers: int | None) -> None:
        self._job, self._others = job, set(multiprocessing.active_children())
        self._free = [(environment, _executor(environment)) for environment in environments(job, cells, workers)]
        self._busy: dict[Future[Result], tuple[dict[str, str], ProcessPoolExecutor]] = {}
        self.size = len(self._free)

    def submit(self, cell: Cell) -> Future[Result]:
        with _signals_blocked():  # an interrupt finds every process in one of the two
            environment, executor = self._free.pop(0)
            future = executor.submit(self._job.attempt, cell)
            self._busy[future] = environment, executor
        return future

    def release(self, future: Future[Result], *, failed: bool = False) -> None:
        """Free the process of a cell whose future is done for the next one."""
        environment, executor = self._busy.pop(future)
        if failed or self._job.one_process_a_step:  # it may hold memory still
            executor.shutdown()
            executor = _executor(environment)
        self._free.insert(0, (environment, executor))

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *failure: object) -> None:
        children = set(multiprocessing.active_children()) - self._others
        for child in children if self._busy else ():
            child.terminate()

        def kill() -> None:
            for child in children:
                child.kill()

        late = threading.Timer(ENDING, kill)
        late.start()
        # each pool's own thread waits for its process: with a second one waiting here, either may miss the end
        for _, executor in [*self._free, *self._busy.values()]:
            executor.shutdown(cancel_futures=True)
        late.cancel()


def _executor(environment: dict[str, str]) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(environment,))


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Hold signals back while a process starts: none is lost between two, and Ctrl-C is left to this one for good."""
    resource_tracker.ensure_running()  # its start unblocks them
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin(environment: dict[str, str]) -> None:
    """Prepare the process of a worker."""
    os.environ.update(environment)
    if threads := environment.get("OMP_NUM_THREADS"):
        import torch  # reads it when it is imported, which may have been before

        torch.set_num_threads(int(threads))
    redirect_output(Path(os.devnull))
    handle_signals(interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGHUP})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End as soon as there is no parent, even where that was killed and could tell nobody."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)  # a training saves, a launcher ends its ranks
    time.sleep(ENDING)
    os._exit(1)
