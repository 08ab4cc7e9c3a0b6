"""An objective of your own: weight by how close the gold token comes to the model's first choice.

trimsft sweep --grid objective=trim,examples.own_objective:Contest          # its scores in the lab, beside SFT's
trimsft train --objective examples.own_objective:Contest ...                # and on your data
"""

from dataclasses import dataclass

from torch import Tensor

from trimsft import TokenStats


@dataclass(frozen=True)
class Contest:
    """w = 4 q (1 - q) with q = sigmoid(gap / scale): 1 where gold and competitor are level, 0 where one has won."""

    scale: float = 2.0

    def weights(self, tokens: TokenStats) -> Tensor:
        share = (tokens.gap / self.scale).sigmoid()
        return 4 * share * (1 - share)
