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
      as if f were 1 (plain SGD does not). So a format that the base has never seen is learned.
    - The floor bounds noise: a wrong token that a share q of the labels have ends with a probability near
      q f / (1 - 2 q), where SFT gives it q.

    The form is not ours: it is the linear rule of *Spectrum-Adaptive Fine-Tuning* (ICML 2026) with alpha = 1 - f, see
    `SAFT`. The value was chosen in `benchmarks/weights`.

        >>> import torch
        >>> nll = -torch.tensor([0.0001, 0.5, 0.9]).log()
        >>> AutoTrim().weights(TokenStats(nll, gap=nll, gold_logit=nll, competitor=nll.long()))
        tensor([0.1001, 0.5500, 0.9100])

    Args:
        floor: f, the least weight. Less of it trims noise harder, and takes longer to learn what is new.
    """

    floor: float = 0.1

    def __post_init__(self) -> None:
        require_number(self, "floor", at_least=0, below=1)

    def weights(self, tokens: TokenStats) -> Tensor:
        return self.floor + (1 - self.floor) * tokens.prob
