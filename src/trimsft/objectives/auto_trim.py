"""AutoTrim: one minus the probability of the model's own strongest other token, above a small floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimsft.objectives.token_stats import TokenStats, require_number

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AutoTrim:
    """w = f + (1 - f) (1 - p_c)^a, with the probability p_c of the strongest other token.

    Where the model is sure of another token the weight is the floor f. Where it is sure of nothing, as in a format that
    it has never seen, the weight is near 1, as in SFT.

    - The floor starves nothing: where all weights are f, Adam, which divides a gradient by its own size, trains as fast
      as if f were 1.
    - The floor bounds noise: tokens that are wrong at a rate q end with a probability near q f / (1 - 2 q), where SFT
      has q.

    The nearest relative is the linear rule of SAFT, w = (1 - alpha) + alpha p, see `SAFT`. Provisional: form and
    constants are under measurement.

    Args:
        floor: f, the least weight.
        power: a; more of it trims more.
    """

    floor: float = 0.03
    power: float = 1.0

    def __post_init__(self) -> None:
        require_number(self, "floor", at_least=0, below=1)
        require_number(self, "power", above=0)

    def weights(self, tokens: TokenStats) -> Tensor:
        # p_c = exp(-nll - gap), and expm1 keeps the digits of a small 1 - p_c
        others = -(-tokens.nll - tokens.gap).clamp(max=0).expm1()
        return self.floor + (1 - self.floor) * others.pow(self.power)
