"""What the three examples share: their options, rows to train on, and a model."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trimsft import OBJECTIVES

SUMS = [
    {"problem": f"What is {a} + {b}?", "solution": f"{a} + {b} = \\boxed{{{a + b}}}"}
    for a, b in zip(range(3, 50, 4), range(2, 80, 7), strict=True)
]


def parse(description: str | None, *, out: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M", help="name on the hub, or a folder")
    parser.add_argument("--data", help="JSON Lines with problem and solution; a dozen sums if not given")
    parser.add_argument("--objective", choices=list(OBJECTIVES), default="auto-trim")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--out", default=out, help="folder for the model")
    return parser.parse_args()


def load_rows(path: str | None) -> list[dict[str, str]]:
    """Prompts and completions: {"prompt": "Problem: What is 1+1?\\nSolution:", "completion": " It is \\boxed{2}."}."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()] if path else SUMS
    return [{"prompt": f"Problem: {row['problem']}\nSolution:", "completion": f" {row['solution']}"} for row in rows]


def tokenize(row: dict[str, str], tokenizer: Any) -> tuple[list[int], list[int]]:
    """Prompt and completion, the second with the end-of-sequence token."""
    completion = tokenizer(row["completion"], add_special_tokens=False)["input_ids"]
    return tokenizer(row["prompt"])["input_ids"], [*completion, tokenizer.eos_token_id]


def load_model(name: str) -> tuple[Any, Any]:
    """Tokenizer and model; one line instead of a traceback where they cannot be had."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        return tokenizer, AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    except OSError as error:
        reason = " ".join(str(error).split())
        raise SystemExit(f"--model: cannot load {name!r}: {reason} Without network, name a folder.") from None
