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

from trimsft.errors import UsageError, one_line
from trimsft.study.cell import Cell
from trimsft.study.pools import ENDING, QUIET
from trimsft.study.steps import Job, Result

CORES = {"cpu": 1, "cuda": 4}  # for each process of a cell


class RayPool:
    """A task for each cell, in a process of its own; with `workers`, at most so many at once."""

    def __init__(self, job: Job, cells: Sequence[Cell], workers: int | None) -> None:
        try:
            import ray
        except ImportError:
            hint = "pip install 'ray[default]'"
            raise UsageError("needs the package ray", field="executor", value="ray", hint=hint) from None
        needs = {cell.name: resources_of(job, cell) for cell in cells}
        self._ray: Any = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            address = os.environ.get("RAY_ADDRESS") or None
            options: dict[str, Any] = {} if address else {"include_dashboard": False}
            # this alone keeps Ray from putting the current folder before all that is installed, in each process
            options["job_config"] = ray.job_config.JobConfig(_client_job=True)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        for name, kinds in needs.items():  # Ray would wait for it without a word
            if not any(all(machine.get(kind, 0) >= count for kind, count in kinds.items()) for machine in machines):
                wanted = ", ".join(f"{count:g} {kind}" for kind, count in kinds.items())
                has = "; ".join(", ".join(f"{machine.get(kind, 0):g} {kind}" for kind in kinds) for machine in machines)
                problem = f"no machine of the cluster has what {name} takes ({wanted})"
                raise UsageError(problem, field="executor", hint=f"they have {has or 'nothing'}")
        self._workers, self._references = workers, dict[Future[Result], Any]()

    def has_room(self) -> bool:
        return self._workers is None or len(self._references) < self._workers

    def submit(self, job: Job, cell: Cell) -> Future[Result]:
        kinds = resources_of(job, cell)
        # a process for each cell gives back all that it held
        task = self._ray.remote(max_retries=0, max_calls=1)(_attempt).options(
            num_cpus=kinds["CPU"], num_gpus=kinds.get("GPU", 0), name=cell.name
        )
        reference = task.remote(job, cell, os.getcwd())
        future: Future[Result] = reference.future()
        self._references[future] = reference
        return future

    def result(self, future: Future[Result]) -> Result:
        """Return what came of a cell whose future is done."""
        del self._references[future]
        try:
            return future.result()
        except self._ray.exceptions.RayError as error:  # its process or its machine is gone
            return Result("failed", f"its process ended ({one_line(error)[:300]})")

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


def resources_of(job: Job, cell: Cell) -> dict[str, float]:
    """Return what one cell takes of a cluster."""
    processes = job.scale.gpus_of(cell)
    needs: dict[str, float] = {"CPU": CORES[job.scale.device] * processes}
    if job.scale.device == "cuda":
        needs["GPU"] = processes
    return needs


def _attempt(job: Job, cell: Cell, folder: str) -> Result:
    """Run a cell in a process of the cluster."""
    os.chdir(folder)  # where the command was called: a user's own objective may be there
    os.environ.update(QUIET | ({"HF_HUB_OFFLINE": "1"} if job.scale.is_lab else {}))
    if job.scale.device == "cpu":
        os.environ.update({"OMP_NUM_THREADS": str(CORES["cpu"]), "CUDA_VISIBLE_DEVICES": ""})
    return job.attempt(cell)
