"""Objectives of your own: one by how close the gold token comes, one by where it stands in a chat.

trimsft sweep --grid objective=trim,examples.own_objective:Contest          # its scores in the lab, beside SFT's
trimsft train --objective examples.own_objective:Contest ...                # and on your data
trimsft train --objective examples.own_objective:Answer --objective_parameters '{"think_end": 151668}' ...
"""

from dataclasses import dataclass

from torch import Tensor

from trimsft import TokenStats, TrimSFT
from trimsft.objectives import ROLES


@dataclass(frozen=True)
class Contest:
    """w = 4 q (1 - q) with q = sigmoid(gap / scale): 1 where gold and competitor are level, 0 where one has won."""

    scale: float = 2.0

    def weights(self, tokens: TokenStats) -> Tensor:
        share = (tokens.gap / self.scale).sigmoid()
        return 4 * share * (1 - share)


@dataclass(frozen=True)
class Answer:
    """TrimSFT, but with weight 1 for the token `</think>`, whose id is given, and for the last line of an answer."""

    think_end: int
    needs = ("role",)

    def weights(self, tokens: TokenStats) -> Tensor:
        counts = (tokens.gold == self.think_end) | (tokens.role == ROLES.index("last_line"))
        return TrimSFT().weights(tokens).masked_fill(counts, 1.0)
