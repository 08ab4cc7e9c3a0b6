"""Training on TRL: `TrimSFTConfig`, `TrimSFTTrainer`, and `patch` for any other loop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.train.config import TrimSFTConfig
    from trimsft.train.patching import FusedHead, TrimOutput, patch
    from trimsft.train.trainer import TrimSFTTrainer

__all__ = ["FusedHead", "TrimOutput", "TrimSFTConfig", "TrimSFTTrainer", "patch"]

_HOMES = {
    "FusedHead": "patching",
    "TrimOutput": "patching",
    "TrimSFTConfig": "config",
    "TrimSFTTrainer": "trainer",
    "patch": "patching",
}


def __getattr__(name: str) -> Any:
    """trl takes seconds to import: only who trains waits for it."""
    if name in _HOMES:
        return getattr(import_module(f"trimsft.train.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
