"""How many cells go side by side on one machine, and which GPUs each may see.

>>> slots = GpuSlots(["0", "1", "2"], need=lambda name: 2 if name == "large" else 1)
>>> slots.take("small"), slots.take("large"), slots.take("large")
({'CUDA_VISIBLE_DEVICES': '0'}, {'CUDA_VISIBLE_DEVICES': '1,2'}, None)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

MOST = 6
"""Processes on the cores: each takes most of a gigabyte."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
SHARE = "TRIMSFT_GPU_SHARE"
"""How much of a GPU's memory generation may take where several cells share it."""


class Slots(Protocol):
    """Room for items at work."""

    def take(self, name: str) -> Mapping[str, str] | None:
        """Variables of the process that does it; None where there is no room now."""

    def give_back(self, slot: Mapping[str, str]) -> None:
        """What `take` gave."""


def count_cores() -> int:
    """Those that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def how_many(items: int) -> int:
    """As many workers as there are cores for this process, at most one for each item."""
    return max(1, min(count_cores(), MOST, items))


class CoreSlots:
    """One core each; unless they may see them, without GPUs, so that figures are the same everywhere."""

    def __init__(self, count: int, *, sees_gpus: bool = False) -> None:
        self._free = count
        self._variables = {"OMP_NUM_THREADS": "1"} | ({} if sees_gpus else {VISIBLE: ""})

    def take(self, name: str) -> Mapping[str, str] | None:
        if not self._free:
            return None
        self._free -= 1
        return self._variables

    def give_back(self, slot: Mapping[str, str]) -> None:
        self._free += 1


class GpuSlots:
    """Some GPUs each; those that need one may share it, those that need several have them to themselves."""

    def __init__(self, devices: Sequence[str], need: Callable[[str], int], *, together: int = 1) -> None:
        if not devices:
            raise ValueError("device: 'cuda' needs a GPU, and there is none; --device cpu does without")
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


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        return [device.strip() for device in named.split(",") if device.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
