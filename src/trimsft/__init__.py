"""TrimSFT: fine-tune language models on the tokens that matter."""

from trimsft.head import LossOutput, linear_cross_entropy
from trimsft.objectives import (
    DFT,
    FSFT,
    OBJECTIVES,
    SFT,
    Objective,
    TokenStats,
    TrimSFT,
    TrimSFTEasy,
    TrimSFTHard,
    make_objective,
)

__version__ = "0.1.0"

__all__ = [
    "DFT",
    "FSFT",
    "OBJECTIVES",
    "SFT",
    "LossOutput",
    "Objective",
    "TokenStats",
    "TrimSFT",
    "TrimSFTEasy",
    "TrimSFTHard",
    "__version__",
    "linear_cross_entropy",
    "make_objective",
]
