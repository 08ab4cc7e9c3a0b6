"""Tiny models of many builds, with random weights; what makes decoding hard is within reach of 26 tokens."""

from typing import Any

import torch
import transformers as hf

from .tiny_model import TINY, make_model

SIZES = {**TINY, "num_attention_heads": 4, "pad_token_id": None}
GROUPED = {**SIZES, "num_key_value_heads": 2}
WIDE = {**GROUPED, "head_dim": 16}
SHORT = {"vocab_size": 262, "initializer_range": 0.4, "eos_token_id": 0, "bos_token_id": None}
GPT = {**SHORT, "n_embd": 64, "n_layer": 2, "n_head": 4}
EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}
ROUTED = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
TWICE = {"num_hidden_layers": 4, "layer_types": MIXED["layer_types"] * 2, "sliding_window": 6}
BORROWED = {"num_kv_shared_layers": 2, "vocab_size_per_layer_input": 262, "hidden_size_per_layer_input": 16}


def rope(kind: str, **settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **settings}}


def long_rope(original: int) -> dict[str, Any]:
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    return rope("longrope", **factors, original_max_position_embeddings=original)


IN_SLOTS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3", WIDE),
    "mistral, window": ("Mistral", {**GROUPED, "sliding_window": 6}),
    "qwen2, window in one layer": (
        "Qwen2",
        {**GROUPED, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "gemma3, window and two bases": ("Gemma3", {**WIDE, **TWICE, "query_pre_attn_scalar": 16}),
    "gemma4, window and borrowed keys": ("Gemma4", {**WIDE, **TWICE, **BORROWED}),
    "deepseek-v3, latent attention": (
        "DeepseekV3",
        {**SIZES, **EXPERTS, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8}
        | {"qk_nope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
        | {"moe_intermediate_size": 32, "first_k_dense_replace": 1},
    ),
    "gpt2, learned positions": ("GPT2", {**GPT, "n_positions": 256}),
    "llama, dynamic": ("Llama", {**GROUPED, "max_position_embeddings": 28, **rope("dynamic", factor=4.0)}),
    "phi3, longrope, not reached": ("Phi3", {**GROUPED, "original_max_position_embeddings": 28, **long_rope(28)}),
}
"""Builds that slots decode right."""

IN_BATCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt-oss, window and sinks": ("GptOss", {**WIDE, **EXPERTS, **MIXED, **rope("default")}),
    "gemma2, window and soft cap": (
        "Gemma2",
        {**WIDE, **MIXED, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16},
    ),
    "phi3, longrope": ("Phi3", {**GROUPED, "original_max_position_embeddings": 16, **long_rope(16)}),
    "phimoe, window in its masks": ("Phimoe", {**GROUPED, **EXPERTS, "sliding_window": 6}),
    "mamba": ("Mamba", {"vocab_size": 262, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": 0}),
    "rwkv": ("Rwkv", {"vocab_size": 262, "hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": 0}),
    "qwen3-next, linear attention": (
        "Qwen3Next",
        {**WIDE, **ROUTED, "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4}
        | {"linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
    ),
}
"""Builds that go through their own `generate`."""

NOT_IN_FLOAT64 = ("DeepseekV3", "Gemma2", "GptOss", "Phimoe", "Qwen3Next")
"""Some experts' matmul has none; of fully masked rows eager attention makes nan in it."""


def make_kind(name: str) -> Any:
    """In float64 where it has that, so that no rounding decides a token."""
    if name == "llama":
        return make_model(num_attention_heads=4, num_key_value_heads=2)
    family, settings = {**IN_SLOTS, **IN_BATCHES}[name]
    is_text_only = family in ("Gemma3", "Gemma4")
    config = getattr(hf, f"{family}TextConfig" if is_text_only else f"{family}Config")(**settings)
    torch.manual_seed(0)
    model: Any = getattr(hf, "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")(config)
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(0.4 * torch.randn(head.weight.shape))  # tied, it would say its last token again
    for part, weights in model.named_parameters():
        if part.endswith("sinks"):
            torch.nn.init.normal_(weights, std=2)
    return model.to(torch.float32 if family in NOT_IN_FLOAT64 else torch.float64).eval()
