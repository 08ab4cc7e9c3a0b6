"""Training on TRL: `train_model`, `TrimSFTConfig`, `TrimSFTTrainer`, and `patch` for any other loop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.train.adapting import AdvanceObjective, advance
    from trimsft.train.callback import TrimCallback
    from trimsft.train.config import TrimSFTConfig
    from trimsft.train.outputs import TrimOutput
    from trimsft.train.patching import FusedHead, patch, unpatch
    from trimsft.train.run import TrainResult, train, train_model
    from trimsft.train.settings import Settings, make_settings, parse
    from trimsft.train.trainer import TrimSFTTrainer

__all__ = [
    "AdvanceObjective",
    "FusedHead",
    "Settings",
    "TrainResult",
    "TrimCallback",
    "TrimOutput",
    "TrimSFTConfig",
    "TrimSFTTrainer",
    "advance",
    "make_settings",
    "parse",
    "patch",
    "train",
    "train_model",
    "unpatch",
]

_HOMES = {
    "TrimCallback": "callback",
    "TrimSFTConfig": "config",
    "TrimSFTTrainer": "trainer",
    **dict.fromkeys(("AdvanceObjective", "advance"), "adapting"),
    "TrimOutput": "outputs",
    **dict.fromkeys(("FusedHead", "patch", "unpatch"), "patching"),
    **dict.fromkeys(("TrainResult", "train", "train_model"), "run"),
    **dict.fromkeys(("Settings", "make_settings", "parse"), "settings"),
}


def __getattr__(name: str) -> Any:
    """trl takes seconds to import: only who trains waits for it."""
    if name in _HOMES:
        return getattr(import_module(f"trimsft.train.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
