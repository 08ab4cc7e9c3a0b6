"""How many cells go side by side on this machine, and which GPUs each may see.

    >>> slots = GpuSlots(["0", "1", "2"], need=lambda name: 2 if name == "large" else 1)
    >>> slots.take("small"), slots.take("large"), slots.take("large")
    ({'CUDA_VISIBLE_DEVICES': '0'}, {'CUDA_VISIBLE_DEVICES': '1,2'}, None)

On a CPU there is a cell for each core, with one thread. With GPUs it is one for each, or more where the plan of
`trimsft.plan` leaves room and generation does not take the whole GPU, as vLLM does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trimsft.errors import UsageError
from trimsft.evaluate.engines.several import VISIBLE, visible_gpus
from trimsft.study.cells import Cell
from trimsft.study.running.job import CellJob, uses_vllm
from trimsft.study.running.training import training_settings
from trimsft.study.running.workers import SHARE

MOST = 6  # processes on the cores: each takes most of a gigabyte
SHARED_AT_MOST = 4  # cells on one GPU
FOR_GENERATION = 2.0
"""A cell that generates with transformers is given room for as much again as its training takes."""

logger = logging.getLogger("trimsft")


def make_slots(job: CellJob, workers: int | None, cells: int) -> CoreSlots | GpuSlots:
    """Room for `workers` cells, or for as many as fit."""
    scale = job.scale
    need = {name: scale.gpus_of(cell) for name, cell in job.cells.items()}
    largest = max(need, key=need.__getitem__)
    if scale.device == "cpu":
        affinity = getattr(os, "sched_getaffinity", None)  # the cores that this process may use
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        fit = min(cells, MOST, cores // need[largest], cells_in_memory(job))
        return CoreSlots(workers or max(1, fit))
    devices = visible_gpus()
    if devices and need[largest] > len(devices):
        raise UsageError(
            f"{largest} needs {need[largest]} GPUs and there are {len(devices)}",
            field="gpus",
            remedy=("gpus", len(devices)),
        )
    if workers is None:
        return GpuSlots(devices, need.__getitem__, together=cells_per_gpu(job))
    few = devices[: workers * need[largest]]
    return GpuSlots(few, need.__getitem__, together=-(-workers // max(1, len(devices))))


def cells_in_memory(job: CellJob) -> int:
    """How many trainings of the largest model the memory of this machine holds; at the lab, more than it has cores."""
    if job.scale.is_lab:
        return MOST
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = _most_needed(job)
    return 1 if needed is None else max(1, int(0.9 * memory / needed))


def cells_per_gpu(job: CellJob) -> int:
    """How many trainings of the largest model of one GPU fit beside each other; 1 where that cannot be known."""
    if uses_vllm(job.scale):
        return 1
    import torch

    needed = _most_needed(job) if torch.cuda.is_available() else None
    if needed is None:
        return 1
    room = min(torch.cuda.get_device_properties(number).total_memory for number in range(torch.cuda.device_count()))
    return fitting(room, needed)


def fitting(device_bytes: float, needed: float) -> int:
    """Cells that fit on a device together, a tenth of it left free."""
    return max(1, min(SHARED_AT_MOST, int(0.9 * device_bytes / (FOR_GENERATION * needed))))


def _most_needed(job: CellJob) -> int | None:
    """Bytes that a training of the largest model takes; None where that cannot be known."""
    one_of_each = {cell.model: cell for cell in job.cells.values()}
    try:
        return max(training_bytes(job, cell) for cell in one_of_each.values())
    except Exception as error:  # whatever it stumbles over, one after the other is safe
        logger.info("one cell at a time: no plan (%s)", error)
        return None


def training_bytes(job: CellJob, cell: Cell) -> int:
    """Peak memory of one process of a training, rows at their longest."""
    from trimsft.plan import peak_gib
    from trimsft.train.planning import as_plan

    settings = training_settings(job.folder, job.scale, cell)
    gpus = job.scale.at(cell.model).gpus
    plan = as_plan(settings, settings.args.max_length or 2048, gpus)
    mixed = bool(settings.args.bf16 or settings.args.fp16)  # the device is the one that is here
    return int(2**30 * peak_gib(replace(plan, sharded=gpus > 1, mixed=mixed)))


# ---- the slots


class CoreSlots:
    """One core each, and no GPU, so that figures are the same everywhere."""

    def __init__(self, count: int) -> None:
        self._free = self.cores = count

    def take(self, name: str) -> Mapping[str, str] | None:
        """Variables of the process that does this cell; None where there is no room now."""
        if not self._free:
            return None
        self._free -= 1
        return {"OMP_NUM_THREADS": "1", VISIBLE: ""}

    def give_back(self, slot: Mapping[str, str]) -> None:
        self._free += 1


class GpuSlots:
    """Some GPUs each; those that need one may share it, those that need several have them to themselves."""

    cores = 0

    def __init__(self, devices: Sequence[str], need: Callable[[str], int], *, together: int = 1) -> None:
        if not devices:
            raise UsageError("needs a GPU, and there is none", field="device", value="cuda", remedy=("device", "cpu"))
        self._together, self._need = together, need
        self._room = dict.fromkeys(devices, together)

    def take(self, name: str) -> Mapping[str, str] | None:
        need = self._need(name)
        if need == 1:
            device = max(self._room, key=lambda device: self._room[device])
            chosen = [device] if self._room[device] else []
        else:
            chosen = [device for device, room in self._room.items() if room == self._together][:need]
        if len(chosen) < need:
            return None
        for device in chosen:
            self._room[device] -= 1 if need == 1 else self._together
        shared = {SHARE: f"{1 / self._together:.4g}"} if need == 1 and self._together > 1 else {}
        return {VISIBLE: ",".join(chosen)} | shared

    def give_back(self, slot: Mapping[str, str]) -> None:
        devices = slot[VISIBLE].split(",")
        for device in devices:
            self._room[device] += 1 if len(devices) == 1 else self._together
