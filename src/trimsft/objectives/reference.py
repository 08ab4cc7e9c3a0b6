"""Objectives that compare with a reference model; see docs/objectives.md.

They read `tokens.reference`, log q: the log-probability of the gold token under the reference, which `trimsft tokens`
can store beforehand, so that no second model is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trimsft.objectives.base import TokenStats, require_number, without
from trimsft.objectives.following import FollowsNumber

if TYPE_CHECKING:
    from torch import Tensor

_NEEDS = frozenset({"reference"})


@dataclass(frozen=True)
class ImportanceSFT:
    """w = clip(p / q, low, high): what has become likelier than under the reference counts more.

    This is the per-token form of the authors' code. Its other form, the one of their experiments, has one weight for
    a sequence, exp(2 * mean_t ln(p / q)) up to 16, which the weight of a token cannot know.

    *Supervised Fine Tuning on Curated Data is Reinforcement Learning (and can be improved)* (2025, arXiv:2507.12856).
    """

    low: float = 0.2
    high: float = 1.8
    needs: ClassVar[frozenset[str]] = _NEEDS

    def __post_init__(self) -> None:
        require_number(self, "low", at_least=0)
        require_number(self, "high", at_least=self.low)

    def weights(self, tokens: TokenStats) -> Tensor:
        return _ratio(tokens, self).clamp(self.low, self.high)


@dataclass(frozen=True)
class ProximalSFT:
    """w = r where r = p / q <= 1 + clip, else 0: the gradient of min(r, clip(r, ..., 1 + clip)), as in PPO.

    A token that has become likelier by the factor 1 + clip is left alone. In the paper q is the model itself, some
    updates ago; here it is a fixed reference, so that a token can rise by this factor once and no further.

    *Proximal Supervised Fine-Tuning* (2025, arXiv:2508.17784), with the upper clip of the authors' script; the lower
    one has no effect where every token is to become likelier.
    """

    clip: float = 0.28
    needs: ClassVar[frozenset[str]] = _NEEDS

    def __post_init__(self) -> None:
        require_number(self, "clip", above=0)

    def weights(self, tokens: TokenStats) -> Tensor:
        ratio = _ratio(tokens, self)
        return ratio.where(ratio <= 1 + self.clip, 0.0)


@dataclass(frozen=True)
class ASFT:
    """w = p + kl * (1 - (1 - q) / (1 - p)): DFT, and a pull towards the reference where p has risen above q.

    The paper adds kl * KL(reference || model) over the whole vocabulary to DFT's loss. The log-probability of the gold
    token is enough for the part of it that tells the gold token from all others together,

        q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)),

    which is never more than the whole; of this part the weight gives the exact gradient. What is left out is how the
    rest of the probability is shared among the other tokens.

    *Anchored Supervised Fine-Tuning* (2025, arXiv:2509.23753), with the weight of the KL of the authors' code.
    """

    kl: float = 0.1
    needs: ClassVar[frozenset[str]] = _NEEDS

    def __post_init__(self) -> None:
        require_number(self, "kl", at_least=0)

    def weights(self, tokens: TokenStats) -> Tensor:
        other = -_reference(tokens, self).expm1()
        # a weight times 1 - p is bounded, the weight itself is not: 1 - p below a step of float32 counts as that step
        return tokens.prob + self.kl * (1 - other / tokens.doubt.clamp(min=2.0**-24))


@dataclass(frozen=True)
class Rho1(FollowsNumber):
    """w = 1 for the share of tokens with the largest excess loss, ln q - ln p, else 0.

    What the reference knows and the model does not is learned; what is hard for both is left out. The reference
    should know the task better than the model at its start, which compared with itself has no excess at all: in the
    paper it is trained on clean data. The paper takes the share of each batch. A weight here sees one token, so the
    bound is the one that would have been right for the update before, to 0.05; until the first one has ended it is 0.
    The paper also divides by the number of chosen tokens, here the loss is divided by all.

    *Rho-1: Not All Tokens Are What You Need* (2024, arXiv:2404.07965).
    """

    share: float = 0.6
    name: ClassVar[str] = "excess_bound"
    start: ClassVar[float] = 0.0
    needs: ClassVar[frozenset[str]] = _NEEDS

    def __post_init__(self) -> None:
        require_number(self, "share", above=0, below=1)

    def weights(self, tokens: TokenStats) -> Tensor:
        return (_excess(tokens, self) >= self.value).float()

    def sums(self, tokens: TokenStats) -> Tensor:
        """How many tokens lie below each of the edges, and how many there are."""
        import torch

        ordered = _excess(tokens, self).sort().values
        below = torch.searchsorted(ordered, _edges(ordered))
        return torch.cat([below, torch.full_like(below[:1], len(ordered))]).float()

    def statistic(self, seen: Tensor) -> Tensor:
        import torch

        below, wanted = seen[:-1], (1 - self.share) * seen[-1:]
        edges = _edges(below)
        right = torch.searchsorted(below.contiguous(), wanted).clamp(1, len(edges) - 1)
        left_count, right_count = below[right - 1], below[right]
        part = ((wanted - left_count) / (right_count - left_count).clamp(min=1)).clamp(0, 1)
        return (edges[right - 1] + part * (edges[right] - edges[right - 1])).squeeze(0)


def _edges(like: Tensor) -> Tensor:
    """Between which the excess is counted: -10 to 10 nats in steps of 0.05."""
    import torch

    return torch.linspace(-10, 10, 401, device=like.device, dtype=like.dtype)


def _reference(tokens: TokenStats, objective: object) -> Tensor:
    if tokens.reference is None:
        raise without("reference", objective)
    return tokens.reference


def _ratio(tokens: TokenStats, objective: object) -> Tensor:
    """p / q."""
    return (-tokens.nll - _reference(tokens, objective)).exp()


def _excess(tokens: TokenStats, objective: object) -> Tensor:
    return tokens.nll + _reference(tokens, objective)
