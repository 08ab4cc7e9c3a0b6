"""Rows as the model sees them in training: prompt and completion tokens, the completion trained, eos included.

{"problem": "What is 1+1?", "solution": "It is \\\\boxed{2}."}
-> Example(number=0, prompt=[31, 7, ...], completion=[12, 40, ..., 1])
-> Batch(ids=[[31, 7, ..., 1, pad], ...], places=[4, 5, ...], labels=[12, 40, ...])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimsft.text.templates import PromptTemplate, encode_completions, encode_prompts


@dataclass(frozen=True)
class Example:
    """One row; its completion is what is trained."""

    number: int
    """Which row it is."""
    prompt: list[int]
    completion: list[int]
    cut: int = 0
    """Tokens beyond the maximum length."""

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


@dataclass(frozen=True)
class Batch:
    """Examples that go through the model together, padded on the right."""

    examples: list[Example]
    ids: Tensor
    """[examples, longest]"""
    places: Tensor
    """Of each trained token, in order: where in the flattened batch the hidden state stands that predicts it."""
    labels: Tensor
    """The trained tokens."""


def encode_rows(
    rows: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    template: PromptTemplate,
    *,
    max_length: int | None = None,
    first: int = 0,
) -> list[Example]:
    """The tokens that training on these rows sees; what lies beyond `max_length` is cut off, as training does."""
    prompts = encode_prompts([row["problem"] for row in rows], tokenizer, template)
    completions = encode_completions([row["solution"] for row in rows], tokenizer)
    examples = []
    for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True), start=first):
        room = None if max_length is None else max(0, max_length - len(prompt))
        short, left = prompt[:max_length], completion[:room]
        cut = len(prompt) + len(completion) - len(short) - len(left)
        examples.append(Example(number, short, left, cut))
    return examples


def count_cut(examples: Sequence[Example]) -> dict[str, int]:
    """What a maximum length took from rows, as training counts it, and how long the longest is without that."""
    return {
        "rows_cut": sum(example.cut > 0 for example in examples),
        "tokens_cut": sum(example.cut for example in examples),
        "rows_lost": sum(not example.completion for example in examples),
        "longest": max(map(len, examples), default=0),
    }


def make_batches(
    examples: Sequence[Example], batch_tokens: int, *, filler: int = 0, pinned: bool = False
) -> Iterator[Batch]:
    """Rows of like length together, each batch within `batch_tokens` when padded; rows cut before their solution
    are left out."""
    batch: list[Example] = []
    for example in sorted(examples, key=len):  # each new one is the longest so far
        if not example.completion:
            continue
        if batch and (len(batch) + 1) * len(example) > batch_tokens:
            yield _padded(batch, filler, pinned)
            batch = []
        batch.append(example)
    if batch:
        yield _padded(batch, filler, pinned)


def _padded(examples: list[Example], filler: int, pinned: bool) -> Batch:
    longest = len(examples[-1])
    ids = np.full((len(examples), longest), filler, dtype=np.int64)
    places, labels = [], []
    for row, example in enumerate(examples):
        ids[row, : len(example)] = example.prompt + example.completion
        start = row * longest + len(example.prompt) - 1  # a token is predicted by the one before it
        places.append(np.arange(start, start + len(example.completion)))
        labels += example.completion
    tensors = [torch.from_numpy(array) for array in (ids, np.concatenate(places), np.array(labels))]
    return Batch(examples, *(tensor.pin_memory() if pinned else tensor for tensor in tensors))


def check_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse rows that cannot be rendered, before a model is loaded."""
    if not rows:
        raise ValueError("rows: there are none; give at least one with the fields problem and solution")
    for name in ("problem", "solution"):
        bad = [number for number, row in enumerate(rows) if not _is_text(row.get(name))]
        if bad:
            more = f" (and {len(bad) - 1:,} more rows)" if len(bad) > 1 else ""
            raise ValueError(
                f"rows: row {bad[0]} has {rows[bad[0]].get(name)!r} as {name}{more}; it must be text that is not blank"
            )


def check_lengths(
    rows: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    template: PromptTemplate,
    *,
    max_length: int | None,
    positions: int,
) -> None:
    """Refuse rows that are longer than a model has positions for."""
    if max_length is not None and max_length <= positions:
        return
    examples = encode_rows(rows, tokenizer, template, max_length=max_length)
    long = [example for example in examples if len(example) > positions]
    if long:
        more = f" (and {len(long) - 1:,} more rows)" if len(long) > 1 else ""
        raise ValueError(
            f"rows: row {long[0].number} has {len(long[0]):,} tokens{more}, the model only {positions:,} positions; "
            f"cut them with max_length={positions}"
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
