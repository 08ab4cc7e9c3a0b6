"""Packed texts: rows that hold several, and whether a model computes each of them as if it were alone.

With `packing` or `padding_free` only positions say where a text ends. A model that does not look there, or whose layers
carry a state from token to token, is trained on texts that see the ones before them, and nothing shows it. So it is
tried with the first batch: the first text of each row is moved to its end, every other one gets other tokens, and the
log-likelihoods of the texts between must not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from accelerate.utils import DynamoBackend
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from trimsft.data.encode import TOKEN_WEIGHTS
from trimsft.errors import UsageError
from trimsft.head import IGNORED
from trimsft.train.batches import MASK, POSITIONS, PackedRows, WeightedRows, learns_prompt, splits_rows
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
        # of all ranks, so that all of them go on alike
        if sum_over_ranks((labels_between(batch) != IGNORED).sum().float(), "sum") < 2:
            return
        compiles = trainer.accelerator.state.dynamo_plugin.backend != DynamoBackend.NO
        eager = torch.compiler.set_stance("force_eager") if compiles else nullcontext()  # nothing is compiled for this
        training = [module for module in model.modules() if module.training]
        model.eval()  # without dropout
        try:
            with torch.no_grad(), eager:
                change = sum_over_ranks(change_between(model, batch).float(), "sum")
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


def labels_between(batch: Mapping[str, Any]) -> Tensor:
    """Return the second text of each row, the fourth and so on, each to be predicted from its own first token on."""
    is_between = _numbers(batch) % 2 == 0
    return torch.where(is_between & (batch[POSITIONS] > 0), batch["input_ids"], IGNORED)


def with_others_changed(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first text of each row at its end; it, the third and so on with tokens from elsewhere in the batch."""
    ids, numbers = batch["input_ids"], _numbers(batch)
    changed = {**batch, "input_ids": torch.where(numbers % 2 == 0, ids, ids.flatten().flip(0).view_as(ids))}
    order = (numbers == 1).long().argsort(dim=-1, stable=True)
    moved = {name: changed[name].gather(-1, order) for name in ("input_ids", "labels", POSITIONS)}
    return {**batch, **moved, **_borders(batch, moved)}


def _numbers(batch: Mapping[str, Any]) -> Tensor:
    """Return which text of its row a token is of, from 1 on."""
    return _text_starts(batch).cumsum(dim=-1)


def _borders(batch: Mapping[str, Any], moved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return where texts begin, as TRL says it to kernels that read no positions: of one row, if the batch has it."""
    if "cu_seq_lens_q" not in batch:
        return {}
    starts = _text_starts(moved)
    places = starts.flatten().nonzero().flatten()
    ends = nn.functional.pad(places[1:], (0, 1), value=starts.shape[-1])
    lengths = nn.functional.pad(ends, (1, 0)).to(batch["cu_seq_lens_q"])
    numbers = (starts.cumsum(dim=-1) - 1).to(batch["seq_idx"])
    return {"cu_seq_lens_q": lengths, "cu_seq_lens_k": lengths, "seq_idx": numbers}


def _text_starts(batch: Mapping[str, Any]) -> Tensor:
    """Return where a text begins; padding has texts of one token."""
    return batch[POSITIONS] == 0  # type: ignore[no-any-return]


def change_between(model: Any, batch: Mapping[str, Any]) -> Tensor:
    """Return what `relative` takes, of every second text, when those beside it are changed."""
    batch = {name: value for name, value in batch.items() if name != TOKEN_WEIGHTS} | {"labels": labels_between(batch)}
    nll, other = _nll(model, batch), _nll(model, with_others_changed(batch))
    begins = (batch[POSITIONS][batch["labels"] != IGNORED] <= BEGINNING).to(nll.device)
    moved, one = (nll - other).abs(), torch.ones_like(nll)
    sums = (moved, one, moved * begins, one * begins, nll, nll.square())
    return torch.stack([each.sum() for each in sums])


def _nll(model: Any, batch: Mapping[str, Any]) -> Tensor:
    """Return the nll of the labels, in the order of their texts, which is the same in both batches."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model  # without gradients it has no part
    return inner(**batch).tokens.nll  # type: ignore[no-any-return]


def relative(change: Tensor) -> float:
    """Return the mean move, or that of the beginnings if it is more, in standard deviations of the log-likelihoods."""
    moved, count, moved_first, beginnings, total, squares = change.tolist()
    spread = max(0.0, squares / count - (total / count) ** 2) ** 0.5
    return float(max(moved / count, moved_first / beginnings) / max(spread, 1e-12))
