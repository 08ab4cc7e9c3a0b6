"""Tokenizers and data small enough to make in a test."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from trimsft.data.load import DataConfig

CHAT = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
ROWS = [{"problem": f"What is {n}+1?", "solution": f"It is \\boxed{{{n + 1}}}."} for n in range(8)]
TEXTS = ["What is 1+1? It is \\boxed{2}.", "Problem: Solution: Please reason step by step", "the sum of the sum"]


def make_tokenizer(
    *,
    adds_bos: bool = False,
    chat: str | None = None,
    eos: str | None = "<eos>",
    texts: Sequence[str] = TEXTS,
    special: Sequence[str] = ("<bos>", "<eos>", "<end>"),
    size: int = 320,
) -> PreTrainedTokenizerFast:
    """Byte-level BPE that knows a few words; every text survives the way there and back."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", backend.token_to_id("<bos>"))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token=eos, extra_special_tokens=list(special[2:])
    )
    tokenizer.chat_template = chat
    return tokenizer


def write(path: Path, rows: list[Any]) -> str:
    """A file of JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def local(path: Path, rows: list[Any] = ROWS, **options: Any) -> DataConfig:
    """Settings for data in train.jsonl of that folder."""
    return DataConfig(dataset_name=write(path / "train.jsonl", rows), **options)


def split(tokenizer: Any, row: dict[str, list[int]]) -> tuple[str, str]:
    """Text of the masked and of the trained part, special tokens included."""
    masked = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label == -100]
    return tokenizer.decode(masked), tokenizer.decode([label for label in row["labels"] if label != -100])
