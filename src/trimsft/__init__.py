"""TrimSFT: fine-tune language models on the tokens that matter."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    **dict.fromkeys(("LossOutput", "linear_cross_entropy"), "trimsft.head"),
    **dict.fromkeys(("TrimSFTConfig", "TrimSFTTrainer", "patch"), "trimsft.train"),
}


def __getattr__(name: str) -> Any:
    """torch takes two seconds to import and trl five: who only asks for help does not wait for them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "trimsft.objectives")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
