"""The methods of *Which Tokens Should SFT Actually Learn?* (section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from trimsft.objectives.token_stats import TokenStats, require_number

if TYPE_CHECKING:
    from torch import Tensor

MARGIN, BANDWIDTH, GAMMA = 1.5, 0.8, 2.0
"""The paper's values of m, tau and gamma."""
HIGH_WEIGHT = 0.5
"""Tokens above this weight are High-Weight tokens (the paper's appendix on weights)."""


class Setting(NamedTuple):
    """(m, tau)."""

    margin: float
    bandwidth: float


@dataclass(frozen=True)
class SFT:
    """w = 1."""

    def weights(self, tokens: TokenStats) -> Tensor:
        return tokens.nll.new_ones(tokens.nll.shape)


@dataclass(frozen=True)
class FSFT:
    """w = (1 - p)^gamma: the focal loss, which favours tokens the model doubts."""

    gamma: float = GAMMA

    def __post_init__(self) -> None:
        require_number(self, "gamma", at_least=0)

    def weights(self, tokens: TokenStats) -> Tensor:
        return tokens.doubt.pow(self.gamma)


@dataclass(frozen=True)
class DFT:
    """w = p, which undoes the 1/p in the gradient of cross-entropy."""

    def weights(self, tokens: TokenStats) -> Tensor:
        return tokens.prob


@dataclass(frozen=True)
class _Band:
    """The Gaussian band that TrimSFT and its half-trims share."""

    margin: float = MARGIN
    bandwidth: float = BANDWIDTH

    def __post_init__(self) -> None:
        require_number(self, "margin")
        require_number(self, "bandwidth", above=0)

    def _gaussian(self, distance: Tensor) -> Tensor:
        # a bandwidth that float32 rounds to 0 would make 0/0 of a gap on the margin
        return (-0.5 * (distance / max(self.bandwidth, 2.0**-126)) ** 2).exp()


@dataclass(frozen=True)
class TrimSFT(_Band):
    """w = exp(-(gap - m)^2 / (2 tau^2)): trims mastered tokens and tokens out of reach (eq. 3)."""

    trims: ClassVar[bool] = True

    def weights(self, tokens: TokenStats) -> Tensor:
        return self._gaussian(tokens.gap - self.margin)


@dataclass(frozen=True)
class TrimSFTEasy(_Band):
    """TrimSFT-E: full weight for gap >= m, Gaussian decay below; trims the hard side only (eq. 5)."""

    def weights(self, tokens: TokenStats) -> Tensor:
        return self._gaussian((tokens.gap - self.margin).clamp(max=0))


@dataclass(frozen=True)
class TrimSFTHard(_Band):
    """TrimSFT-H: full weight for gap <= m, Gaussian decay above; trims the easy side only (eq. 6)."""

    def weights(self, tokens: TokenStats) -> Tensor:
        return self._gaussian((tokens.gap - self.margin).clamp(min=0))
