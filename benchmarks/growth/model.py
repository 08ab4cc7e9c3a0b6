"""The fused head against tokens and vocabulary, and a training step against the length of the sequence.

On the CPU in float32 and CPU seconds, with memory beyond inputs and gradients. On a GPU in bfloat16, with the events of
the device and the memory that torch allocates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import trimsft
from benchmarks.growth.measuring import Measured

HIDDEN = 576
VOCABULARY = 49_152
TOKENS = {"cpu": 1024, "cuda": 8192}  # beside which the vocabulary grows
SHAPE = {
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 65_536,
}


def head_by_tokens(size: int, device: str) -> dict[str, float]:
    """Forward and backward of SFT, in which no row is skipped."""
    return _head(size, VOCABULARY, device)


def head_by_vocabulary(size: int, device: str) -> dict[str, float]:
    return _head(TOKENS[device], size, device)


def lean_head_by_tokens(size: int, device: str) -> dict[str, float]:
    """The same without logit gradients that are kept, which only the kernels do."""
    return _head(size, VOCABULARY, device, low_memory=True)


def _head(tokens: int, vocabulary: int, device: str, **options: Any) -> dict[str, float]:
    torch.manual_seed(0)
    kind: dict[str, Any] = {"device": device, "dtype": torch.float32 if device == "cpu" else torch.bfloat16}
    hidden = torch.randn(tokens, HIDDEN, **kind).requires_grad_()
    weight = torch.empty(vocabulary, HIDDEN, **kind).normal_(std=HIDDEN**-0.5).requires_grad_()
    labels = torch.randint(vocabulary, (tokens,), device=device)
    some = 64 if device == "cpu" else tokens  # the first call of a shape compiles kernels

    def step(rows: int = tokens) -> None:
        trimsft.linear_cross_entropy(hidden[:rows], weight, labels[:rows], trimsft.SFT(), **options).loss.backward()
        hidden.grad = weight.grad = None

    step(some)
    gradients = (hidden.numel() + weight.numel()) * hidden.element_size() / 2**20
    cost = _cost(step, device)
    return {**cost, "peak_mb": round(cost["peak_mb"] - gradients, 1)}


def training_by_length(size: int, device: str) -> dict[str, float]:
    """A step of a small Llama on one sequence; and what of it is attention, measured alone."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    model: Any = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE), dtype=kind, attn_implementation="sdpa")
    model = model.to(device)
    trimsft.patch(model, trimsft.SFT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)

    def step(length: int = size) -> None:
        ids = torch.arange(length, device=device)[None] % SHAPE["vocab_size"]
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step(64 if device == "cpu" else size)
    attention = _attention(size, device, kind)
    cost, alone = _cost(step, device), _cost(attention, device)["seconds"]
    return {**cost, "attention_seconds": alone, "other_seconds": round(cost["seconds"] - alone, 5)}


def _attention(length: int, device: str, kind: torch.dtype) -> Callable[[], None]:
    heads = SHAPE["num_attention_heads"]
    shape = (1, heads, length, SHAPE["hidden_size"] // heads)
    sides: list[Tensor] = [torch.randn(shape, device=device, dtype=kind, requires_grad=True) for _ in range(3)]

    def attend() -> None:
        for _ in range(SHAPE["num_hidden_layers"]):
            torch.nn.functional.scaled_dot_product_attention(*sides, is_causal=True).sum().backward()

    attend()
    return attend


def _cost(step: Callable[[], None], device: str) -> dict[str, float]:
    """Seconds and memory of one step."""
    if device == "cpu":
        with Measured() as cost:
            step()
        return cost.as_dict()
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    repeats = 5
    events[0].record()
    for _ in range(repeats):
        step()
    events[1].record()
    torch.cuda.synchronize()
    return {"seconds": round(events[0].elapsed_time(events[1]) / repeats / 1000, 6), "peak_mb": round(peak, 1)}
