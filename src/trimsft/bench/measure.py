"""Time and peak memory of one training step of a head."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    step: Callable[[], Tensor], inputs: tuple[Tensor, ...], *, seconds: float = 0.1, warmup: int = 3
) -> Measurement:
    """Run `step` (which returns the loss) forward and backward again and again; device time on CUDA.

    A GPU lowers its clocks under load, so each measurement is short and begins after half a second of rest.
    """
    cuda = inputs[0].is_cuda
    for _ in range(warmup):
        _clear(inputs)
        step().backward()
    _clear(inputs)
    gc.collect()
    extra = _peak_cuda(step, inputs) if cuda else _peak_host(step, inputs)
    if cuda:
        time.sleep(0.5)
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - started < seconds and len(times) < 200):
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
    return float(begin.elapsed_time(end))


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


def _peak_host(step: Callable[[], Tensor], inputs: tuple[Tensor, ...]) -> float | None:
    """Linux only: the kernel keeps the peak of the resident memory, and forgets it on request."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    before = _resident_kib("VmRSS")
    step().backward()
    peak = _resident_kib("VmHWM")
    _clear(inputs)
    return (peak - before) / 2**20


def _resident_kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise ValueError(f"/proc/self/status has no {field}")
