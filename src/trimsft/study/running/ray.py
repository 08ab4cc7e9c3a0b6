"""Cells as tasks of a Ray cluster: many machines and GPUs, one study. Needs the extra `ray`.

    ray start --head                                     # on one machine, then on the others as it says
    RAY_ADDRESS=auto trimsft study run main --scale paper --executor ray

Without RAY_ADDRESS a cluster of this machine alone is started. The study's folder must be on a file system that all
machines share, and trimsft be installed on each. A cell of several GPUs is placed on one machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from trimsft.errors import RunError, UsageError, one_line
from trimsft.evaluate.engines.several import VISIBLE
from trimsft.runs import holder_of
from trimsft.runs.parsing import ParseError, checked, parse_json
from trimsft.study.cells import Cell
from trimsft.study.running.job import STAGES, CellJob, tell_nobody
from trimsft.study.running.workers import QUIET, Failed, Message, Task, Told, attempt, settle_threads

CORES = {"cpu": 1, "cuda": 4}  # for each process of a cell
RESOURCES = "TRIMSFT_RAY_RESOURCES"  # other resources that every cell takes, such as {"a100": 1} in JSON
POLL = 0.5

logger = logging.getLogger("trimsft")


class RayCrew:
    """Tasks on a cluster; with `workers`, at most so many at once."""

    cores = 0

    def __init__(self, job: CellJob, workers: int | None = None) -> None:
        self._ray, self._started = join_cluster()
        self._job, self._workers = job, workers
        self._running: dict[Any, Task] = {}
        self._groups: dict[str, Any] = {}

    def __enter__(self) -> RayCrew:
        try:
            self._refuse_what_no_machine_has()
        except UsageError:
            self.__exit__()
            raise
        self._do = self._ray.remote(max_retries=0, max_calls=1)(_do)  # a process for each: it frees what it held
        return self

    def _refuse_what_no_machine_has(self) -> None:
        """Ray would wait for it without a word."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for cell in self._job.cells.values():
            needs = resources_of(self._job, cell)
            if any(all(machine.get(kind, 0) >= count for kind, count in needs.items()) for machine in machines):
                continue
            error = UsageError(
                f"no machine of the cluster has what {cell.name} takes ({_listed(needs, needs)})",
                field="executor",
                hint=f"they have {'; '.join(_listed(needs, machine) for machine in machines) or 'nothing'}",
            )
            if not _grows():
                raise error
            logger.warning("%s; waiting for the cluster to grow", error)
            return

    def __exit__(self, *failure: object) -> None:
        for future in self._running:
            self._ray.cancel(future, force=True)
        for name in list(self._groups):
            self._free(name)
        self._running.clear()
        if self._started:
            self._ray.shutdown()

    def work(self, waiting: list[Task]) -> Iterator[Message | None]:
        """Every message as it comes, and None now and then; what is appended to `waiting` is done, too."""
        begun: set[Task] = set()
        while waiting or self._running:
            while waiting and (self._workers is None or len(self._running) < self._workers):
                self._submit(waiting.pop(0))
            ready, _ = self._ray.wait(list(self._running), timeout=POLL)
            for future in ready:
                task = self._running.pop(future)
                self._free(task.name)
                begun.discard(task)
                yield self._result(future, task)
            yield from self._begun(begun)
            if not ready:
                yield None

    def _begun(self, before: set[Task]) -> Iterator[Told]:
        """A task does not say that it has begun; the claim of its cell does."""
        for task in self._running.values():
            cell = self._job.cells[task.name]
            if task not in before and holder_of(self._job.folder.claim(cell)) is not None:
                before.add(task)
                missing = self._job.missing(cell)
                yield Told(task, STAGES[missing[0]] if missing else "finishing")

    def _submit(self, task: Task) -> None:
        cell = self._job.cells[task.name]
        needs = resources_of(self._job, cell)
        options: dict[str, Any] = {"num_cpus": needs["CPU"], "num_gpus": needs.get("GPU", 0), "name": task.name}
        options["resources"] = {kind: count for kind, count in needs.items() if kind not in ("CPU", "GPU")}
        if needs.get("GPU", 0) > 1:
            options["scheduling_strategy"] = self._place(task.name, needs)
        self._running[self._do.options(**options).remote(self._job, task, os.getcwd())] = task

    def _place(self, name: str, needs: Mapping[str, float]) -> Any:
        """GPUs of one machine, kept for this cell: smaller cells would take them one by one."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._groups[name] = placement_group([dict(needs)], strategy="STRICT_PACK")
        return PlacementGroupSchedulingStrategy(self._groups[name], placement_group_bundle_index=0)

    def _free(self, name: str) -> None:
        group = self._groups.pop(name, None)
        if group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(group)

    def _result(self, future: Any, task: Task) -> Message:
        try:
            message: Message = self._ray.get(future)
        except self._ray.exceptions.RayError as error:  # its process or its machine is gone
            return Failed(task, f"its process ended ({one_line(error)[:300]})", was_killed=True)
        return message


def resources_of(job: CellJob, cell: Cell) -> dict[str, float]:
    """What one cell takes of a cluster."""
    processes = job.scale.gpus_of(cell)
    needs: dict[str, float] = {"CPU": CORES[job.scale.device] * processes}
    if job.scale.device == "cuda":
        needs["GPU"] = processes
    others = os.environ.get(RESOURCES, "{}")
    try:
        return needs | checked(dict[str, float], parse_json(others), where=RESOURCES)
    except (ParseError, RunError):
        raise UsageError('must be JSON such as {"a100": 1}', field=RESOURCES, value=others) from None


def _listed(kinds: Mapping[str, float], amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amounts.get(kind, 0):g} {kind}" for kind in kinds)


def _grows() -> bool:
    """Whether machines may be added by themselves: an autoscaler has told the cluster of which kinds."""
    try:
        from ray._private.state import state

        config = state.get_cluster_config()
    except Exception as error:  # no public function tells, and another version may not have this one
        logger.info("whether the cluster grows is not known (%s)", error)
        return False
    return config is not None and len(config.node_group_configs) > 0


def _do(job: CellJob, task: Task, folder: str) -> Message:
    """In a process of the cluster."""
    os.chdir(folder)  # where the command was called: an objective of the user's own may be there
    os.environ.update({**QUIET, **job.environment()})
    if job.scale.device == "cpu":
        os.environ.update({"OMP_NUM_THREADS": str(CORES["cpu"]), VISIBLE: ""})
    settle_threads()
    return attempt(job, task, tell_nobody)


def join_cluster() -> tuple[Any, bool]:
    """Return the package, connected to the cluster of RAY_ADDRESS or to one that is started here, and whether anew."""
    try:
        import ray
    except ImportError:
        hint = "pip install 'ray[default]'"
        raise UsageError("needs the package ray", field="executor", value="ray", hint=hint) from None
    if ray.is_initialized():
        return ray, False
    address = os.environ.get("RAY_ADDRESS") or None
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    # this alone keeps Ray from putting the current folder before all that is installed, in each of its processes
    options["job_config"] = ray.job_config.JobConfig(_client_job=True)
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    return ray, True
