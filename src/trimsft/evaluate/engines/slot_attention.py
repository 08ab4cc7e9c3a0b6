"""Attention of one new token a row, where each row has a length of its own.

Registered with transformers under `NAME`. In place of a mask it takes the lengths themselves, as int32 in the shape of
a mask, (rows, 1, 1, 1): models hand a mask of four dimensions on as it is. With an ordinary mask, or none, it is sdpa.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

NAME = "trimsft_slots"

seen_windows: set[int | None] = set()
"""Windows that layers have asked for since it was last emptied: a window that a model has only in its masks, which we
do not use, is not among them."""


def register() -> None:
    """Make `NAME` known to transformers, with the masks of sdpa; more than once does no harm."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention_of_model)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention_of_model(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **extras: Any,
) -> tuple[Tensor, None]:
    """What a model calls: query (rows, heads, tokens, width), output (rows, tokens, heads, width)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    for name in ("softcap", "s_aux", "position_bias"):
        if extras.get(name) is not None:
            raise NotImplementedError(f"{type(module).__name__} asks for {name}")
    if attention_mask is None or attention_mask.dtype != torch.int32:
        made: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **extras
        )
        return made
    if query.shape[2] != 1:
        raise NotImplementedError(f"{query.shape[2]} new tokens a row; lengths stand for one")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    window = extras.get("sliding_window")
    seen_windows.add(window)
    out = attend(query[:, :, 0], key, value, attention_mask.reshape(-1), scale, window)
    return out[:, None], None


def attend(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, window: int | None = None
) -> Tensor:
    """(rows, heads, width): each row's query over the first `lengths` keys of its own, the last `window` of them.

    query (rows, heads, width); key, value (rows, key heads, positions, width), heads a multiple of the key heads.
    """
    is_plain = key.shape[-1] == value.shape[-1] and key.stride(-1) == value.stride(-1) == 1
    if query.is_cuda and has_triton() and is_plain:
        from trimsft.evaluate.engines import slot_kernel

        return slot_kernel.attend(query, key, value, lengths, scale, window)
    return _masked(query, key, value, lengths, scale, window)


def _masked(query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, window: int | None) -> Tensor:
    """Any device. The heads that share a key head are queries of it, so that no key is repeated."""
    rows, heads, width = query.shape
    positions = torch.arange(key.shape[2], device=key.device)
    seen = positions < lengths[:, None]
    if window is not None:
        seen &= positions >= lengths[:, None] - window
    shared = query.view(rows, key.shape[1], heads // key.shape[1], width)
    out = functional.scaled_dot_product_attention(shared, key, value, attn_mask=seen[:, None, None], scale=scale)
    return out.reshape(rows, heads, value.shape[-1])


@functools.cache
def has_triton() -> bool:
    """Builds of torch for CUDA bring it along."""
    return importlib.util.find_spec("triton") is not None
