"""A language model and a tokenizer small enough to make in a test; every text survives the tokenizer."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TINY: dict[str, Any] = {
    "vocab_size": 262,
    "hidden_size": 64,  # heads of 32, the least that vLLM has for a CPU
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
    "bos_token_id": None,
    "eos_token_id": 0,
}
SPECIAL = ["<eos>", "<|im_start|>", "<|im_end|>"]


def make_tokenizer(chat: str | None = CHAT, special: list[str] = SPECIAL) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=259 + len(special),
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["What is 1+1? It is 2."], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", extra_special_tokens=special[1:])
    tokenizer.chat_template = chat
    return tokenizer


def make_model(seed: int = 0, **settings: Any) -> LlamaForCausalLM:
    """Random weights, large enough that its next token depends on the whole text."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**TINY | settings)).eval()


def save_model(folder: Path) -> Path:
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
