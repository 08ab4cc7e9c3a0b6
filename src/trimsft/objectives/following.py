"""What objectives that adapt have in common: sums over the tokens of an update, and a state that `_with` changes."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from trimsft.objectives.base import TokenStats

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor


class FollowsUpdates(ABC):
    """Observes the tokens of an update, see `trimsft.objectives.Adapts`; nothing waits for the device."""

    _seen: Tensor | None = None

    @abstractmethod
    def sums(self, tokens: TokenStats) -> Tensor:
        """What is added up over micro-batches and ranks."""

    @property
    def seen(self) -> Tensor | None:
        return self._seen

    def observe(self, tokens: TokenStats) -> Self:
        sums = self.sums(tokens)
        return self._with(_seen=sums if self._seen is None else self._seen + sums)

    def _with(self, **state: Any) -> Self:
        following = copy.copy(self)
        vars(following).update(state)  # past the frozen dataclass, whose fields do not change
        return following


class FollowsNumber(FollowsUpdates):
    """Follows one number, such as the mean loss of the update before."""

    name: ClassVar[str]
    """What figures call it."""
    start: ClassVar[float]
    """What it is until the first update has ended."""
    _value: Tensor | float | None = None

    @abstractmethod
    def statistic(self, seen: Tensor) -> Tensor:
        """The number that these sums make; a scalar."""

    @property
    def value(self) -> Tensor | float:
        return self.start if self._value is None else self._value

    def advance(self, progress: float, seen: Tensor | None = None) -> Self:
        seen = self._seen if seen is None else seen
        return self._with(_value=self._value if seen is None else self.statistic(seen), _seen=None)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._value is None else {self.name: float(self._value)}

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        return self._with(_value=state.get(self.name), _seen=None)

    def figures(self) -> dict[str, float]:
        return {self.name: float(self.value)}
