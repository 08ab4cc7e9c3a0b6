"""Time and peak memory of one training step of a head."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Measurement:
    milliseconds: float
    """Median of the repeats."""
    fastest: float
    slowest: float
    extra_gib: float | None
    """Peak memory above inputs and weights, the gradients included; None where it was not measured."""


def measure(
    step: Callable[[], Tensor], inputs: tuple[Tensor, ...], *, seconds: float = 1.0, warmup: int = 3
) -> Measurement:
    """Run `step` (which returns the loss) forward and backward again and again; device time on CUDA."""
    cuda = inputs[0].is_cuda
    for _ in range(warmup):
        _clear(inputs)
        step().backward()
    _clear(inputs)
    gc.collect()
    extra = _peak_cuda(step, inputs) if cuda else None
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - started < seconds and len(times) < 200):
        _clear(inputs)
        times.append(_time_cuda(step) if cuda else _time_host(step))
    _clear(inputs)
    return Measurement(statistics.median(times), min(times), max(times), extra)


def _clear(inputs: tuple[Tensor, ...]) -> None:
    for tensor in inputs:
        tensor.grad = None


def _time_cuda(step: Callable[[], Tensor]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    step().backward()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def _time_host(step: Callable[[], Tensor]) -> float:
    begin = time.perf_counter()
    step().backward()
    return 1e3 * (time.perf_counter() - begin)


def _peak_cuda(step: Callable[[], Tensor], inputs: tuple[Tensor, ...]) -> float:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step().backward()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    _clear(inputs)
    return (peak - before) / 2**30


def peak_resident_gib() -> float:
    """Peak resident memory of this process so far: for a step measured in a process of its own, on the CPU."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
