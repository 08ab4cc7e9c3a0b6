"""Training on TRL: `train_model`, `TrimSFTConfig`, `TrimSFTTrainer`, and `patch` for any other loop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.train.config import Settings, TrimSFTConfig, make_settings, parse
    from trimsft.train.patching import FusedHead, TrimCallback, TrimOutput, patch, unpatch
    from trimsft.train.run import TrainResult, train, train_model
    from trimsft.train.trainer import TrimSFTTrainer

__all__ = [
    "FusedHead", "Settings", "TrainResult", "TrimCallback", "TrimOutput", "TrimSFTConfig",
    "TrimSFTTrainer", "make_settings", "parse", "patch", "train", "train_model", "unpatch",
]  # fmt: skip

_HOMES = {
    "config": ("Settings", "TrimSFTConfig", "make_settings", "parse"),
    "patching": ("FusedHead", "TrimCallback", "TrimOutput", "patch", "unpatch"),
    "run": ("TrainResult", "train", "train_model"),
    "trainer": ("TrimSFTTrainer",),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: trl takes seconds, and only who trains waits for it."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"trimsft.train.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
