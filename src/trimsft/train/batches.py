"""From the rows of a user to the batches of a model: forms of rows, token weights, packed texts, masks.

A causal model needs no mask against padding on the right, with which attention takes three times as long
(docs/performance.md): on CUDA it is left out.

Of packed texts only positions say where one ends. A model that does not look there, or carries a state on, is trained
on texts that see others. So it is tried with the first batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence
from transformers import masking_utils
from trl import pack_dataset
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from trimsft.data.chat import check_chats, has_weights
from trimsft.data.encode import TOKEN_ROLES, TOKEN_WEIGHTS, Encoder, encode, require_masked_prompts, tokenise
from trimsft.data.formats import FORMS, KNOWN, PAIR, TRL_FORMS, WEIGHT, columns_of, converted, find_form
from trimsft.data.load import DataConfig
from trimsft.errors import DataError, UsageError
from trimsft.head import IGNORED
from trimsft.train.patching import inside_peft

TOKEN_COLUMNS = {TOKEN_WEIGHTS: torch.float32, TOKEN_ROLES: torch.int64}
MASK, POSITIONS, ROW_LENGTHS = "attention_mask", "position_ids", "trimsft_row_lengths"
IMAGES = {"image", "images"}
BEGINNING = 16
"""First tokens of a text, compared by themselves, too: later ones depend on others but little."""
MOST_CHANGE, IN_FLOAT32 = 0.05, 1e-4
"""The most that log-likelihoods may move, in units of their spread: docs/guides/packing.md."""


# ---- rows


def known(rows: Any, args: Any, name: str) -> Any:
    """Return a dataset, or several by name, with alpaca and sharegpt in other forms."""
    if isinstance(rows, dict):
        return type(rows)({key: known(part, args, key) for key, part in rows.items()})
    if isinstance(rows, Dataset) and len(rows) == 0:
        raise DataError("has no rows", field=f"{name}_dataset")
    if _is_left_alone(rows, args):
        return rows
    columns = columns_of(rows)
    if IMAGES & set(columns):  # TRL makes their tokens batch by batch, and knows no weights
        chats = [column for column in columns if column in ("messages", "prompt", "completion")]
        some = rows.select_columns(chats) if isinstance(rows, Dataset) else rows.take(1)
        turns = (turn for row in some for column in chats if isinstance(row[column], list) for turn in row[column])
        if {WEIGHT, TOKEN_WEIGHTS} & set(columns) or any(map(has_weights, turns)):
            raise DataError("weights of rows with images are not read", field=f"{name}_dataset", hint="remove them")
    return rows if _is_for_trl(columns, args) else converted(rows, f"{name}_dataset")


def tokenised(rows: Any, tokenizer: Any, args: Any, name: str, *, with_roles: bool = False) -> Any:
    """Return other forms and weights, which TRL does not know, as tokens; or rows as they are."""
    rows = known(rows, args, name)
    if _is_left_alone(rows, args):
        return rows
    columns = columns_of(rows)
    form = find_form(columns)
    if not _is_for_trl(columns, args):
        if form != PAIR:
            problem = f"has rows with the columns {', '.join(columns)}, which are of no form that is known"
            raise DataError(problem, field=f"{name}_dataset", hint=f"known: {KNOWN}; or give a formatting_func")
        require_masked_prompts(args.completion_only_loss)
        return encode(rows, tokenizer, DataConfig(f"{name}_dataset"), with_roles=with_roles)
    train_on: Any = "assistant" if args.assistant_only_loss else "all"
    encoder, where = Encoder(tokenizer, train_on, args.completion_only_loss, with_roles=with_roles), f"{name} data"
    is_weighed = with_roles or bool({WEIGHT, TOKEN_WEIGHTS} & set(columns))
    if not is_weighed and form in ("messages", "prompt-completion") and tokenizer.chat_template:
        # the rows of a stream are not known before
        is_weighed = not isinstance(rows, Dataset) or check_chats(rows.with_format(None), encoder, where)
    return tokenise(rows, encoder, where) if is_weighed or rows.column_names is None else rows


def _is_left_alone(rows: Any, args: Any) -> bool:
    """Return whether rows are not prepared at all."""
    is_skipped = (args.dataset_kwargs or {}).get("skip_prepare_dataset") or not hasattr(rows, "column_names")
    return is_skipped or (isinstance(rows, Dataset) and rows.format["type"] == "custom")


def _is_for_trl(columns: list[str], args: Any) -> bool:
    has_form = any(set(FORMS[form]) <= set(columns) for form in TRL_FORMS)
    return has_form or bool({args.dataset_text_field, *IMAGES} & set(columns))


def cut_with_weights(dataset: Dataset, args: Any, packing: bool) -> Dataset:
    """Truncate or pack tokenised rows as TRL does, their weights with them."""
    own = [name for name in TOKEN_COLUMNS if name in dataset.column_names]
    dataset = dataset.select_columns(["input_ids", "labels", *own])
    if packing:
        dataset = dataset.shuffle(seed=args.seed) if args.shuffle_dataset else dataset
        return pack_dataset(dataset, args.max_length, args.packing_strategy)
    if args.max_length is not None:
        kept = slice(args.max_length) if args.truncation_mode == "keep_start" else slice(-args.max_length, None)
        dataset = dataset.map(lambda row: {name: values[kept] for name, values in row.items()})
        dataset = dataset.filter(lambda labels: any(label != IGNORED for label in labels), input_columns="labels")
    return dataset.shuffle(seed=args.seed) if args.shuffle_dataset else dataset


# ---- collators


@dataclass
class WeightedRows(DataCollatorForLanguageModeling):  # type: ignore[misc]
    """Makes a batch as TRL does, with weight and role of each label where rows have them."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().torch_call(examples)
        width = batch["labels"].shape[1]
        for name, kind in TOKEN_COLUMNS.items():
            if name in examples[0]:
                rows = [torch.tensor(example[name], dtype=kind) for example in examples]
                rows = [torch.cat(rows)] if self.padding_free else rows
                batch[name] = torch.stack([nn.functional.pad(row, (0, width - len(row))) for row in rows])
        if self.padding_free:  # all rows are one
            batch[ROW_LENGTHS] = torch.tensor([len(example["input_ids"]) for example in examples])
        if TOKEN_WEIGHTS in batch:
            batch["labels"][batch[TOKEN_WEIGHTS] == 0] = IGNORED  # not counted by Trainer
        return batch


@dataclass
class PackedRows(WeightedRows):
    """Rows of several texts, which transformers tells apart by their positions."""

    width: int | None = None  # packed rows are padded to it

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch: dict[str, Tensor] = super().torch_call(examples)
        if "seq_lengths" not in examples[0]:  # not packed, of an evaluation
            return {name: value for name, value in batch.items() if name != POSITIONS}
        batch["labels"][batch[POSITIONS] == 0] = IGNORED  # nothing before it is of its text
        missing = max(0, (self.width or 0) - batch["input_ids"].shape[1])
        fill = {"input_ids": self.pad_token_id, "labels": IGNORED, POSITIONS: 0, **dict.fromkeys(TOKEN_COLUMNS, 0)}
        names = [name for name in fill if name in batch]
        return {name: nn.functional.pad(batch[name], (0, missing), value=fill[name]) for name in names}


PAD_RIGHT = (DataCollatorForLanguageModeling, WeightedRows, PackedRows)
"""Collators that are known to put padding on the right."""


def real_tokens(batch: Mapping[str, Any]) -> int | Tensor:
    """Return how many tokens are no padding: by the mask, or by positions, which are 0 in it."""
    if MASK in batch:
        return batch[MASK].sum()  # type: ignore[no-any-return]
    if POSITIONS not in batch:
        return batch["input_ids"].numel()  # type: ignore[no-any-return]
    following = nn.functional.pad(batch[POSITIONS][:, 1:], (0, 1))  # a text begins with 0, too
    return ((batch[POSITIONS] > 0) | (following > 0)).sum()  # type: ignore[no-any-return]


# ---- masks


def splits_rows(accelerator: Any) -> bool:
    """Return whether a batch is split along its tokens, a mask among it: context parallelism."""
    parallel = accelerator.parallelism_config
    return parallel is not None and bool(parallel.cp_enabled)


def is_causal(model: Any) -> bool:
    """Return whether all of a model for text looks to the left alone, by torch's own attention."""
    config = model.config
    if config.get_text_config() is not config or config._attn_implementation != "sdpa":
        return False
    # a prompt of PEFT's that is learned stands in the cache and not in the batch
    if any(one.is_prompt_learning for one in getattr(model, "peft_config", {}).values()):
        return False
    said = {module.is_causal for module in model.modules() if hasattr(module, "is_causal")}
    return said == {True} and bool(getattr(config, "is_causal", True))


def looks_left(trainer: Any) -> bool:
    """Return whether nothing in model and loss depends on the right of a token."""
    return is_causal(trainer.model) and not trainer.aux_loss_enabled and not splits_rows(trainer.accelerator)


def with_mask_if_needed(batch: dict[str, Any], trainer: Any) -> tuple[dict[str, Any], AbstractContextManager[Any]]:
    """Return the batch as the model gets it, and the context that it is computed in."""
    on_cuda = trainer.args.device.type == "cuda"
    if MASK in batch and on_cuda and trainer.looks_left and type(trainer.data_collator) in PAD_RIGHT:
        return {name: value for name, value in batch.items() if name != MASK}, _not_packed()
    return batch, nullcontext()


def _not_packed() -> AbstractContextManager[Any]:
    """Keep transformers from searching a batch for packed texts, which waits for the device."""
    return mock.patch.object(masking_utils, "find_packed_sequence_indices", return_value=None)


def without_cudnn_attention() -> AbstractContextManager[None]:
    """Within, attention is not cuDNN's, whose gradients may be NaN with a mask (pytorch#196678)."""
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


# ---- packed texts


class PackedTexts:
    """Packs the texts of a trainer into rows, and refuses a model that does not keep them apart."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.are_apart = False  # whether texts of a row have been seen not to see each other

    def collator(self, collator: Any) -> Any:
        """Return TRL's collator, but with a row for a row where attention is torch's own.

        TRL makes one row of all, for flash attention; a mask of it costs the square of its length.
        """
        trainer = self.trainer
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
        # kernels may be made for a shape
        is_fixed = trainer.args.device.type == "cuda" and collator.pad_to_multiple_of is None
        width = trainer.args.max_length if is_fixed else None
        return PackedRows(**vars(collator) | {"padding_free": False, "return_position_ids": True}, width=width)

    def check(self, model: Any, batch: Mapping[str, Any]) -> None:
        """Refuse a batch whose texts see each other, until there has been a row of several."""
        trainer, args, sum_over_ranks = self.trainer, self.trainer.args, self.trainer.accelerator.reduce
        is_packed = POSITIONS in batch and MASK not in batch and (args.packing or args.padding_free)
        if self.are_apart or not is_packed or splits_rows(trainer.accelerator):
            return
        together, alone = both_ways(batch)
        # of all ranks, so that all of them go on alike
        if sum_over_ranks((together["labels"] != IGNORED).sum().float(), "sum") < 2:
            return
        compiles = trainer.layer_compiler.settings is not None
        eager = torch.compiler.set_stance("force_eager") if compiles else nullcontext()
        training = [module for module in model.modules() if module.training]
        model.eval()  # without dropout
        try:
            with torch.no_grad(), eager:
                change = change_between(model, together, alone, sum_over_ranks)
        finally:
            for module in training:
                module.training = True
        is_exact = not (args.bf16 or args.fp16) and torch.get_float32_matmul_precision() == "highest"
        most = IN_FLOAT32 if is_exact and trainer.model.dtype == torch.float32 else MOST_CHANGE
        if not change <= most:  # NaN is none
            inner = inside_peft(trainer.model)
            attention = f"{inner.config._attn_implementation} attention"
            problem = f"{type(inner).__name__} would not tell the texts of a row apart, with {attention}"
            field = "packing" if args.packing else "padding_free"
            raise UsageError(problem, field=field, value=True, hint="turn it off")
        self.are_apart = True


def both_ways(batch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return packed rows, labelled where texts follow another, and each of these in a row."""
    starts = batch[POSITIONS] == 0  # padding has texts of one token
    numbers = (starts.flatten().cumsum(0) - 1).view_as(starts)
    lengths = torch.bincount(numbers.flatten())
    lengths[numbers[:, 0]] = 0  # nothing comes before the first text of a row
    # of the longest as many as need no more room than they had
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


def change_between(model: Any, together: Mapping[str, Any], alone: Mapping[str, Any], reduce: Any) -> float:
    """Return how far log-likelihoods move, all or those of beginnings, in standard deviations."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model  # it has no part without gradients
    nll, other = inner(**together).tokens.nll, inner(**alone).tokens.nll
    begins = (together[POSITIONS][together["labels"] != IGNORED] <= BEGINNING).to(nll.device)
    moved, one = (nll - other).abs(), torch.ones_like(nll)
    sums = (moved, one, moved * begins, one * begins, nll, nll.square())
    sums_of_ranks = reduce(torch.stack([each.sum() for each in sums]).float(), "sum").tolist()
    moved_by, count, moved_first, beginnings, total, squares = sums_of_ranks
    spread = max(0.0, squares / count - (total / count) ** 2) ** 0.5
    return float(max(moved_by / count, moved_first / beginnings) / max(spread, 1e-12))
