"""One size in one process: CPU seconds, and the memory that came on top of what was there before.

with Measured() as cost:
    work()
cost.as_dict()        # {"seconds": 1.84, "peak_mb": 131.2}

Seconds are those of the process on the processor, all threads, so that other programs count little. Memory is the
largest resident set after the start less the resident set at the start, as Linux counts them.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class Measured:
    """What happens between its beginning and its end."""

    def __enter__(self) -> Measured:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._before = _status("VmRSS")
        self._start = time.process_time(), _of_children()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.process_time() - self._start[0] + _of_children() - self._start[1]
        self.peak_mb = _status("VmHWM") - self._before

    def as_dict(self) -> dict[str, float]:
        return {"seconds": round(self.seconds, 4), "peak_mb": round(self.peak_mb, 1)}


def _status(name: str) -> float:
    """A line of /proc/self/status, in MB of 2^20 bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float | None:
    """The exponent b of cost = a size^b, fitted to the logarithms; None where there is nothing to fit."""
    pairs = [(math.log(size), math.log(cost)) for size, cost in zip(sizes, costs, strict=True) if cost > 0]
    return round(float(np.polyfit(*zip(*pairs, strict=True), 1)[0]), 3) if len(pairs) > 1 else None


def summary(sizes: Sequence[int], points: Sequence[Mapping[str, Any]], key: str) -> dict[str, float | None]:
    """The exponent over all sizes, and over the last two, where what does not grow counts least."""
    costs = [float(point[key]) for point in points]
    return {"slope": slope(sizes, costs), "slope_at_the_end": slope(sizes[-2:], costs[-2:])}
