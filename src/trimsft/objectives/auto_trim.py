"""AutoTrim: DFT above a floor, so that nothing that the data teaches is given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimsft.objectives.token_stats import TokenStats, require_number

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AutoTrim:
    """w = f + (1 - f) p: what the model believes counts fully, what it does not believe a little.

    - The floor starves nothing: where all weights are f, Adam, which divides a gradient by its own size, trains as fast
      as if f were 1. So a format that the base has never seen is learned, which DFT (f = 0) never does.
    - The floor bounds noise: tokens that are wrong at a rate q end with a probability near q f / (1 - 2 q), where SFT
      has q.

    The form is the linear rule of SAFT with alpha = 1 - f, see `SAFT`; the value was chosen in `benchmarks/weights`.
    A weight depends on its token alone: accumulation, ranks, packing and resuming change nothing.

    Args:
        floor: f, the least weight. Less of it trims noise harder, and takes longer to learn what is new.
    """

    floor: float = 0.1

    def __post_init__(self) -> None:
        require_number(self, "floor", at_least=0, below=1)

    def weights(self, tokens: TokenStats) -> Tensor:
        return self.floor + (1 - self.floor) * tokens.prob
