"""A tokenizer, models and token tables small enough to make in a test."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    PhiConfig,
    PreTrainedTokenizerFast,
)

from tests.data import toys
from tests.tokens.by_hand import hand_table
from trimsft.tokens.categories import categorise
from trimsft.tokens.table import as_arrow, write_table

ROWS = [
    {"problem": f"What is {n}+{n}?", "solution": "It is so. " * (n % 3) + f"It is \\boxed{{{2 * n}}}."}
    for n in range(12)
]
_SIZE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,  # far from uniform: gaps of several units
}
CONFIGS: dict[str, Any] = {
    "llama": lambda size: LlamaConfig(**size),
    "gemma2": lambda size: Gemma2Config(**size, head_dim=8, final_logit_softcapping=5.0),  # capped
    "cohere": lambda size: CohereConfig(**size, logit_scale=0.25),
    "granite": lambda size: GraniteConfig(**size, logits_scaling=4.0),
    "phi": lambda size: PhiConfig(**size),  # a head with a bias
}


def make_tokenizer(*, adds_bos: bool = False, chat: str | None = None) -> PreTrainedTokenizerFast:
    """Byte-level BPE that knows a few words."""
    texts = ["What is so? It is so.", "Problem: Solution: the sum of the sum"]
    return toys.make_tokenizer(adds_bos=adds_bos, chat=chat, texts=texts, special=("<bos>", "<eos>"), size=300)


def make_folder(folder: Path, kind: str = "llama", **tokenizer: Any) -> Path:
    """A model folder as any other."""
    made = make_tokenizer(**tokenizer)
    size = {"vocab_size": len(made), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    config = CONFIGS[kind]({**_SIZE, **size})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        if getattr(model.get_output_embeddings(), "bias", None) is not None:
            torch.nn.init.normal_(model.get_output_embeddings().bias)
    model.save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def make_table(
    path: Path,
    texts: list[list[str]],
    *,
    shift: float = 0.0,
    prompts: tuple[str, ...] = (),
    gap: Any = None,
    data_weight: Any = 1.0,
) -> Path:
    """A token table with these texts: gaps from -3 to 12, the other numbers as if there were two tokens."""
    flat = [text for row in texts for text in row]
    gap = (np.linspace(-3, 12, len(flat)) if gap is None else np.asarray(gap)) + shift
    p = 1 / (1 + np.exp(-gap))
    example = np.repeat(np.arange(len(texts)), list(map(len, texts)))
    made = hand_table(gap, norm=np.sqrt(2) * (1 - p), nll=-np.log(p), example=example, rank=np.where(gap > 0, 1, 2))
    columns = {
        **made.columns,
        "text": flat,
        "category": [kind for row in texts for kind in categorise(row)],
        "competitor_id": [len(flat) - 1] * len(flat),
        "competitor_text": flat[-1:] * len(flat),
        "entropy": -p * np.log(p) - (1 - p) * np.log1p(-p),
        "data_weight": np.ones_like(p) * data_weight,
    }
    metadata = {"model": "m", "data": {"rows": len(texts)}, "prompts": prompts, "versions": {"torch": "2"}}
    write_table(path, as_arrow(columns), metadata)
    return path
