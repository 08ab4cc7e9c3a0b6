"""Rows of similar length in one micro-batch: the rows of an update are sorted by length before they are cut up.

An update of two micro-batches, a letter for a token and a dot for padding:

    aaaa  bb..  |  cc...  ddddd          aaaa.  ddddd  |  bb  cc

An update keeps its rows, so that its loss and gradients are the same up to rounding; less padding is computed. The
loss of a mixture-of-experts model's router, a mean of each micro-batch, is not: it depends on which rows meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trimsft.errors import UsageError
from trimsft.head import IGNORED


class SortsMicroBatches:
    """For a Trainer, before it among the bases: with `sort_micro_batches` the rows of each update are sorted."""

    args: Any

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
        batches, count = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        if self.args.sort_micro_batches and len(batches) > 1:
            batches = sorted_by_length(batches, self.args.pad_to_multiple_of or 1)
        return batches, count


def sorted_by_length(batches: Sequence[Mapping[str, Tensor]], multiple: int = 1) -> list[dict[str, Tensor]]:
    """The same rows in as many micro-batches of the same sizes, the longest first: if memory fails, it fails at once.

    Args:
        batches: texts that are padded on the right.
        multiple: widths stay multiples of it.
    """
    for batch in batches:
        _require_padded_texts(batch)
    lengths = torch.cat([batch["attention_mask"].sum(dim=1) for batch in batches])
    order = lengths.argsort(descending=True, stable=True)
    width = max(batch["attention_mask"].shape[1] for batch in batches)
    rows = {name: torch.cat([_widened(batch[name], width, name) for batch in batches])[order] for name in batches[0]}
    sizes = [len(batch["attention_mask"]) for batch in batches]
    longest = [int(part[0]) for part in lengths[order].split(sizes)]
    widths = [min(width, -(-length // multiple) * multiple) for length in longest]
    parts = {name: values.split(sizes) for name, values in rows.items()}
    return [{name: parts[name][at][:, :columns] for name in parts} for at, columns in enumerate(widths)]


def _widened(values: Tensor, width: int, name: str) -> Tensor:
    return functional.pad(values, (0, width - values.shape[1]), value=IGNORED if name == "labels" else 0)


def _require_padded_texts(batch: Mapping[str, Any]) -> None:
    mask = batch.get("attention_mask")
    if mask is None or mask.dim() != 2 or not (mask[:, 0].all() and (mask[:, 1:] <= mask[:, :-1]).all()):
        wrong = "is for batches that are padded on the right"
    elif other := next((name for name, one in batch.items() if getattr(one, "shape", None) != mask.shape), None):
        wrong = f"is for batches of text, and this one has {other}"
    else:
        return
    raise UsageError(wrong, field="sort_micro_batches", value=True, hint="turn it off")
