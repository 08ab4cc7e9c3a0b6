"""What each token is worth: one small frozen class per method.

Every method has the form  loss = sum_t sg(w_t) * nll_t  and differs only in the weight w_t
(section 3.3 of *Which Tokens Should SFT Actually Learn?*). A weight is a function of what the
forward pass says about one token, `TokenStats`:

    >>> import torch
    >>> tokens = TokenStats(nll=torch.tensor([0.1, 2.3]), gap=torch.tensor([1.5, -1.0]),
    ...                     gold_logit=torch.tensor([9.0, 4.0]), competitor=torch.tensor([17, 3]))
    >>> TrimSFT(margin=1.5, bandwidth=0.8).weights(tokens)
    tensor([1.0000, 0.0076])

Nothing here imports torch: who only needs the names and the defaults does not wait for it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from trimsft.options import unknown_name

if TYPE_CHECKING:
    from torch import Tensor

MARGIN, BANDWIDTH, GAMMA = 1.5, 0.8, 2.0
"""The paper's values of m, tau and gamma."""
PARAMETERS = {"margin": MARGIN, "bandwidth": BANDWIDTH, "gamma": GAMMA}


@dataclass(frozen=True)
class TokenStats:
    """What one forward pass says about each trained token: detached, one entry per token, in order."""

    nll: Tensor
    """Cross-entropy, -log p(gold); float32."""
    gap: Tensor
    """Gold logit minus the largest other logit; float32. Positive: the gold token is the top prediction."""
    gold_logit: Tensor
    """Logit of the gold token, after scaling and softcap; float32."""
    competitor: Tensor
    """Id of the largest other logit; int64."""
    entropy: Tensor | None = None
    """Entropy of the predicted distribution in nats, where it was asked for; float32."""

    @property
    def prob(self) -> Tensor:
        """Probability of the gold token."""
        return (-self.nll).exp()

    @property
    def doubt(self) -> Tensor:
        """1 - prob without cancellation: the size of the gold token's logit gradient."""
        return -(-self.nll).expm1()

    def __len__(self) -> int:
        return self.nll.numel()

    def __getitem__(self, rows: slice | Tensor) -> TokenStats:
        parts: list[Any] = [None if values is None else values[rows] for values in vars(self).values()]
        return TokenStats(*parts)


@runtime_checkable
class WeighsTokens(Protocol):
    """An objective: `weights` is pure, elementwise and never differentiated."""

    def weights(self, tokens: TokenStats) -> Tensor: ...


Objective: TypeAlias = "WeighsTokens | Callable[[TokenStats], Tensor]"
"""An objective of this module, or any elementwise function from `TokenStats` to weights."""


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
        _require_number(self, "gamma", at_least=0)

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
        _require_number(self, "margin")
        _require_number(self, "bandwidth", above=0)

    def _gaussian(self, distance: Tensor) -> Tensor:
        # a bandwidth that float32 rounds to 0 would make 0/0 of a gap on the margin
        return (-0.5 * (distance / max(self.bandwidth, 2.0**-126)) ** 2).exp()


@dataclass(frozen=True)
class TrimSFT(_Band):
    """w = exp(-(gap - m)^2 / (2 tau^2)): trims mastered tokens and tokens out of reach (eq. 3)."""

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


BuiltinObjective: TypeAlias = SFT | FSFT | DFT | TrimSFT | TrimSFTEasy | TrimSFTHard

OBJECTIVES: dict[str, type[BuiltinObjective]] = {
    "sft": SFT,
    "fsft": FSFT,
    "dft": DFT,
    "trim": TrimSFT,
    "trim-e": TrimSFTEasy,
    "trim-h": TrimSFTHard,
}
PAPER_NAMES = dict(zip(OBJECTIVES, ("SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H"), strict=True))
"""What the paper calls them, in the order of its tables."""


def make_objective(name: str, **parameters: float) -> BuiltinObjective:
    """The objective of that name, for instance `make_objective("trim", margin=1.0)`."""
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    kind = OBJECTIVES[name]
    fields = [field.name for field in dataclasses.fields(kind)]
    for parameter in parameters:
        if parameter not in fields:
            takes = f"it takes {', '.join(fields)}" if fields else "it takes no parameters"
            raise ValueError(f"objective {name!r} has no parameter {parameter!r}; {takes}")
    return kind(**parameters)


def is_finite_number(value: Any) -> bool:
    """Whether it is a number and no truth value, NaN or infinity."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _require_number(objective: object, field: str, *, at_least: float = -math.inf, above: float = -math.inf) -> None:
    value = getattr(objective, field)
    if is_finite_number(value) and value >= at_least and value > above:
        return
    bound = f" > {above:g}" if above > -math.inf else f" >= {at_least:g}" if at_least > -math.inf else ""
    raise ValueError(f"{type(objective).__name__}: {field} must be a finite number{bound}, got {value!r}")
