"""Batches between TRL's collator and the model: packed rows, masks, token weights, rows that repeat.

A causal model never looks to the right: no token that is trained sees padding on the right, and a mask against it is of
no use. It costs, though: on an H200 attention takes three times as long with one as without (docs/performance.md), and
the host waits for the device in order to find out whether it is needed. On a CPU, where that is not so, it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import masking_utils
from trl import pack_dataset
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from trimsft.data.encode import TOKEN_ROLES, TOKEN_WEIGHTS
from trimsft.head import IGNORED

TOKEN_COLUMNS = {TOKEN_WEIGHTS: torch.float32, TOKEN_ROLES: torch.int64}
MASK, POSITIONS, ROW_LENGTHS = "attention_mask", "position_ids", "trimsft_row_lengths"


# ---- collators


@dataclass
class WeightedRows(DataCollatorForLanguageModeling):  # type: ignore[misc]
    """Makes a batch as TRL does, and puts the weight and role of each label beside it, where rows have them."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().torch_call(examples)
        width = batch["labels"].shape[1]
        for name, kind in TOKEN_COLUMNS.items():
            if name in examples[0]:
                rows = [torch.tensor(example[name], dtype=kind) for example in examples]
                rows = [torch.cat(rows)] if self.padding_free else rows
                batch[name] = torch.stack([nn.functional.pad(row, (0, width - len(row))) for row in rows])
        if TOKEN_WEIGHTS in batch:
            batch["labels"][batch[TOKEN_WEIGHTS] == 0] = IGNORED  # which Trainer then does not count
        return batch


@dataclass
class PackedRows(WeightedRows):
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
        fill = {"input_ids": self.pad_token_id, "labels": IGNORED, POSITIONS: 0, **dict.fromkeys(TOKEN_COLUMNS, 0)}
        names = [name for name in fill if name in batch]
        return {name: nn.functional.pad(batch[name], (0, missing), value=fill[name]) for name in names}


def cut_with_weights(dataset: Dataset, args: Any, packing: bool) -> Dataset:
    """Truncate or pack tokenised rows as TRL does, their weights with them, of which it knows nothing."""
    roles = [TOKEN_ROLES] if TOKEN_ROLES in (dataset.column_names or ()) else []
    dataset = dataset.select_columns(["input_ids", "labels", TOKEN_WEIGHTS, *roles])
    if packing:
        dataset = dataset.shuffle(seed=args.seed) if args.shuffle_dataset else dataset
        return pack_dataset(dataset, args.max_length, args.packing_strategy)
    if args.max_length is not None:
        kept = slice(args.max_length) if args.truncation_mode == "keep_start" else slice(-args.max_length, None)
        dataset = dataset.map(lambda row: {name: values[kept] for name, values in row.items()})
        dataset = dataset.filter(lambda labels: any(label != IGNORED for label in labels), input_columns="labels")
    return dataset.shuffle(seed=args.seed) if args.shuffle_dataset else dataset


class WithRowLengths:
    """A collator that adds the length of each row; a padding-free batch has them all in one."""

    def __init__(self, collate: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> None:
        self._collate = collate

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._collate(rows), ROW_LENGTHS: torch.tensor([len(row["input_ids"]) for row in rows])}


PAD_RIGHT = (DataCollatorForLanguageModeling, WeightedRows, PackedRows)
"""Collators that are known to put padding on the right."""


def real_tokens(batch: Mapping[str, Any]) -> int | Tensor:
    """Return how many tokens of a batch are no padding: by its mask, or by positions.

    Those are 0 at the start of a text and in padding after it; a text of a single token, which trains nothing, is not
    told from that.
    """
    if MASK in batch:
        return batch[MASK].sum()  # type: ignore[no-any-return]
    if POSITIONS not in batch:
        return batch["input_ids"].numel()  # type: ignore[no-any-return]
    following = nn.functional.pad(batch[POSITIONS][:, 1:], (0, 1))
    return ((batch[POSITIONS] > 0) | (following > 0)).sum()  # type: ignore[no-any-return]


def without_repeats(inputs: dict[str, Any], lengths: Tensor | None, accelerator: Any, rank: int) -> dict[str, Any]:
    """Return a batch of an evaluation in which rows that another process has, too, have no labels.

    accelerate fills the last batches up with rows from the beginning, so that all processes have as many. Put one after
    the other, the last batches begin with `remainder` rows that are new.

    Args:
        lengths: of the rows, where the batch has them all in one.
        rank: of the process among those that have different rows.
    """
    state = accelerator.gradient_state
    is_filled_up = accelerator.num_processes > 1 and state.end_of_dataloader and state.remainder > 0
    if not is_filled_up or "labels" not in inputs:
        return inputs
    labels = inputs["labels"].clone()
    new = max(state.remainder - len(labels if lengths is None else lengths) * rank, 0)
    if lengths is None:
        labels[new:] = IGNORED
    else:
        labels[:, int(lengths[:new].sum()) :] = IGNORED
    return {**inputs, "labels": labels}


# ---- masks


def splits_rows(accelerator: Any) -> bool:
    """Return whether a batch is split along its tokens, a mask among it: context parallelism."""
    parallel = accelerator.parallelism_config
    return parallel is not None and bool(parallel.cp_enabled)


def learns_prompt(model: Any) -> bool:
    """Return whether PEFT puts virtual tokens before each row: prompt tuning, prefix tuning, P-tuning."""
    return any(one.is_prompt_learning for one in getattr(model, "peft_config", {}).values())


def is_causal(model: Any) -> bool:
    """Return whether all of a model looks to the left alone, by torch's own attention.

    That is a model for text, without a prompt that is learned, which stands in the cache and not in the batch.
    """
    config = model.config
    if config.get_text_config() is not config or config._attn_implementation != "sdpa" or learns_prompt(model):
        return False
    said = {module.is_causal for module in model.modules() if hasattr(module, "is_causal")}
    return said == {True} and bool(getattr(config, "is_causal", True))  # where its modules do not know


def looks_left(trainer: Any) -> bool:
    """Return whether nothing in the model or in its loss depends on what is on the right of a token."""
    return is_causal(trainer.model) and not trainer.aux_loss_enabled and not splits_rows(trainer.accelerator)


def with_mask_if_needed(batch: dict[str, Any], trainer: Any) -> tuple[dict[str, Any], AbstractContextManager[None]]:
    """Return the batch as the model gets it, and the context that it is computed in; `batch` is left as it is."""
    on_cuda = trainer.args.device.type == "cuda"
    if MASK in batch and on_cuda and trainer.looks_left and type(trainer.data_collator) in PAD_RIGHT:
        return {name: value for name, value in batch.items() if name != MASK}, _not_packed()
    return batch, nullcontext()


def _finds_nothing(position_ids: Tensor) -> None:
    """Stand in for transformers' search for packed texts, which waits for the device."""


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


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Within, attention is computed by another kernel than cuDNN's; then what was allowed is allowed again.

    With a mask some of its gradients are NaN (pytorch#196678), and a new shape costs a plan that takes as long as a
    step of a small model.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
