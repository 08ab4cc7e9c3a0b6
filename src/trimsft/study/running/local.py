"""The local executor: as many cells side by side as this machine has room for.

On a CPU that is one for each core, with one thread. With GPUs it is one for each, or more where the estimate of
`trimsft.train` leaves room and generation does not take the whole GPU, as vLLM does.
"""

from __future__ import annotations

import logging
import os

from trimsft.study.running.slots import MOST, CoreSlots, GpuSlots, Slots, count_cores, how_many, visible_gpus
from trimsft.study.running.steps import CellJob, uses_vllm

SHARED_AT_MOST = 4
FOR_GENERATION = 2.0
"""A cell that generates with transformers is given room for as much again as its training takes."""

logger = logging.getLogger("trimsft")


def make_slots(job: CellJob, workers: int | None, cells: int) -> Slots:
    """Room for `workers` cells, or for as many as fit."""
    scale = job.scale
    need = {name: scale.gpus_of(cell) for name, cell in job.cells.items()}
    largest = max(need, key=need.__getitem__)
    if scale.device == "cpu":
        return CoreSlots(workers or max(1, min(how_many(cells), count_cores() // need[largest], cells_in_memory(job))))
    devices = visible_gpus()
    if devices and need[largest] > len(devices):
        raise ValueError(
            f"gpus: {largest} needs {need[largest]} GPUs and there are {len(devices)}; --gpus {len(devices)} takes "
            "fewer"
        )
    if workers is None:
        return GpuSlots(devices, need.__getitem__, together=cells_per_gpu(job))
    few = devices[: workers * need[largest]]
    return GpuSlots(few, need.__getitem__, together=-(-workers // max(1, len(devices))))


def cells_in_memory(job: CellJob) -> int:
    """How many trainings of the largest model the memory of this machine holds; at the lab, more than it has cores."""
    if job.scale.is_lab:
        return MOST
    try:
        needed = max(training_bytes(job, name) for name in _one_per_model(job))
        return max(1, int(0.9 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / needed))
    except Exception as error:  # whatever it stumbles over, one after the other is safe
        logger.info("one cell at a time: no estimate (%s)", error)
        return 1


def cells_per_gpu(job: CellJob) -> int:
    """How many trainings of the largest model of one GPU fit beside each other; 1 where that cannot be known."""
    if uses_vllm(job.scale):
        return 1
    import torch

    if not torch.cuda.is_available():
        return 1
    try:
        needed = max(training_bytes(job, name) for name in _one_per_model(job))
    except Exception as error:  # whatever it stumbles over, one after the other is safe
        logger.info("one cell on a GPU at a time: no estimate (%s)", error)
        return 1
    room = min(torch.cuda.get_device_properties(number).total_memory for number in range(torch.cuda.device_count()))
    return fitting(room, needed)


def fitting(device_bytes: float, needed: float) -> int:
    """Cells that fit on a device together, a tenth of it left free."""
    return max(1, min(SHARED_AT_MOST, int(0.9 * device_bytes / (FOR_GENERATION * needed))))


def _one_per_model(job: CellJob) -> list[str]:
    return list({cell.model: name for name, cell in job.cells.items()}.values())


def training_bytes(job: CellJob, name: str) -> int:
    """Peak memory of one process of a training, rows at their longest."""
    from transformers import AutoConfig

    from trimsft.study.running.training import training_settings
    from trimsft.train.estimate import estimate, plan_from

    cell = job.cells[name]
    settings = training_settings(job.place, job.scale, cell)
    config = AutoConfig.from_pretrained(settings.model.model_name_or_path)
    length = settings.args.max_length or 2048
    rows = settings.args.per_device_train_batch_size
    gpus = job.scale.at(cell.model).gpus
    plan = plan_from(
        config,
        settings.args,
        settings.model,
        lengths=[length] * rows,
        trained_tokens=length * rows,
        processes=gpus,
        sharded=gpus > 1,
    )
    return estimate(plan).total_bytes
