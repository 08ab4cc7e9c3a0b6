"""What leaving rows out of the head's backward pass does to the update of an optimizer; writes JSON and a table.

    python benchmarks/skipping.py --out results/skipping.json

The lab's base with a head of its own (untied) makes some AdamW updates with each threshold. Adam divides each element
by the size of its own gradient, so that a row of the head whose tokens are all easy moves as far as any other, however
small its gradient: the error of the gradient says little. Compared is how far lm_head moved, with that of the same
updates without skipping: relative to its norm, and the median and the worst over rows of the head (tokens). The control
rounds the exact gradients to bfloat16.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from measuring import machine
from torch import Tensor

import trimsft
from trimsft import lab
from trimsft.data.encode import encode_pairs, load_tokenizer
from trimsft.data.templates import choose_template
from trimsft.models import load_model

FORMATS = {"known": 0.0, "new": 1.0}
THRESHOLDS = (1.5e-3, 1e-6, 1e-8)
OBJECTIVES = ("sft", "dft", "trim-e", "auto-trim", "trim", "trim,margin=6,bandwidth=2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=25)
    parser.add_argument("--objectives", nargs="+", default=list(OBJECTIVES))
    arguments = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "updates": arguments.updates, "runs": []}
    for form, share in FORMATS.items():
        batches = list(_batches(share, arguments.updates))
        for objective in arguments.objectives:
            exact = _train(batches, objective, skip_below=0.0)
            control = {"control": "bfloat16", **_compare(_train(batches, objective, 0.0, rounded=True), exact)}
            runs = [control]
            for threshold in THRESHOLDS:
                runs.append({"skip_below": threshold, **_compare(_train(batches, objective, threshold), exact)})
            for run in runs:
                report["runs"].append({"format": form, "objective": objective, **run})
                print(json.dumps(report["runs"][-1]), flush=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")


def _batches(unfamiliar_share: float, updates: int, rows: int = 12) -> Iterator[dict[str, Tensor]]:
    tokenizer = load_tokenizer(lab.base_model_path())
    template = choose_template("auto", tokenizer)
    made = lab.training_rows(lab.FineTuning(rows=rows * updates, seed=3, unfamiliar_share=unfamiliar_share))
    problems, solutions = zip(*((row["problem"], row["solution"]) for row in made), strict=True)
    pairs = encode_pairs(problems, solutions, tokenizer, template)
    for first in range(0, rows * updates, rows):
        part = [(list(prompt), list(completion)) for prompt, completion in pairs[first : first + rows]]
        longest = max(len(prompt) + len(completion) for prompt, completion in part)
        ids, labels = torch.zeros(rows, longest, dtype=torch.long), torch.full((rows, longest), -100)
        for at, (prompt, completion) in enumerate(part):
            whole = torch.tensor(prompt + completion)
            ids[at, : len(whole)] = whole
            labels[at, len(prompt) : len(whole)] = whole[len(prompt) :]
        yield {"input_ids": ids, "labels": labels, "attention_mask": ids > 0}


def _train(batches: Sequence[dict[str, Tensor]], name: str, skip_below: float, rounded: bool = False) -> dict[str, Any]:
    """How far lm_head moved, and the share of rows that took part."""
    model = load_model(lab.base_model_path(), dtype=torch.float32)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.train()  # in eval mode an objective does not follow
    before = model.lm_head.weight.detach().clone()
    kind, *settings = name.split(",")
    parameters = {key: float(value) for key, _, value in (setting.partition("=") for setting in settings)}
    trimsft.patch(model, trimsft.make_objective(kind, **parameters), skip_below=skip_below)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.95), weight_decay=0.0)
    kept = trained = 0
    for update, batch in enumerate(batches):
        out = model(**batch)
        out.loss.backward()
        kept, trained = kept + out.kept, trained + len(out.weights)
        for parameter in model.parameters() if rounded else ():
            parameter.grad.copy_(parameter.grad.bfloat16())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if hasattr(model.trimsft_head.objective, "advance"):
            trimsft.advance(model, (update + 1) / len(batches))
    return {"moved": model.lm_head.weight.detach() - before, "kept": kept / trained}


def _compare(run: dict[str, Any], exact: dict[str, Any]) -> dict[str, float]:
    off = run["moved"] - exact["moved"]
    rows = off.norm(dim=1) / exact["moved"].norm(dim=1).clamp(min=1e-12)
    return {
        "kept": round(run["kept"], 4),
        "error": float(off.norm() / exact["moved"].norm()),
        "median_row": float(rows.median()),
        "worst_row": float(rows.max()),
    }


if __name__ == "__main__":
    main()
