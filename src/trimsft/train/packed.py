"""Packed texts: rows that hold several, and whether a model computes each of them as if it were alone.

With `packing` or `padding_free` only positions say where a text ends. A model that does not look there, or whose layers
carry a state from token to token, is trained on texts that see the ones before them, and nothing shows it. So it is
tried with the first batch: log-likelihoods in the row and in a row of their own must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from trimsft.data.encode import TOKEN_ROLES
from trimsft.errors import UsageError
from trimsft.head import IGNORED
from trimsft.train.batches import MASK, POSITIONS, TOKEN_COLUMNS, PackedRows, WeightedRows, learns_prompt, splits_rows
from trimsft.train.patching import inside_peft

BEGINNING = 16
"""Tokens of a text that are compared by themselves, too: what a long text says later depends on others but little."""
MOST_CHANGE, IN_FLOAT32 = 0.05, 1e-4
"""The most that log-likelihoods may move on average, in units of their spread. Rounding moves SmolLM2's by 4e-3 in
bfloat16 and 9e-7 in float32, texts that see each other by 0.44 and more (docs/guides/packing.md)."""


class PackedTexts:
    """Packs the texts of a trainer into rows, and refuses a model that does not keep them apart."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.are_apart = False  # whether texts of a row have been seen not to see each other

    def collator(self, collator: Any) -> Any:
        """Return TRL's collator of packed texts, but with a row for a row where attention is torch's own.

        TRL makes one row of all, for flash attention, which finds the texts in it by itself. With a mask that costs
        memory and time with the square of its length: 16 rows have 16 times the scores that they need. On a GPU all
        rows are `max_length` long unless `pad_to_multiple_of` says otherwise, because kernels may be made for a shape.
        """
        trainer = self.trainer
        if trainer.padding_free and learns_prompt(trainer.model):
            raise self._refused("puts a prompt that is learned before the first text of a row alone")
        is_packed = trainer.padding_free and trainer.args.packing
        if type(collator) is not DataCollatorForLanguageModeling:
            return collator
        collator = WeightedRows(**vars(collator))
        if not is_packed:
            return collator
        layers = set(getattr(trainer.model.config.get_text_config(), "layer_types", None) or ())
        is_recurrent = any(isinstance(module, nn.Conv1d) for module in trainer.model.modules())  # it wants one row
        if is_recurrent or not layers <= {"full_attention", "sliding_attention"} or not trainer.looks_left:
            return collator
        trainer.padding_free = False
        is_fixed = trainer.args.device.type == "cuda" and collator.pad_to_multiple_of is None
        width = trainer.args.max_length if is_fixed else None
        return PackedRows(**vars(collator) | {"padding_free": False, "return_position_ids": True}, width=width)

    def check(self, model: Any, batch: Mapping[str, Any]) -> None:
        """Refuse a batch whose texts see each other; asked until there has been a row of several."""
        trainer, args, sum_over_ranks = self.trainer, self.trainer.args, self.trainer.accelerator.reduce
        is_packed = POSITIONS in batch and MASK not in batch and (args.packing or args.padding_free)
        if self.are_apart or not is_packed or splits_rows(trainer.accelerator):
            return
        together, alone = both_ways(batch)
        # of all ranks, so that all of them go on alike
        if sum_over_ranks((together["labels"] != IGNORED).sum().float(), "sum") < 2:
            return
        compiles = trainer.layer_compiler.settings is not None
        eager = torch.compiler.set_stance("force_eager") if compiles else nullcontext()  # nothing is compiled for this
        training = [module for module in model.modules() if module.training]
        model.eval()  # without dropout
        try:
            with torch.no_grad(), eager:
                change = sum_over_ranks(change_between(model, together, alone).float(), "sum")
        finally:
            for module in training:
                module.training = True
        is_exact = not (args.bf16 or args.fp16) and torch.get_float32_matmul_precision() == "highest"
        most = IN_FLOAT32 if is_exact and trainer.model.dtype == torch.float32 else MOST_CHANGE
        if not relative(change) <= most:  # NaN is none
            inner = inside_peft(trainer.model)
            attention = f"{inner.config._attn_implementation} attention"
            raise self._refused(f"{type(inner).__name__} would not tell the texts of a row apart, with {attention}")
        self.are_apart = True

    def _refused(self, problem: str) -> UsageError:
        field = "packing" if self.trainer.args.packing else "padding_free"
        return UsageError(problem, field=field, value=True, hint="turn it off")


def both_ways(batch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return packed rows with the labels of texts that follow another, and a batch with each of these texts in a row.

    The labels have the same order in both. Of the longest texts as many are taken as need no more room than they had.
    """
    starts = batch[POSITIONS] == 0  # padding has texts of one token
    numbers = (starts.flatten().cumsum(0) - 1).view_as(starts)
    lengths = torch.bincount(numbers.flatten())
    lengths[numbers[:, 0]] = 0  # nothing comes before the first text of a row
    room = min(len(lengths), numbers.numel() // max(1, int(lengths.max())))
    texts = lengths.topk(room).indices.sort().values
    texts = texts[lengths[texts] > 1]
    is_compared = torch.isin(numbers, texts) & ~starts
    together = {name: value for name, value in batch.items() if name not in TOKEN_COLUMNS}
    together["labels"] = torch.where(is_compared, batch["input_ids"], IGNORED)
    rows = [batch["input_ids"][numbers == text] for text in texts] or [batch["input_ids"][0, :1]]
    labels = pad_sequence(rows, batch_first=True, padding_value=IGNORED)
    mask = labels != IGNORED
    alone = {"input_ids": labels.where(mask, 0), MASK: mask.long(), "labels": labels, "use_cache": False}
    if TOKEN_ROLES in batch:  # an objective may need them, which has no part in this
        together[TOKEN_ROLES], alone[TOKEN_ROLES] = batch[TOKEN_ROLES], torch.zeros_like(labels)
    return together, alone


def change_between(model: Any, together: Mapping[str, Any], alone: Mapping[str, Any]) -> Tensor:
    """Return the sums that `relative` takes, of the labels of the same texts in two batches."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model  # without gradients it has no part
    nll, other = inner(**together).tokens.nll, inner(**alone).tokens.nll
    begins = (together[POSITIONS][together["labels"] != IGNORED] <= BEGINNING).to(nll.device)
    moved, one = (nll - other).abs(), torch.ones_like(nll)
    sums = (moved, one, moved * begins, one * begins, nll, nll.square())
    return torch.stack([each.sum() for each in sums])


def relative(change: Tensor) -> float:
    """Return the mean move, or that of the beginnings if it is more, in standard deviations of the log-likelihoods."""
    moved, count, moved_first, beginnings, total, squares = change.tolist()
    spread = max(0.0, squares / count - (total / count) ** 2) ** 0.5
    return float(max(moved / count, moved_first / beginnings) / max(spread, 1e-12))
