"""Kinds of flash attention, and whether they are installed; to be asked where there is no GPU, too."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trimsft.train.config import Settings

FIELD = "attn_implementation"
MODULES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
"""The module of each kind of flash attention; what else transformers knows it checks itself."""


def has_flash_attention(kind: str = "flash_attention_2") -> bool:
    """Return whether transformers would find it: the package, or the one that loads its kernel from the hub."""
    from transformers.utils import is_kernels_available

    return importlib.util.find_spec(MODULES[kind]) is not None or bool(is_kernels_available())


def missing_attention(settings: Settings) -> str | None:
    """Return the kind of flash attention that the settings ask for and that is not installed, if any."""
    given = settings.args.model_init_kwargs or {}
    kind = given.get(FIELD, settings.model.attn_implementation)
    return kind if isinstance(kind, str) and kind in MODULES and not has_flash_attention(kind) else None
