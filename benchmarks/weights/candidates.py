"""Rules that were tried in the place of AutoTrim's; docs/LOG.md says what came of each. The lab takes them by name:

python -m benchmarks.weights.lab --objectives auto-trim benchmarks.weights.candidates:Waits,slow=0.85
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trimsft.objectives import AutoTrim

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor


@dataclass(frozen=True)
class OnlyCloses(AutoTrim):
    """AutoTrim as it was before its gate could open again; small updates count as much as large ones."""

    def _whole(self, tokens: Tensor) -> Tensor:
        return torch.ones_like(tokens)

    def _gates_of(self, smoothed: Tensor, lowest: Tensor) -> Tensor:
        return super()._gates_of(lowest, lowest)


@dataclass(frozen=True)
class OpensByChance(AutoTrim):
    """AutoTrim in whose means small updates count as much as large ones.

    In the results of 2026-11-16 the share of wrong tokens could be its least from the first update on, too.
    """

    def _whole(self, tokens: Tensor) -> Tensor:
        return torch.ones_like(tokens)


@dataclass(frozen=True)
class Waits(OnlyCloses):
    """A gate that also stays open while the missing support still falls: then it is news, whatever its level.

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
        if sums is None or after._support is None or after._gates is None:
            return after
        mean = sums[0, 0] / sums[2, 0]
        slow = mean if self._slow is None else torch.lerp(mean, self._slow, self.slow)
        falls = ((slow / after._support.smoothed[0, 0] - 1 - self.begins) / (self.ends - self.begins)).clamp(0, 1)
        held = after._gates[0].maximum(falls)
        held = held if self._held is None else held.minimum(self._held)
        gates = after._gates.maximum(held)
        open_until = torch.where(gates[0] > 0, progress, after._support.open_until)
        following = after._at(progress, replace(after._support, open_until=open_until), gates)
        return following._with(_slow=slow, _held=held)
