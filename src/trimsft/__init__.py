"""TrimSFT: fine-tune language models on the tokens that matter."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.api import audit_data, compare_runs, evaluate_model, measure_tokens, train_model, write_report
    from trimsft.head import LossOutput, linear_cross_entropy
    from trimsft.models import export_model
    from trimsft.objectives import (
        DFT,
        FSFT,
        OBJECTIVES,
        SFT,
        AutoTrim,
        Objective,
        TokenStats,
        TrimSFT,
        TrimSFTEasy,
        TrimSFTHard,
        make_objective,
    )  # fmt: skip
    from trimsft.train import TrimCallback, TrimSFTConfig, TrimSFTTrainer, patch, unpatch

__version__ = "0.1.0"
__all__ = [
    "DFT", "FSFT", "OBJECTIVES", "SFT", "AutoTrim", "LossOutput", "Objective", "TokenStats", "TrimCallback", "TrimSFT",
    "TrimSFTConfig", "TrimSFTEasy", "TrimSFTHard", "TrimSFTTrainer", "__version__", "audit_data", "compare_runs",
    "evaluate_model", "export_model", "linear_cross_entropy", "make_objective", "measure_tokens", "patch",
    "train_model", "unpatch", "write_report",
]  # fmt: skip
_ROOMS = {
    "api": {"audit_data", "compare_runs", "evaluate_model", "measure_tokens", "train_model", "write_report"},
    "head": {"LossOutput", "linear_cross_entropy"},
    "models": {"export_model"},
    "train": {"TrimCallback", "TrimSFTConfig", "TrimSFTTrainer", "patch", "unpatch"},
}
"""Where names are; all others are in `objectives`."""


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes two seconds and trl five."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = next((room for room, names in _ROOMS.items() if name in names), "objectives")
    return getattr(import_module(f"{__name__}.{room}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
