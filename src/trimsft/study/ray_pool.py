"""Cells as tasks of a Ray cluster: many machines and GPUs, one study. Needs the package ray.

    ray start --head                                     # on one machine, then on the others as it says
    RAY_ADDRESS=auto trimsft study run main --scale paper --executor ray

Without RAY_ADDRESS a cluster of this machine alone is started. The study's folder must be on a file system that all
machines share, and trimsft be installed on each. A cell of several GPUs is placed on one machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from trimsft.errors import UsageError
from trimsft.study.cell import Cell
from trimsft.study.folder import ENDING, Job, Result
from trimsft.study.pools import environment_of


class RayPool:
    """A task for each cell, in a process of its own; with `workers`, at most so many at once."""

    def __init__(self, job: Job, cells: Sequence[Cell], workers: int | None) -> None:
        try:
            import ray
        except ImportError:
            hint = "pip install 'ray[default]'"
            raise UsageError("needs the package ray", field="executor", value="ray", hint=hint) from None
        self._ray: Any = ray
        self._job, self.size, self._references = job, workers or len(cells), dict[Future[Result], Any]()
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            address = os.environ.get("RAY_ADDRESS") or None
            options: dict[str, Any] = {} if address else {"include_dashboard": False}
            # this alone keeps Ray from putting the current folder before all that is installed, in each process
            options["job_config"] = ray.job_config.JobConfig(_client_job=True)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
        kind, need = "GPU" if job.scale.device == "cuda" else "CPU", max(map(job.scale.gpus_of, cells))
        has = max(node["Resources"].get(kind, 0) for node in ray.nodes() if node["Alive"])
        if need > has:  # Ray would wait for it without a word
            problem = f"a training needs a machine with {need} {kind}, and none of the cluster has more than {has:g}"
            raise UsageError(problem, field="executor", value="ray")

    def submit(self, cell: Cell) -> Future[Result]:
        is_cuda, processes = self._job.scale.device == "cuda", self._job.scale.gpus_of(cell)
        # a process for each cell gives back all that it held
        task = self._ray.remote(max_retries=0, max_calls=1)(_attempt).options(
            num_cpus=processes, num_gpus=processes * is_cuda, name=cell.name
        )
        reference = task.remote(self._job, cell, os.getcwd())
        future: Future[Result] = reference.future()
        self._references[future] = reference
        return future

    def release(self, future: Future[Result], *, failed: bool = False) -> None:
        """Forget a cell whose future is done."""
        del self._references[future]

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *failure: object) -> None:
        for reference in self._references.values():
            self._ray.cancel(reference, force=False)  # as Ctrl-C would: a training saves, a launcher ends its ranks
        if waiting := list(self._references.values()):
            for reference in self._ray.wait(waiting, num_returns=len(waiting), timeout=ENDING)[1]:
                self._ray.cancel(reference, force=True)
        if self._is_ours:
            self._ray.shutdown()


def _attempt(job: Job, cell: Cell, folder: str) -> Result:
    """Run a cell in a process of the cluster."""
    os.chdir(folder)  # where the command was called: a user's own objective may be there
    os.environ.update(environment_of(job.scale))
    return job.attempt(cell)
