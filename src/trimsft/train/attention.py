"""Whether the attention that settings ask for is installed; asked before data is read."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from trimsft.errors import UsageError

if TYPE_CHECKING:
    from trimsft.train.settings import Settings

FIELD = "attn_implementation"
MODULES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
"""The module of each kind of flash attention; what else transformers knows it checks itself."""


def has_flash_attention(kind: str = "flash_attention_2") -> bool:
    """Whether transformers would find it: the package, or the one that loads its kernel from the hub.

    Whether there is a GPU is not asked: the head of a cluster may have none.
    """
    from transformers.utils import is_kernels_available

    return importlib.util.find_spec(MODULES[kind]) is not None or bool(is_kernels_available())


def missing_attention(settings: Settings) -> str | None:
    """Return the kind of flash attention that the settings ask for and that is not installed, if any."""
    given = settings.args.model_init_kwargs or {}
    kind = given.get(FIELD, settings.model.attn_implementation)
    return kind if isinstance(kind, str) and kind in MODULES and not has_flash_attention(kind) else None


def check_attention(settings: Settings) -> None:
    """Refuse flash attention that is not installed."""
    if kind := missing_attention(settings):
        package = MODULES[kind].replace("_", "-").replace("interface", "3")
        raise UsageError(
            f"{kind} needs the package {package} or the package kernels, and neither is installed",
            field=FIELD,
            hint="pip install kernels, which needs no compiler",
            remedy=(FIELD, "sdpa"),
        )
