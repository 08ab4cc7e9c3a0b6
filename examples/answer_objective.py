"""An objective that looks at where a token stands: the end of the thoughts and the last line always count.

trimsft train --objective examples.answer_objective:Answer --objective_parameters '{"think_end": 151668}' ...
"""

from dataclasses import dataclass

from torch import Tensor

from trimsft import TokenStats, TrimSFT
from trimsft.objectives import ROLES


@dataclass(frozen=True)
class Answer:
    """TrimSFT, but with weight 1 for the token `</think>`, whose id is given, and for the last line of an answer."""

    think_end: int
    needs = ("role",)

    def weights(self, tokens: TokenStats) -> Tensor:
        counts = (tokens.gold == self.think_end) | (tokens.role == ROLES.index("last_line"))
        return TrimSFT().weights(tokens).masked_fill(counts, 1.0)
