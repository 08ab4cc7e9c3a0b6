"""Attention and cache where each row has a length of its own, for one new token a row.

In place of a mask it takes the lengths themselves, as int32 in the shape of a mask, (rows, 1, 1, 1): models hand a mask
of four dimensions on as it is. With an ordinary mask, or none, it is sdpa.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import Cache, CacheLayerMixin

from trimsft.head.problem import has_triton

NAME = "trimsft_slots"

seen_windows: set[int | None] = set()
"""Windows that layers have asked for since it was last emptied; one that a model has only in its masks is not there."""


def count_cached_layers(config: Any) -> int:
    """Count layers with keys and values of their own; in Gemma-3n and Gemma-4 the last ones borrow those of others."""
    return int(config.num_hidden_layers) - int(getattr(config, "num_kv_shared_layers", None) or 0)


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
    """Attend as a model calls it: query (rows, heads, tokens, width), output (rows, tokens, heads, width)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    for name in ("softcap", "s_aux", "position_bias"):  # sdpa would leave them out without a word
        if extras.get(name) is not None:
            raise NotImplementedError(f"{type(module).__name__} asks for {name}")
    if attention_mask is None or attention_mask.dtype != torch.int32:
        made: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **extras
        )
        return made
    if query.shape[2] != 1:
        raise NotImplementedError(f"{query.shape[2]} new tokens a row; lengths stand for one")
    window = extras.get("sliding_window")
    seen_windows.add(window)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query[:, :, 0], key, value, attention_mask.reshape(-1), scale, window)[:, None], None


def attend(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, window: int | None = None
) -> Tensor:
    """Return (rows, heads, width): the query of each row over its first `lengths` keys, the last `window` of them.

    query (rows, heads, width); key, value (rows, key heads, positions, width), heads a multiple of the key heads.
    """
    is_plain = key.shape[-1] == value.shape[-1] and key.stride(-1) == value.stride(-1) == 1
    if query.is_cuda and has_triton() and is_plain:
        from trimsft.evaluate.slots import kernels

        return kernels.attend(query, key, value, lengths, scale, window)
    return attend_masked(query, key, value, lengths, scale, window)


def attend_masked(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, window: int | None
) -> Tensor:
    """Attend on any device. The heads that share a key head are queries of it, so that no key is repeated."""
    rows, heads, width = query.shape
    positions = torch.arange(key.shape[2], device=key.device)
    seen = positions < lengths[:, None]
    if window is not None:
        seen &= positions >= lengths[:, None] - window
    shared = query.view(rows, key.shape[1], heads // key.shape[1], width)
    out = functional.scaled_dot_product_attention(shared, key, value, attn_mask=seen[:, None, None], scale=scale)
    return out.reshape(rows, heads, value.shape[-1])


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer: (rows, key heads, positions, width)."""

    keys: Tensor
    values: Tensor

    def __init__(self, slots: SlotCache) -> None:
        super().__init__()
        self._slots = slots

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        def empty(states: Tensor) -> Tensor:
            return states.new_zeros(self._slots.rows, states.shape[1], self._slots.width, states.shape[3])

        self.keys, self.values = empty(key_states), empty(value_states)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Put each row's new token at the row's own position."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, positions, shared = self._slots.range, self._slots.position, self._slots.shared
        self.keys[rows, :, positions] = key_states[shared, :, 0]
        self.values[rows, :, positions] = value_states[shared, :, 0]
        shown = (self._slots.first, slice(None), slice(self._slots.seen))
        return self.keys[shown], self.values[shown]

    def fill(self, rows: Tensor, source: Tensor, keys: Tensor, values: Tensor) -> None:
        """Give rows the prompts that `source` names among those just read."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        self.keys[rows, :, : keys.shape[2]] = keys[source]
        self.values[rows, :, : values.shape[2]] = values[source]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._slots.width, 0

    def get_seq_length(self) -> int:
        return self._slots.width

    get_max_length = get_seq_length


class SlotCache(Cache):  # type: ignore[misc]
    """The cache of all rows."""

    def __init__(self, layers: int, rows: int, width: int, device: torch.device) -> None:
        super().__init__(layers=[_SlotLayer(self) for _ in range(layers)])
        self.rows, self.width = rows, width
        self.seen = width
        """Positions that attention is shown: all, or, where nobody replays a graph, as many as are in use."""
        self.range = torch.arange(rows, device=device)
        self.position = torch.zeros(rows, dtype=torch.int64, device=device)
        """Where the next token of each row goes."""
        self.first: Tensor | slice = slice(None)
        """The rows that the model computes: all, or the first of those that have said the same so far."""
        self.shared: Tensor | slice = slice(None)
        """For each row, which of these it is like."""

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only, in this order."""
        self.rows = len(rows)
        self.range, self.position = self.range[: len(rows)].clone(), self.position[rows]
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
