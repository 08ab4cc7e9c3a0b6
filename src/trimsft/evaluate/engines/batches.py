"""Decoding in batches by `generate` of transformers: slower than slots, but for models of every build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList

from trimsft.evaluate.engines.base import Request
from trimsft.evaluate.engines.draw import Drawer


def complete(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    requests: Sequence[Request],
    stops: Sequence[int],
) -> list[list[int]]:
    """New tokens of each row; what follows the end of a row is padding."""
    sampling = requests[0].sampling
    pad = stops[0] if stops else 0
    ids, mask = _pad_left(prompts, pad, model.device)
    config = GenerationConfig(
        max_new_tokens=sampling.max_tokens,
        do_sample=False,  # the drawing is ours
        eos_token_id=list(stops) or None,
        pad_token_id=pad,
        stop_strings=list(sampling.stop) or None,
    )
    own, model.generation_config = (
        model.generation_config,
        GenerationConfig(),
    )  # it fills what ours leaves open
    try:
        with torch.inference_mode():
            rows: list[list[int]] = model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList([_Drawing(requests, ids)]),
                tokenizer=tokenizer,
            )[:, ids.shape[1] :].tolist()
    finally:
        model.generation_config = own
    return rows


class _Drawing:
    """`Drawer` in the form that `generate` calls."""

    def __init__(self, requests: Sequence[Request], ids: Tensor) -> None:
        self._prompt_length = ids.shape[1]
        self._drawer = Drawer([r.seed for r in requests], [r.sampling for r in requests], ids.device)

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        return self._drawer.scores(logits, step=ids.shape[1] - self._prompt_length)


def _pad_left(rows: Sequence[Sequence[int]], pad: int, device: Any) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, width - len(row) :] = torch.tensor(row)
        mask[index, width - len(row) :] = 1
    return ids.to(device), mask.to(device)
