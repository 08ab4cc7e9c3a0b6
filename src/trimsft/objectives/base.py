"""What an objective sees of a token, and what it must offer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from trimsft.errors import UsageError

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor


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
    gold: Tensor | None = None
    """Id of the gold token, where the head knows it; int64."""

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


@runtime_checkable
class Adapts(WeighsTokens, Protocol):
    """An objective that follows the training. It is as pure as the others: what it has seen is part of its value,
    and each step makes a new objective.

    Within an update its weights do not change, so micro-batches and ranks may come in any number and order:

        for each micro-batch:  objective = objective.observe(tokens)
        after the update:      objective = objective.advance(progress)
    """

    @property
    def seen(self) -> Tensor | None:
        """Sums over the tokens observed since the last `advance`; they add up over micro-batches and ranks."""
        ...

    def observe(self, tokens: TokenStats) -> Self:
        """The objective after one more micro-batch of the update."""
        ...

    def advance(self, progress: float, seen: Tensor | None = None) -> Self:
        """The objective of the next update.

        Args:
            progress: how much of the training is done, in [0, 1].
            seen: what was observed, summed over all ranks; by default `self.seen`.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """What it has learned so far, as plain numbers; `load_state_dict` restores it exactly."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> Self: ...

    def figures(self) -> dict[str, float]:
        """What a person should see of its state, by name; reading them waits for the device."""
        ...


Objective: TypeAlias = "WeighsTokens | Callable[[TokenStats], Tensor]"
"""An objective of this module, or any elementwise function from `TokenStats` to weights."""


def needs_of(objective: Any) -> frozenset[str]:
    """Return which optional statistics of a token an objective cannot do without: "entropy", or none.

    A class says so in its attribute `needs`; a plain function takes what there is.
    """
    return frozenset(getattr(objective, "needs", ()))


def without(statistic: str, objective: Any) -> UsageError:
    """Return the error where a statistic that an objective needs is not there."""
    problem = f"{type(objective).__name__} needs the {statistic} of each token, and there is none"
    return UsageError(problem, field="objective", hint=f"ask the head for it: {statistic}=True")


def is_finite_number(value: Any) -> bool:
    """Whether it is a number and no truth value, NaN or infinity."""
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
