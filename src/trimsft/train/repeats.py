"""Evaluation on several processes counts every row once.

accelerate fills the last batches up with rows from the beginning, so that all processes have as many. Put one after
the other, the last batches begin with `remainder` rows that are new; of the others the labels are ignored here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trimsft.head import IGNORED

if TYPE_CHECKING:
    from trl import SFTTrainer
else:
    SFTTrainer = object  # a mixin: it stands before an SFTTrainer among the bases

_LENGTHS = "trimsft_row_lengths"


class RowsOnce(SFTTrainer):  # type: ignore[misc]
    """Makes an SFTTrainer ignore repeated rows: `class MyTrainer(RowsOnce, SFTTrainer)`."""

    data_collator: Any

    def prediction_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        lengths = inputs.pop(_LENGTHS, None)
        return super().prediction_step(model, self._without_repeats(inputs, lengths), *args, **kwargs)

    def _without_repeats(self, inputs: dict[str, Any], lengths: Tensor | None) -> dict[str, Any]:
        state = self.accelerator.gradient_state
        is_filled_up = self.accelerator.num_processes > 1 and state.end_of_dataloader and state.remainder > 0
        if not is_filled_up or "labels" not in inputs:
            return inputs
        labels = inputs["labels"].clone()
        rows = len(labels if lengths is None else lengths)
        new = max(state.remainder - rows * (self.accelerator.process_index // self.get_tp_size()), 0)
        if lengths is None:
            labels[new:] = IGNORED
        else:
            labels[:, int(lengths[:new].sum()) :] = IGNORED
        return {**inputs, "labels": labels}

    def _get_dataloader(self, dataset: Any, description: str, *args: Any, **kwargs: Any) -> Any:
        collate = self.data_collator
        if self.padding_free and self.accelerator.num_processes > 1 and description != "Training":
            self.data_collator = _Measured(collate)
        try:
            return super()._get_dataloader(dataset, description, *args, **kwargs)
        finally:
            self.data_collator = collate


class _Measured:
    """A collator that says how long each row is; a padding-free batch has them all in one."""

    def __init__(self, collate: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> None:
        self._collate = collate

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._collate(rows), _LENGTHS: torch.tensor([len(row["input_ids"]) for row in rows])}
