"""Rules that are tried beside the package's own. The arena takes them by name:

python -m benchmarks.weights.arena --objectives benchmarks.weights.rules:Floor,floor=0.02
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimsft.objectives import TrimSFT, TrimSFTEasy

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
class FloorEasy:
    """w = f + (1 - f) w_E: the floor under TrimSFT-E."""

    floor: float = 0.03
    margin: float = 1.5
    bandwidth: float = 0.8

    def weights(self, tokens: TokenStats) -> Tensor:
        return self.floor + (1 - self.floor) * TrimSFTEasy(self.margin, self.bandwidth).weights(tokens)


@dataclass(frozen=True)
class FloorBelow:
    """The floor under TrimSFT's lower flank alone: tokens above the margin are trimmed to nothing."""

    floor: float = 0.03
    margin: float = 6.0
    bandwidth: float = 2.0

    def weights(self, tokens: TokenStats) -> Tensor:
        band = TrimSFT(self.margin, self.bandwidth).weights(tokens)
        return band.where(tokens.gap >= self.margin, self.floor + (1 - self.floor) * band)


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
