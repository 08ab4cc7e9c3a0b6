"""Token tables small enough to work their numbers out by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.table import TokenTable


def hand_table(
    gap: Sequence[float],
    *,
    norm: Sequence[float] | None = None,
    nll: Sequence[float] | None = None,
    example: Sequence[int] | None = None,
    category: Sequence[str] | None = None,
    rank: Sequence[int] | None = None,
    token_id: Sequence[int] | None = None,
    **metadata: Any,
) -> TokenTable:
    """One example unless told; nll as if there were two tokens; equal gradients; rank by the sign of the gap."""
    gaps = np.array(gap, dtype=np.float32)
    count = len(gaps)
    examples = np.zeros(count, dtype=np.int32) if example is None else np.array(example, dtype=np.int32)
    position = np.array([int((examples[:at] == number).sum()) for at, number in enumerate(examples)], dtype=np.int32)
    kinds = ["other"] * count if category is None else category
    columns = {
        "example": examples,
        "position": position,
        "token_id": np.arange(count, dtype=np.int32) if token_id is None else np.array(token_id, dtype=np.int32),
        "category": np.array([CATEGORIES.index(kind) for kind in kinds], dtype=np.int8),
        "nll": (np.log1p(np.exp(-gaps)) if nll is None else np.array(nll)).astype(np.float32),
        "gap": gaps,
        "competitor_id": np.full(count, 7, dtype=np.int32),
        "entropy": np.ones(count, dtype=np.float32),
        "rank": (np.where(gaps >= 0, 1, 2) if rank is None else np.array(rank)).astype(np.int32),
        "data_weight": np.ones(count, dtype=np.float32),
        "gradient_norm": (np.ones(count) if norm is None else np.array(norm)).astype(np.float32),
    }
    return TokenTable(columns, {}, metadata)
