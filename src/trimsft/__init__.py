"""TrimSFT: fine-tune language models on the tokens that matter."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.api import audit_data as audit_data
    from trimsft.api import compare_runs as compare_runs
    from trimsft.api import evaluate_model as evaluate_model
    from trimsft.api import measure_tokens as measure_tokens
    from trimsft.api import train_model as train_model
    from trimsft.api import write_report as write_report
    from trimsft.head import LossOutput as LossOutput
    from trimsft.head import linear_cross_entropy as linear_cross_entropy
    from trimsft.models import export_model as export_model
    from trimsft.objectives import DFT as DFT
    from trimsft.objectives import FSFT as FSFT
    from trimsft.objectives import OBJECTIVES as OBJECTIVES
    from trimsft.objectives import SFT as SFT
    from trimsft.objectives import AutoTrim as AutoTrim
    from trimsft.objectives import Objective as Objective
    from trimsft.objectives import TokenStats as TokenStats
    from trimsft.objectives import TrimSFT as TrimSFT
    from trimsft.objectives import TrimSFTEasy as TrimSFTEasy
    from trimsft.objectives import TrimSFTHard as TrimSFTHard
    from trimsft.objectives import make_objective as make_objective
    from trimsft.train import TrimCallback as TrimCallback
    from trimsft.train import TrimSFTConfig as TrimSFTConfig
    from trimsft.train import TrimSFTTrainer as TrimSFTTrainer
    from trimsft.train import patch as patch
    from trimsft.train import unpatch as unpatch

__version__ = "0.1.0"

_HOMES = {
    "api": ("audit_data", "compare_runs", "evaluate_model", "measure_tokens", "train_model", "write_report"),
    "models": ("export_model",),
    "head": ("LossOutput", "linear_cross_entropy"),
    "objectives": (
        "DFT", "FSFT", "OBJECTIVES", "SFT", "AutoTrim", "Objective", "TokenStats", "TrimSFT", "TrimSFTEasy",
        "TrimSFTHard", "make_objective",
    ),
    "train": (
        "TrimCallback", "TrimSFTConfig", "TrimSFTTrainer", "patch", "unpatch",
    ),
}  # fmt: skip
_ROOMS = {name: room for room, names in _HOMES.items() for name in names}
__all__ = ["__version__", *_ROOMS]


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes two seconds and trl five, for which who only asks for help does not wait."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
