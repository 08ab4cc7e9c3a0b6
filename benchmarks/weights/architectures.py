"""What a Llama and a Gemma-3 differ in, read from their configs; `stacked.py` computes with it.

Gemma-3 has norms of queries and keys and after each half of a block, their weights stored less 1. It scales its
embeddings, and most of its layers see a window of the last tokens, with rotary positions of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from trimsft.errors import UsageError


@dataclass(frozen=True)
class Layer:
    """What one layer sees."""

    theta: float  # the base of its rotary positions
    window: int | None = None  # a token sees this many, itself included; None: all before it


@dataclass(frozen=True)
class Norms:
    """The names of a block's norms; None where there is none."""

    before_mlp: str
    before_attention: str = "input_layernorm"
    of_queries: str | None = None
    of_keys: str | None = None
    after_attention: str | None = None
    after_mlp: str | None = None


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A decoder with rotary positions, RMS norms, a gated MLP, tied embeddings and no biases."""

    layers: tuple[Layer, ...]
    heads: int
    key_heads: int
    head_size: int
    attention_scale: float
    norms: Norms
    norm_eps: float
    norm_offset: float = 0.0  # what is added to the stored weights of norms
    activation: Callable[[Tensor], Tensor]
    embedding_scale: float = 1.0

    @classmethod
    def of(cls, config: Any) -> Architecture:
        """Of a transformers config."""
        make = {"llama": _llama, "gemma3_text": _gemma3}.get(config.model_type)
        if make is None or not config.tie_word_embeddings or config.attention_bias:
            problem = "must be a Llama or a Gemma-3 for text, with tied embeddings and no biases"
            raise UsageError(problem, field="base", value=config.model_type)
        return make(config)


def _llama(config: Any) -> Architecture:
    if config.mlp_bias or config.hidden_act != "silu":
        raise UsageError("must be a Llama with SiLU and no biases", field="base", value=config.hidden_act)
    head_size = config.head_dim or config.hidden_size // config.num_attention_heads
    return Architecture(
        layers=(Layer(_theta(config.rope_parameters)),) * config.num_hidden_layers,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_size=head_size,
        attention_scale=head_size**-0.5,
        norms=Norms(before_mlp="post_attention_layernorm"),
        norm_eps=config.rms_norm_eps,
        activation=F.silu,
    )


def _gemma3(config: Any) -> Architecture:
    if config.use_bidirectional_attention or config.attn_logit_softcapping or config.final_logit_softcapping:
        raise UsageError("must be a Gemma-3 that caps no logits and looks back only", field="base", value="gemma3_text")
    kinds = {
        "full_attention": Layer(_theta(config.rope_parameters["full_attention"])),
        "sliding_attention": Layer(_theta(config.rope_parameters["sliding_attention"]), config.sliding_window),
    }
    return Architecture(
        layers=tuple(kinds[kind] for kind in config.layer_types),
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_size=config.head_dim,
        attention_scale=config.query_pre_attn_scalar**-0.5,
        norms=Norms(
            of_queries="self_attn.q_norm",
            of_keys="self_attn.k_norm",
            after_attention="post_attention_layernorm",
            before_mlp="pre_feedforward_layernorm",
            after_mlp="post_feedforward_layernorm",
        ),
        norm_eps=config.rms_norm_eps,
        norm_offset=1.0,
        activation=partial(F.gelu, approximate="tanh"),
        embedding_scale=config.hidden_size**0.5,
    )


def _theta(positions: Any) -> float:
    if positions["rope_type"] != "default":
        raise UsageError("must have plain rotary positions", field="base", value=positions["rope_type"])
    return float(positions["rope_theta"])
