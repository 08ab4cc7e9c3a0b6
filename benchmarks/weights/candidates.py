"""Rules that may follow AutoTrim's, not measured enough yet; the lab takes them by name and parameters:

python -m benchmarks.weights.lab --objectives auto-trim benchmarks.weights.candidates:Waits,slow=0.85
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trimsft.objectives import AutoTrim

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor


@dataclass(frozen=True)
class Waits(AutoTrim):
    """AutoTrim whose gate also stays open while the missing support still falls: then it is news, whatever its level.

    Args:
        slow: how much of the missing support of the updates before the slow mean keeps.
        begins: how far the slow mean must be above the fast one, as a share of it, for the gate to be kept open.
        ends: how far for it to be kept as open as it was.
    """

    slow: float = 0.88
    begins: float = 0.25
    ends: float = 0.6

    _slow: ClassVar[Any] = None
    _held: ClassVar[Any] = None

    def advance(self, progress: float, seen: Tensor | None = None) -> Self:
        sums = self._seen if seen is None else seen
        after = super().advance(progress, seen)
        if sums is None or after._support is None:
            return after
        mean = sums[0, 0] / sums[1, 0]
        slow = mean if self._slow is None else torch.lerp(mean, self._slow, self.slow)
        falls = ((slow / after._support.smoothed[0] - 1 - self.begins) / (self.ends - self.begins)).clamp(0, 1)
        held = AutoTrim._gates(self, after._support.lowest)[0].maximum(falls)
        return after._with(_slow=slow, _held=held if self._held is None else held.minimum(self._held))

    def _gates(self, lowest: Tensor) -> Tensor:
        gates = super()._gates(lowest)
        return gates if self._held is None else gates.maximum(self._held.to(gates))
