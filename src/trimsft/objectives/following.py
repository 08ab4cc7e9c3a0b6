"""Objectives that follow one number of the training, such as the mean loss of the update before."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar

from trimsft.objectives.base import TokenStats

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self


class FollowsUpdates:
    """The state of such an objective (see `trimsft.objectives.Adapts`): a statistic of the tokens of the last update.

    A subclass says which sums are taken of the tokens, and what statistic they make. Nothing waits for the device.
    """

    name: ClassVar[str]
    """What figures call the statistic."""
    start: ClassVar[float]
    """What it is until the first update has ended."""
    _value: Tensor | float | None = None
    _seen: Tensor | None = None

    def sums(self, tokens: TokenStats) -> Tensor:
        """What is added up over micro-batches and ranks; float32."""
        raise NotImplementedError

    def statistic(self, seen: Tensor) -> Tensor:
        """The number that these sums make; a scalar."""
        raise NotImplementedError

    @property
    def value(self) -> Tensor | float:
        return self.start if self._value is None else self._value

    @property
    def seen(self) -> Tensor | None:
        return self._seen

    def observe(self, tokens: TokenStats) -> Self:
        sums = self.sums(tokens)
        return self._with(self._value, sums if self._seen is None else self._seen + sums)

    def advance(self, progress: float, seen: Tensor | None = None) -> Self:
        seen = self._seen if seen is None else seen
        return self._with(self._value if seen is None else self.statistic(seen), None)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._value is None else {self.name: float(self._value)}

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        return self._with(state.get(self.name), None)

    def figures(self) -> dict[str, float]:
        return {self.name: float(self.value)}

    def _with(self, value: Tensor | float | None, seen: Tensor | None) -> Self:
        following = copy.copy(self)
        vars(following).update(_value=value, _seen=seen)  # past the frozen dataclass, whose fields do not change
        return following
