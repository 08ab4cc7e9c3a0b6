"""Attention without a mask, where a mask would change nothing; with one, no wider than it must be.

A causal model never looks to the right: no token that is trained sees padding on the right, and a mask against it is of
no use. It costs, though: on an H200 attention takes three times as long with one as without (docs/performance.md), and
the host waits for the device in order to find out whether it is needed. On a CPU, where that is not so, it stays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor
from transformers import masking_utils
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from trimsft.train.packed import MASK, PackedRows, learns_prompt, splits_rows
from trimsft.train.references import ReferenceCollator

PAD_RIGHT = (DataCollatorForLanguageModeling, ReferenceCollator, PackedRows)
"""Collators that are known to put padding on the right."""


class AvoidsMasks:
    """For a Trainer, before it among the bases."""

    args: Any
    model: Any
    data_collator: Any
    accelerator: Any
    aux_loss_enabled: bool

    @functools.cached_property
    def _looks_left(self) -> bool:
        """Whether nothing in the model or in its loss depends on what is on the right of a token."""
        return is_causal(self.model) and not self.aux_loss_enabled and not splits_rows(self.accelerator)

    def _with_mask_if_needed(self, batch: dict[str, Any]) -> tuple[dict[str, Any], AbstractContextManager[None]]:
        """The batch as the model gets it, and within what; `batch` is left as it is."""
        on_cuda = self.args.device.type == "cuda"
        if MASK in batch and on_cuda and self._looks_left and type(self.data_collator) in PAD_RIGHT:
            return {name: value for name, value in batch.items() if name != MASK}, _not_packed()
        return batch, nullcontext()


def is_causal(model: Any) -> bool:
    """Whether all of it looks to the left alone, by torch's own attention: a model for text, without a prompt that is
    learned, which stands in the cache and not in the batch."""
    config = model.config
    if config.get_text_config() is not config or config._attn_implementation != "sdpa":
        return False
    if not getattr(config, "is_causal", True):  # its modules do not know
        return False
    if learns_prompt(model):
        return False
    return {getattr(module, "is_causal", True) for module in model.modules()} == {True} and any(
        hasattr(module, "is_causal") for module in model.modules()
    )


def _finds_nothing(position_ids: Tensor) -> None:
    """In place of transformers' search for packed texts, which waits for the device."""


@contextmanager
def _not_packed() -> Iterator[None]:
    """Within, transformers does not search the positions of a batch without a mask for packed texts: there are none."""
    search = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = _finds_nothing
    try:
        yield
    finally:
        if search is not _finds_nothing:  # or else another thread restores it
            masking_utils.find_packed_sequence_indices = search
