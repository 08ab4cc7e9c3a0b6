"""TrimSFT: fine-tune language models on the tokens that matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from trimsft.train import TrimSFTConfig, TrimSFTTrainer, patch

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
    "TrimSFTConfig",
    "TrimSFTEasy",
    "TrimSFTHard",
    "TrimSFTTrainer",
    "__version__",
    "linear_cross_entropy",
    "make_objective",
    "patch",
]


def __getattr__(name: str) -> Any:
    """What needs trl is imported when it is first asked for."""
    if name in ("TrimSFTConfig", "TrimSFTTrainer", "patch"):
        from trimsft import train

        return getattr(train, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
