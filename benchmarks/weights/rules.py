"""Rules that are tried beside the package's own. The arena takes them by name:

python -m benchmarks.weights.arena --objectives benchmarks.weights.rules:Floor,floor=0.02
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from trimsft.objectives import TokenStats


@dataclass(frozen=True)
class Floor:
    """w = f + (1 - f) p^a. With a = 1 it is SAFT's linear rule, alpha = 1 - f."""

    floor: float = 0.03
    power: float = 1.0

    def weights(self, tokens: TokenStats) -> Tensor:
        return self.floor + (1 - self.floor) * (-self.power * tokens.nll).exp()


@dataclass(frozen=True)
class Harmonic:
    """w = p / (g + (1 - g) p): SAFT's harmonic rule."""

    g: float = 0.5

    def weights(self, tokens: TokenStats) -> Tensor:
        return tokens.prob / (self.g + (1 - self.g) * tokens.prob)


@dataclass(frozen=True)
class Lead:
    """w = f + (1 - f) (1 - d)^a, d = max(0, p_c - p): the less, the more the model prefers its competitor c.

    Where the model is sure of another token, f is left; where it is sure of none, as in a format that it has never
    seen, the weight is near 1.
    """

    floor: float = 0.03
    power: float = 1.0

    def weights(self, tokens: TokenStats) -> Tensor:
        lead = (-tokens.nll - tokens.gap).exp() - tokens.prob
        return self.floor + (1 - self.floor) * (1 - lead.clamp(0, 1)) ** self.power


@dataclass(frozen=True)
class Ratio:
    """w = f + (1 - f) (p / p_max)^a."""

    floor: float = 0.03
    power: float = 1.0

    def weights(self, tokens: TokenStats) -> Tensor:
        return self.floor + (1 - self.floor) * (self.power * tokens.gap.clamp(max=0)).exp()


@dataclass(frozen=True)
class Rival:
    """w = f + (1 - f) (1 - p_c)^a: one minus the probability of the strongest other token c.

    1 - p_c is p and the mass on neither of the two: where they are alone it is DFT's weight, where the model is sure of
    nothing it is SFT's.
    """

    floor: float = 0.03
    power: float = 1.0

    def weights(self, tokens: TokenStats) -> Tensor:
        rival = (-tokens.nll - tokens.gap).exp().clamp(max=1)
        return self.floor + (1 - self.floor) * (1 - rival) ** self.power


@dataclass(frozen=True)
class Around:
    """w = f_t + (1 - f_t) p, f_t = max(f, s_t^a), s_t: share of the tokens around that the model would not write.

    An error of the data stands alone among tokens that the model knows, a format that it has never seen does not. It
    looks at a row and at nothing else, so accumulation, ranks and packing change nothing; but it is not elementwise, as
    the chunks of the fused head need it, and is for the arena alone, which has all logits at once.

    Args:
        reach: tokens on either side, of the same row; 0 for all of it.
    """

    floor: float = 0.03
    power: float = 2.0
    reach: float = 8
    needs: ClassVar[frozenset[str]] = frozenset({"row"})
    weighs_batches: ClassVar[bool] = True

    def weights(self, tokens: TokenStats) -> Tensor:
        row = tokens.row
        assert row is not None
        at = torch.arange(len(row), device=row.device)
        first, last = torch.searchsorted(row, row), torch.searchsorted(row, row, right=True)
        if self.reach:
            first, last = first.maximum(at - int(self.reach)), last.minimum(at + int(self.reach) + 1)
        before = torch.nn.functional.pad((tokens.gap < 0).float().cumsum(0), (1, 0))
        share = (before[last] - before[first]) / (last - first)
        floor = share.pow(self.power).clamp(min=self.floor)
        return floor + (1 - floor) * tokens.prob


@dataclass(frozen=True)
class TALRBatch:
    """w = max(p^(1 / tau), floor), with tau the mean nll of the tokens that it is given: nearly the published TALR.

    The paper takes the median of the sequences' mean nll. A batch must come in one call, as it does where the logits of
    all models are computed at once; the package's `TALR` has a fixed tau.
    """

    floor: float = 0.01
    weighs_batches: ClassVar[bool] = True

    def weights(self, tokens: TokenStats) -> Tensor:
        tau = tokens.nll.mean().clamp(min=1e-6)
        return (-tokens.nll / tau).exp().clamp(min=self.floor)
