"""Packed texts: rows that hold several, and whether a model computes each of them as if it were alone.

With `packing` or `padding_free` only positions say where a text ends. A model that does not look there, or whose layers
carry a state from token to token, is trained on texts that see the ones before them, and nothing shows it. So it is
tried with the first batch: the first text of each row is moved to its end, every other one gets other tokens, and the
log-likelihoods of the texts between must not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from trimsft.data.encode import COLUMN
from trimsft.errors import UsageError
from trimsft.head import IGNORED
from trimsft.train.patching import inside_peft

MASK, POSITIONS = "attention_mask", "position_ids"

BEGINNING = 16
"""Tokens of a text that are compared by themselves, too: what a long text says later depends on others but little."""

MOST_CHANGE, IN_FLOAT32 = 0.05, 1e-4
"""How far log-likelihoods may move, on average, in units of their spread. Rounding moves those of SmolLM2 by 4e-3 in
bfloat16 and 9e-7 in float32, texts that see each other by 0.44 and more (docs/guides/packing.md)."""


class PacksTexts:
    """For a Trainer, before it among the bases."""

    args: Any
    model: Any
    accelerator: Any
    padding_free: bool
    _compile_settings: dict[str, Any] | None
    _are_apart = False
    """Whether texts of a row have been seen not to see each other."""

    def _in_rows(self, collator: Any, *, looks_left: bool) -> Any:
        """TRL's collator of packed texts, but with a row for a row where attention is torch's own.

        TRL makes one row of all, for flash attention, which finds the texts in it by itself. With a mask that costs
        memory and time with the square of its length: 16 rows have 16 times the scores that they need. On a GPU all
        rows are `max_length` long unless `pad_to_multiple_of` says otherwise, because kernels may be made for a shape.

        Args:
            looks_left: whether nothing in the model or in its loss depends on what is on the right of a token.
        """
        if self.padding_free and learns_prompt(self.model):
            raise self._refused("puts a prompt that is learned before the first text of a row alone")
        if type(collator) is not DataCollatorForLanguageModeling or not (self.padding_free and self.args.packing):
            return collator
        is_recurrent = any(isinstance(module, nn.Conv1d) for module in self.model.modules())  # such layers want one row
        layers = set(getattr(self.model.config.get_text_config(), "layer_types", None) or ())
        if is_recurrent or not layers <= {"full_attention", "sliding_attention"} or not looks_left:
            return collator
        self.padding_free = False
        is_fixed = self.args.device.type == "cuda" and collator.pad_to_multiple_of is None
        width = self.args.max_length if is_fixed else None
        return PackedRows(**vars(collator) | {"padding_free": False, "return_position_ids": True}, width=width)

    def _require_texts_apart(self, model: Any, batch: Mapping[str, Any]) -> None:
        """Refuse a batch whose texts see each other; asked until there has been a row of several."""
        is_packed = POSITIONS in batch and MASK not in batch and (self.args.packing or self.args.padding_free)
        if self._are_apart or not is_packed or splits_rows(self.accelerator):
            return
        # of all ranks, so that all of them go on alike
        if self._total((labels_between(batch) != IGNORED).sum()) < 2:
            return
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(_evaluating(model))
            if self._compile_settings is not None:  # nothing is compiled for this
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            change = self._total(change_between(model, batch))
        if not relative(change) <= self._most_change:  # NaN is none
            inner = inside_peft(self.model)
            attention = f"{inner.config._attn_implementation} attention"
            raise self._refused(f"{type(inner).__name__} would not tell the texts of a row apart, with {attention}")
        self._are_apart = True

    @property
    def _most_change(self) -> float:
        is_exact = not (self.args.bf16 or self.args.fp16) and torch.get_float32_matmul_precision() == "highest"
        return IN_FLOAT32 if is_exact and self.model.dtype == torch.float32 else MOST_CHANGE

    def _total(self, numbers: Tensor) -> Tensor:
        """Of all ranks."""
        return self.accelerator.reduce(numbers.float(), "sum")  # type: ignore[no-any-return]

    def _refused(self, problem: str) -> UsageError:
        field = "packing" if self.args.packing else "padding_free"
        return UsageError(problem, field=field, value=True, hint="turn it off")


def splits_rows(accelerator: Any) -> bool:
    """Whether a batch is split along its tokens, a mask among it: context parallelism."""
    parallel = accelerator.parallelism_config
    return parallel is not None and bool(parallel.cp_enabled)


def learns_prompt(model: Any) -> bool:
    """Whether PEFT puts virtual tokens before each row: prompt tuning, prefix tuning, P-tuning."""
    return any(one.is_prompt_learning for one in getattr(model, "peft_config", {}).values())


def real_tokens(batch: Mapping[str, Any]) -> int | Tensor:
    """How many tokens of a batch are no padding: by its mask, or by positions, which are 0 at the start of a text and
    in padding after it; a text of a single token, which trains nothing, is not told from that."""
    if MASK in batch:
        return batch[MASK].sum()  # type: ignore[no-any-return]
    if POSITIONS not in batch:
        return batch["input_ids"].numel()  # type: ignore[no-any-return]
    following = nn.functional.pad(batch[POSITIONS][:, 1:], (0, 1))
    return ((batch[POSITIONS] > 0) | (following > 0)).sum()  # type: ignore[no-any-return]


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


# ---- are texts of a row computed as if each were alone?


def labels_between(batch: Mapping[str, Any]) -> Tensor:
    """The second text of each row, the fourth and so on, each to be predicted from its own first token on."""
    is_between = _numbers(batch) % 2 == 0
    return torch.where(is_between & (batch[POSITIONS] > 0), batch["input_ids"], IGNORED)


def with_others_changed(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The first text of each row at its end; it, the third and so on with tokens from elsewhere in the batch."""
    ids, numbers = batch["input_ids"], _numbers(batch)
    changed = {**batch, "input_ids": torch.where(numbers % 2 == 0, ids, ids.flatten().flip(0).view_as(ids))}
    order = (numbers == 1).long().argsort(dim=-1, stable=True)
    moved = {name: changed[name].gather(-1, order) for name in ("input_ids", "labels", POSITIONS)}
    return {**batch, **moved, **_borders(batch, moved)}


def _numbers(batch: Mapping[str, Any]) -> Tensor:
    """Which text of its row a token is of, from 1 on."""
    return _text_starts(batch).cumsum(dim=-1)


def _borders(batch: Mapping[str, Any], moved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Where texts begin, as TRL says it to kernels that do not read positions: of one row, if the batch has it."""
    if "cu_seq_lens_q" not in batch:
        return {}
    starts = _text_starts(moved)
    places = starts.flatten().nonzero().flatten()
    ends = nn.functional.pad(places[1:], (0, 1), value=starts.shape[-1])
    lengths = nn.functional.pad(ends, (1, 0)).to(batch["cu_seq_lens_q"])
    numbers = (starts.cumsum(dim=-1) - 1).to(batch["seq_idx"])
    return {"cu_seq_lens_q": lengths, "cu_seq_lens_k": lengths, "seq_idx": numbers}


def _text_starts(batch: Mapping[str, Any]) -> Tensor:
    """Where a text begins; padding has texts of one token."""
    return batch[POSITIONS] == 0  # type: ignore[no-any-return]


def change_between(model: Any, batch: Mapping[str, Any]) -> Tensor:
    """What `relative` takes, of every second text, when those beside it are changed."""
    batch = {name: value for name, value in batch.items() if name != COLUMN} | {"labels": labels_between(batch)}
    nll, other = _nll(model, batch), _nll(model, with_others_changed(batch))
    begins = (batch[POSITIONS][batch["labels"] != IGNORED] <= BEGINNING).to(nll.device)
    moved, one = (nll - other).abs(), torch.ones_like(nll)
    sums = (moved, one, moved * begins, one * begins, nll, nll.square())
    return torch.stack([each.sum() for each in sums])


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Within, there is no dropout; then every module is in the mode that it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _nll(model: Any, batch: Mapping[str, Any]) -> Tensor:
    """Of the labels, in the order of their texts, which is the same in both batches."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model  # without gradients it has no part
    return inner(**batch).tokens.nll  # type: ignore[no-any-return]


def relative(change: Tensor) -> float:
    """The mean move, or that of the beginnings if it is more, in standard deviations of the log-likelihoods."""
    moved, count, moved_first, beginnings, total, squares = change.tolist()
    spread = max(0.0, squares / count - (total / count) ** 2) ** 0.5
    return float(max(moved / count, moved_first / beginnings) / max(spread, 1e-12))
