"""Attention without a mask, where a mask would change nothing; with one, no wider than it must be.

A causal model never looks to the right: no token that is trained sees padding on the right, and a mask against it is of
no use. It costs, though: on an H200 attention takes three times as long with one as without (docs/performance.md), and
the host waits for the device in order to find out whether it is needed. On a CPU, where that is not so, it stays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import masking_utils
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from trimsft.head import IGNORED
from trimsft.train.cudnn import CudnnChoice
from trimsft.train.references import ReferenceCollator

MASK, POSITIONS = "attention_mask", "position_ids"


class AvoidsMasks:
    """For a Trainer, before it among the bases."""

    args: Any
    model: Any
    data_collator: Any
    accelerator: Any
    aux_loss_enabled: bool
    padding_free: bool
    _compile_settings: dict[str, Any] | None

    @functools.cached_property
    def _looks_left(self) -> bool:
        """Whether nothing in the model or in its loss depends on what is on the right of a token."""
        parallel = self.accelerator.parallelism_config
        splits = parallel is not None and parallel.cp_enabled  # a batch along its tokens, the mask among it
        return is_causal(self.model) and not self.aux_loss_enabled and not splits

    def _with_mask_if_needed(self, batch: dict[str, Any]) -> tuple[dict[str, Any], AbstractContextManager[None]]:
        """The batch as the model gets it, and within what; `batch` is left as it is."""
        rows, length = batch["input_ids"].shape
        is_packed, on_cuda = POSITIONS in batch and MASK not in batch, self.args.device.type == "cuda"
        has_mask = MASK in batch or is_packed
        context: AbstractContextManager[None] = nullcontext()
        if MASK in batch and on_cuda and self._looks_left and type(self.data_collator) in PAD_RIGHT:
            batch = {name: value for name, value in batch.items() if name != MASK}
            has_mask, context = length >= self._window, _not_packed()
        if on_cuda:
            self._cudnn.choose(rows, length, masked=has_mask, trains=self.model.training)
        return batch, context

    @functools.cached_property
    def _window(self) -> float:
        """Rows of this length or more have a mask in any case."""
        config = self.model.config.get_text_config()
        return min(getattr(config, name, None) or math.inf for name in ("sliding_window", "attention_chunk_size"))

    @functools.cached_property
    def _cudnn(self) -> CudnnChoice:
        config = self.model.config.get_text_config()
        sizes = (getattr(config, name, math.inf) for name in ("num_hidden_layers", "hidden_size"))
        return CudnnChoice(math.prod(sizes), is_compiled=self._compile_settings is not None)

    def _in_rows(self, collator: Any) -> Any:
        """TRL's collator of packed texts, but with a row for a row where attention is torch's own.

        TRL makes one row of all, for flash attention, which finds the texts in it by itself. With a mask that costs
        memory and time with the square of its length: 16 rows have 16 times the scores that they need. On a GPU all
        rows are `max_length` long unless `pad_to_multiple_of` says otherwise, because kernels may be made for a shape.
        """
        if type(collator) is not DataCollatorForLanguageModeling or not (self.padding_free and self.args.packing):
            return collator
        is_recurrent = any(isinstance(module, nn.Conv1d) for module in self.model.modules())  # such layers want one row
        layers = set(getattr(self.model.config.get_text_config(), "layer_types", None) or ())
        if is_recurrent or not layers <= {"full_attention", "sliding_attention"} or not self._looks_left:
            return collator
        self.padding_free = False
        is_fixed = self.args.device.type == "cuda" and collator.pad_to_multiple_of is None
        width = self.args.max_length if is_fixed else None
        return PackedRows(**vars(collator) | {"padding_free": False, "return_position_ids": True}, width=width)


def real_tokens(batch: Mapping[str, Any]) -> int | Tensor:
    """How many tokens of a batch are no padding: by its mask, or by positions, which are 0 at the start of a text and
    in padding after it; a text of a single token, which trains nothing, is not told from that."""
    if MASK in batch:
        return batch[MASK].sum()  # type: ignore[no-any-return]
    if POSITIONS not in batch:
        return batch["input_ids"].numel()  # type: ignore[no-any-return]
    following = nn.functional.pad(batch[POSITIONS][:, 1:], (0, 1))
    return ((batch[POSITIONS] > 0) | (following > 0)).sum()  # type: ignore[no-any-return]


def is_causal(model: Any) -> bool:
    """Whether all of it looks to the left alone, by torch's own attention: a model for text, without a prompt that is
    learned, which stands in the cache and not in the batch."""
    config = model.config
    if config.get_text_config() is not config or config._attn_implementation != "sdpa":
        return False
    if not getattr(config, "is_causal", True):  # its modules do not know
        return False
    if any(one.is_prompt_learning for one in getattr(model, "peft_config", {}).values()):
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


@dataclass
class PackedRows(DataCollatorForLanguageModeling):  # type: ignore[misc]
    """Rows of several texts each, which transformers tells apart by their positions if there is no mask.

    Rows that are not packed, of an evaluation, are padded as TRL does.

    Args:
        width: packed rows are padded to it.
    """

    width: int | None = None

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch: dict[str, Tensor] = super().torch_call(examples)
        if "seq_lengths" not in examples[0]:
            return {name: value for name, value in batch.items() if name != POSITIONS}
        batch["labels"][batch[POSITIONS] == 0] = IGNORED  # nothing before it is of its text
        missing = max(0, (self.width or 0) - batch["input_ids"].shape[1])
        fill = {"input_ids": self.pad_token_id, "labels": IGNORED, POSITIONS: 0}
        return {name: nn.functional.pad(batch[name], (0, missing), value=value) for name, value in fill.items()}


PAD_RIGHT = (DataCollatorForLanguageModeling, ReferenceCollator, PackedRows)
