"""Rows of similar length in one micro-batch: the rows of an update are sorted by length before they are cut up.

An update of two micro-batches, a letter for a token and a dot for padding:

    aaaa  bb..  |  cc...  ddddd          aaaa.  ddddd  |  bb  cc

An update keeps its rows, so that its loss and gradients are the same up to rounding; less padding is computed. The
loss of a mixture-of-experts model's router, a mean of each micro-batch, is not: it depends on which rows meet.
"""

from __future__ import annotations

import itertools
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
        _require_texts(batch)
    masks = [batch["attention_mask"] for batch in batches]
    told = torch.cat([*(mask.sum(dim=1) for mask in masks), torch.stack([_is_padded_left(mask) for mask in masks])])
    numbers = told.tolist()  # the only wait for the device
    lengths, wrong = numbers[: -len(masks)], numbers[-len(masks) :]
    if any(wrong):
        raise _refused("is for batches that are padded on the right")
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    width = max(mask.shape[1] for mask in masks)
    places = torch.tensor(order, device=masks[0].device)
    rows = {name: torch.cat([_widened(batch[name], width, name) for batch in batches])[places] for name in batches[0]}
    sizes = [len(mask) for mask in masks]
    longest = [lengths[order[first]] for first in itertools.accumulate(sizes[:-1], initial=0)]
    widths = [min(width, -(-length // multiple) * multiple) for length in longest]
    parts = {name: values.split(sizes) for name, values in rows.items()}
    return [{name: parts[name][at][:, :columns] for name in parts} for at, columns in enumerate(widths)]


def _widened(values: Tensor, width: int, name: str) -> Tensor:
    return functional.pad(values, (0, width - values.shape[1]), value=IGNORED if name == "labels" else 0)


def _is_padded_left(mask: Tensor) -> Tensor:
    """1 where a row does not begin with its text or has gaps in it, else 0; a scalar of the mask's dtype."""
    return ((mask[:, 0] == 0).any() | (mask[:, 1:] > mask[:, :-1]).any()).to(mask.dtype)


def _require_texts(batch: Mapping[str, Any]) -> None:
    mask = batch.get("attention_mask")
    if mask is None or mask.dim() != 2:
        raise _refused("is for batches that are padded on the right")
    if other := next((name for name, one in batch.items() if getattr(one, "shape", None) != mask.shape), None):
        raise _refused(f"is for batches of text, and this one has {other}")


def _refused(problem: str) -> UsageError:
    return UsageError(problem, field="sort_micro_batches", value=True, hint="turn it off")
