"""An engine in a process of a Ray cluster, on a machine that has GPUs for it. Needs the extra `ray`.

    ray start --head                                        # on one machine, then on the others as it says
    RAY_ADDRESS=auto trimsft eval runs/auto -b math500 --executor ray

Without RAY_ADDRESS a cluster of this machine alone is started. The model must be at the same path on all machines, or
on the hub, and trimsft be installed on each.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from trimsft.errors import TrimSFTError, UsageError, one_line
from trimsft.evaluate.engines.base import Completion, EngineError, Request
from trimsft.evaluate.engines.elsewhere import Elsewhere, facts_of
from trimsft.evaluate.engines.local import LocalModel
from trimsft.processes import error_as_data, error_from


class RayEngine(Elsewhere):
    """A model in a process of the cluster."""

    def __init__(self, model: LocalModel, gpus: int) -> None:
        super().__init__(model)
        self._ray, _ = join_cluster()
        # GPUs alone are counted: for a core that is taken Ray would wait without a word
        kind = self._ray.remote(num_gpus=gpus, num_cpus=0, max_restarts=0)(_Actor)
        self._actor = kind.remote(asdict(model))

    def check(self, requests: Sequence[Request]) -> None:
        self._get(self._actor.check.remote(list(requests)))

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        for reference in self._actor.generate.options(num_returns="streaming").remote(list(requests)):
            yield self._get(reference)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._ray.kill(self._actor)

    def _ask_facts(self) -> Mapping[str, Any]:
        return dict(self._get(self._actor.facts.remote()))

    def _get(self, reference: Any) -> Any:
        """What the process answers; what it refuses, or how it ended, is raised."""
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise EngineError(f"a process of the cluster ended ({one_line(error)[:300]})", field="engine") from error
        if isinstance(answer, _Refusal):
            raise error_from(answer, EngineError)
        return answer


def gpus_of_machines() -> list[int]:
    """GPUs of each machine of the cluster, which is joined or started."""
    return [int(node["Resources"].get("GPU", 0)) for node in join_cluster()[0].nodes() if node["Alive"]]


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


class _Refusal(dict[str, Any]):
    """A `TrimSFTError` on its way from one process to another."""


class _Actor:
    """In a process of the cluster."""

    def __init__(self, model: dict[str, Any]) -> None:
        self._engine: Any = _attempt(LocalModel(**model).load)

    def facts(self) -> Any:
        return self._engine if isinstance(self._engine, _Refusal) else facts_of(self._engine)

    def check(self, requests: list[Request]) -> Any:
        return _attempt(lambda: self._engine.check(requests))

    def generate(self, requests: list[Request]) -> Iterator[Any]:
        completions = iter(self._engine.generate(requests))
        while (completion := _attempt(lambda: next(completions, None))) is not None:
            yield completion
            if isinstance(completion, _Refusal):
                return


def _attempt(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except TrimSFTError as error:
        return _Refusal(error_as_data(error))
