"""Whether FlashAttention-2 is installed, to be known where there is no GPU, too."""

import importlib.util


def has_flash_attention() -> bool:
    """Return whether transformers would find it: the package, or the one that loads its kernel from the hub."""
    from transformers.utils import is_kernels_available

    return importlib.util.find_spec("flash_attn") is not None or bool(is_kernels_available())
