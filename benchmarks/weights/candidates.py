"""Rules that were tried in the place of AutoTrim's; docs/LOG.md says what came of each. The lab takes them by name:

python -m benchmarks.weights.lab --objectives auto-trim benchmarks.weights.candidates:Waits,slow=0.85
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from trimsft.objectives import AutoTrim, TokenStats

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor

Rule = TypeVar("Rule", bound=AutoTrim)


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
        held = after._gates[0].maximum(falls)
        held = held if self._held is None else held.minimum(self._held)
        return _opened(after, held)._with(_slow=slow, _held=held)


@dataclass(frozen=True)
class Recovers(AutoTrim):
    """AutoTrim whose gate opens again while more tokens have a competitor above them than at the best so far.

    Noise does not become more by being ignored; what the model knew does, where the learning rate is too high.

    Args:
        begins: how much larger the share of such tokens must be for the gate to open, beside a tenth of the smallest.
        ends: how much larger for it to be open, likewise.
    """

    begins: float = 0.01
    ends: float = 0.02

    _wrong: ClassVar[Any] = None
    _least: ClassVar[Any] = None

    def sums(self, tokens: TokenStats) -> Tensor:
        sums = super().sums(tokens)
        wrong = torch.zeros_like(sums[:1])
        wrong[0, 0] = (tokens.gap < 0).sum()
        return torch.cat([sums, wrong])

    def advance(self, progress: float, seen: Tensor | None = None) -> Self:
        sums = self._seen if seen is None else seen
        after = super().advance(progress, None if sums is None else sums[:2])
        if sums is None:
            return after
        share = sums[2, 0] / sums[1, 0]
        wrong = share if self._wrong is None else torch.lerp(share, self._wrong, self.smoothing)
        least = wrong if self._least is None else self._least.minimum(wrong)
        worse = ((wrong - 1.1 * least - self.begins) / (self.ends - self.begins)).clamp(0, 1)
        return _opened(after, worse)._with(_wrong=wrong, _least=least)


def _opened(objective: Rule, gate: Tensor) -> Rule:
    """With its gates as far open as this one at least."""
    gates = objective._gates.maximum(gate)
    open_until = torch.where(gates[0] > 0, objective._progress, objective._support.open_until)
    return objective._at(objective._progress, replace(objective._support, open_until=open_until), gates)
