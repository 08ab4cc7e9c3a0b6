"""Hidden states of a real model on real solutions, for benchmarks of the head.

    python benchmarks/hidden_states.py MODEL OUT.safetensors --data gsm8k_train.jsonl math_train.jsonl.gz

Each row of the data has `problem` and `solution`. Only the tokens of the solutions are kept, shifted, so that
`hidden[i]` predicts `labels[i]`; as many of each file as it takes to fill --tokens.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--tokens", type=int, default=16_384)
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    share = arguments.tokens // len(arguments.data)
    pieces = [piece for path in arguments.data for piece in _solution_states(model, tokenizer, path, share)]
    save_file(
        {
            "hidden": torch.cat([hidden for hidden, _ in pieces]).bfloat16(),
            "labels": torch.cat([labels for _, labels in pieces]),
            "weight": model.get_output_embeddings().weight.detach().bfloat16(),
        },
        arguments.out,
    )


@torch.no_grad()
def _solution_states(model, tokenizer, path: Path, wanted: int) -> Iterator[tuple[Tensor, Tensor]]:
    for problem, solution in _rows(path):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": problem}], add_generation_prompt=True, tokenize=False
        )
        start = len(tokenizer(prompt, add_special_tokens=False).input_ids)
        ids = tokenizer(prompt + solution + tokenizer.eos_token, add_special_tokens=False).input_ids
        ids = torch.tensor(ids[:1024])
        hidden = model.model(ids[None]).last_hidden_state[0]
        rows = slice(start - 1, min(len(ids) - 1, start - 1 + wanted))
        labels = ids[1:][rows]
        yield hidden[rows], labels
        wanted -= len(labels)
        if wanted == 0:
            return
    raise SystemExit(f"{path}: too short by {wanted} tokens")


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            row = json.loads(line)
            yield row["problem"], row["solution"]


if __name__ == "__main__":
    main()
