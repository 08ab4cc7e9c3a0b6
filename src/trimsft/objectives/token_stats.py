"""The statistics of tokens that an objective sees, and the interface of an objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from trimsft.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


ROLES = ("prompt", "thinking", "tool", "answer", "last_line")
"""Parts of a chat: `tool` is a call or its result, `last_line` the end of an answer, which `answer` is the rest of."""


@dataclass(frozen=True)
class TokenStats:
    """The statistics of one forward pass about each trained token: detached, one entry per token, in order."""

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
    gold: Tensor | None = None
    """Id of the gold token, where the head knows it; int64."""
    rank: Tensor | None = None
    """1 + how many logits are larger than the gold token's; int32. This and the next ones where an objective `needs`
    them. Of half-precision logits on CUDA it is the rank among the rounded ones."""
    gradient_norm: Tensor | None = None
    """||softmax(z) - onehot(gold)||_2; float32."""
    position: Tensor | None = None
    """Place of the token in its text, from 0; int64."""
    row: Tensor | None = None
    """Number of its text within the micro-batch; int64."""
    role: Tensor | None = None
    """Index into `ROLES`; int64."""
    data_weight: Tensor | None = None
    """Weight by the data, by which the weight of the objective is multiplied in any case; float32."""

    @property
    def prob(self) -> Tensor:
        """Probability of the gold token."""
        return (-self.nll).exp()

    @property
    def doubt(self) -> Tensor:
        """1 - prob without cancellation: the size of the gold token's logit gradient."""
        return -(-self.nll).expm1()

    @property
    def collision(self) -> Tensor | None:
        """Sum of p_v^2 over the vocabulary, from the gradient norm: 1 where the model is sure of a token."""
        norm = self.gradient_norm
        return None if norm is None else (norm**2 - self.doubt**2 + self.prob**2).clamp(0, 1)

    def required(self, name: str, objective: object) -> Tensor:
        """Return a statistic that an objective needs, or raise an error that says so."""
        values: Tensor | None = getattr(self, name)
        if values is not None:
            return values
        problem = f"{type(objective).__name__} needs the {name} of each token, and there is none"
        hint = f"ask the head for it: needs = frozenset({{{name!r}}}) in its class"
        if name in ("position", "row", "role", "data_weight"):
            hint = "TrimSFTTrainer gives it; for a loop see token_roles of patch and facts of linear_cross_entropy"
        raise UsageError(problem, field="objective", hint=hint)

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


def needs_of(objective: Any) -> frozenset[str]:
    """Return which optional statistics of a token an objective cannot do without, such as "entropy" or "role".

    A class says so in its attribute `needs`; a plain function takes what there is.
    """
    return frozenset(getattr(objective, "needs", ()))


def is_finite_number(value: Any) -> bool:
    """Return whether it is a number and no truth value, NaN or infinity."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def require_number(
    objective: object, field: str, *, at_least: float = -math.inf, above: float = -math.inf, below: float = math.inf
) -> None:
    value = getattr(objective, field)
    if is_finite_number(value) and value >= at_least and value > above and value < below:
        return
    bounds = {
        f" > {above:g}": above > -math.inf,
        f" >= {at_least:g}": at_least > -math.inf,
        f" < {below:g}": below < math.inf,
    }
    bound = " and".join(text for text, is_given in bounds.items() if is_given)
    raise UsageError(f"must be a finite number{bound}", field=field, value=value)
