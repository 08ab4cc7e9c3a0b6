"""What a training needs, small enough to make in a test: a model folder, problems and solutions, and the fields."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.data.toys import make_tokenizer


def make_model(folder: Path, *, tied: bool = True) -> Path:
    """Attention drops out, so that random numbers matter to the weights."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        attention_dropout=0.1, tie_word_embeddings=tied, initializer_range=0.1,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_data(path: Path, rows: int = 40) -> Path:
    """Sums, some with long solutions."""
    draw = random.Random(rows)
    lines = []
    for _ in range(rows):
        a, b = draw.randrange(100), draw.randrange(100)
        steps = "".join(f"{part}+{b}={part + b}. " for part in range(draw.choice((0, 1, 6))))
        problem, solution = f"What is {a}+{b}?", f"{steps}It is \\boxed{{{a + b}}}."
        lines.append(json.dumps({"problem": problem, "solution": solution}))
    path.write_text("\n".join(lines) + "\n")
    return path


def make_fields(folder: Path, **changes: Any) -> dict[str, Any]:
    """10 steps an epoch of 2 x 2 shuffled examples, with warm-up and cosine decay; a checkpoint every other step."""
    return {
        "model_name_or_path": str(make_model(folder / "tiny-model")),
        "dataset_name": str(make_data(folder / "sums.jsonl")),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 2,
        "logging_steps": 1,
        "save_steps": 2,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        **changes,
    }


def as_words(fields: Mapping[str, Any]) -> list[str]:
    """The fields as a command line takes them."""
    return [word for name, value in fields.items() for word in (f"--{name}", str(value))]
