"""A cache of keys and values that stands still: every row has a position of its own, and rows change hands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer: (rows, key heads, positions, width)."""

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
        assert self.keys is not None and self.values is not None
        rows, positions = self._slots.range, self._slots.position
        self.keys[rows, :, positions] = key_states[:, :, 0]
        self.values[rows, :, positions] = value_states[:, :, 0]
        seen = self._slots.seen
        return self.keys[: len(rows), :, :seen], self.values[: len(rows), :, :seen]

    def fill(self, rows: Tensor, source: Tensor, keys: Tensor, values: Tensor) -> None:
        """Give rows the prompts that `source` names among those just read."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        assert self.keys is not None and self.values is not None
        self.keys[rows, :, : keys.shape[2]] = keys[source]
        self.values[rows, :, : values.shape[2]] = values[source]

    def keep(self, rows: Tensor) -> None:
        assert self.keys is not None and self.values is not None
        self.keys, self.values = self.keys[rows], self.values[rows]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._slots.width, 0

    def get_seq_length(self) -> int:
        return self._slots.width

    def get_max_length(self) -> int:
        return self._slots.width


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

    def keep(self, rows: Tensor) -> None:
        self.rows = len(rows)
        self.range, self.position = self.range[: len(rows)].clone(), self.position[rows]
        for layer in self.layers:
            layer.keep(rows)
