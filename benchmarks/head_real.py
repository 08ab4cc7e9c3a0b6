"""Every objective on real hidden states: rows kept, error of the gradients by skipping, time; writes JSON.

    python benchmarks/hidden_states.py MODEL states.safetensors --data gsm8k_train.jsonl math_train.jsonl.gz
    python benchmarks/head_real.py states.safetensors --out docs/results/head_real_h200.json

The error is that of skipping alone: float32 with `skip_below` against float32 without.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import trimsft
from trimsft.bench.head import machine, measure
from trimsft.head import DEFAULT_SKIP_BELOW

THRESHOLDS = (1e-3, DEFAULT_SKIP_BELOW, 2e-3, 4e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("states", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=None, help="use only so many, evenly spread")
    parser.add_argument("--no-time", action="store_true", help="leave out the timing")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = load_file(arguments.states, device=device)
    hidden, labels, weight = tensors["hidden"], tensors["labels"], tensors["weight"]
    if arguments.tokens is not None:
        step = len(labels) // arguments.tokens
        hidden, labels = hidden[::step], labels[::step]
    report: dict[str, Any] = {"machine": machine(), "tokens": len(labels), "skip_below": DEFAULT_SKIP_BELOW}
    report["objectives"] = []
    for name in trimsft.OBJECTIVES:
        entry = {"objective": name, **_skipping(hidden, weight, labels, name)}
        if not arguments.no_time:
            entry |= _timing(hidden, weight, labels, name)
        report["objectives"].append(entry)
        print(json.dumps(entry), flush=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")


def _skipping(hidden: Tensor, weight: Tensor, labels: Tensor, name: str) -> dict[str, Any]:
    exact = _gradients(hidden.float(), weight.float(), labels, name, 0.0)
    found: dict[str, Any] = {"mean_weight": float(exact[0].weights.mean())}
    for threshold in THRESHOLDS:
        out, grad_hidden, grad_weight = _gradients(hidden.float(), weight.float(), labels, name, threshold)
        found[f"skip_below_{threshold:g}"] = {
            "kept": out.kept / len(labels),
            "hidden_error": float((grad_hidden - exact[1]).norm() / exact[1].norm()),
            "weight_error": float((grad_weight - exact[2]).norm() / exact[2].norm()),
        }
    return found


def _gradients(
    hidden: Tensor, weight: Tensor, labels: Tensor, name: str, skip_below: float
) -> tuple[trimsft.LossOutput, Tensor, Tensor]:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    out = trimsft.linear_cross_entropy(hidden, weight, labels, trimsft.make_objective(name), skip_below=skip_below)
    out.loss.backward()
    assert hidden.grad is not None and weight.grad is not None
    return out, hidden.grad, weight.grad


def _timing(hidden: Tensor, weight: Tensor, labels: Tensor, name: str) -> dict[str, float]:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    objective = trimsft.make_objective(name)
    times = {}
    for label, skip_below in (("exact", 0.0), ("default", DEFAULT_SKIP_BELOW)):
        measured = measure(
            lambda skip=skip_below: (
                trimsft.linear_cross_entropy(hidden, weight, labels, objective, skip_below=skip).loss
            ),
            (hidden, weight),
        )
        times[f"milliseconds_{label}"] = measured["milliseconds"]
    return times


if __name__ == "__main__":
    main()
