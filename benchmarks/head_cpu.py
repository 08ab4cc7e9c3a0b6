"""The chunked head against plain torch on the CPU: time and peak memory; writes JSON.

    python benchmarks/head_cpu.py --out results/head_cpu.json [--states states.safetensors]

Every method runs in a process of its own; its peak resident memory above that before the step is reported, the
gradients included. Synthetic gaps, or the real hidden states given.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from measuring import machine, measure, plain_loss, synthetic_head
from safetensors.torch import load_file
from torch import Tensor

import trimsft
from trimsft.head import DEFAULT_SKIP_BELOW

METHODS = ("plain SFT", "plain TrimSFT", "trimsft SFT exact", "trimsft SFT", "trimsft TrimSFT exact", "trimsft TrimSFT")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--states", type=Path, help="real hidden states (benchmarks/hidden_states.py)")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--vocabulary", type=int, default=49_152)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--method", help="measure only this one, in this process, and print it")
    arguments = parser.parse_args()
    if arguments.method:
        print(json.dumps(_one(arguments)))
        return
    shape = {key: getattr(arguments, key) for key in ("tokens", "hidden", "vocabulary")}
    report = {"machine": machine(), "dtype": "float32", **shape, "inputs": "real" if arguments.states else "synthetic"}
    report["results"] = []
    for method in METHODS:
        command = [sys.executable, __file__, *sys.argv[1:], "--method", method]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        report["results"].append(result)
        print(result, flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


def _one(arguments: argparse.Namespace) -> dict[str, object]:
    hidden, weight, labels = _inputs(arguments)
    hidden, weight = hidden.requires_grad_(), weight.requires_grad_()
    run = _load(arguments.method)
    measured = measure(lambda: run(hidden, weight, labels), (hidden, weight), seconds=arguments.seconds, warmup=1)
    return {"method": arguments.method, **measured}


def _inputs(arguments: argparse.Namespace) -> tuple[Tensor, Tensor, Tensor]:
    if arguments.states is None:
        return synthetic_head(
            arguments.tokens, arguments.hidden, arguments.vocabulary, device="cpu", dtype=torch.float32
        )
    tensors = load_file(arguments.states)
    step = len(tensors["labels"]) // arguments.tokens
    return tensors["hidden"][::step].float(), tensors["weight"].float(), tensors["labels"][::step]


def _load(method: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    if method.startswith("plain"):
        return partial(plain_loss, objective="sft" if method == "plain SFT" else "trim")
    objective = trimsft.SFT() if " SFT" in method else trimsft.TrimSFT()
    skip_below = 0.0 if "exact" in method else DEFAULT_SKIP_BELOW
    return lambda hidden, weight, labels: (
        trimsft.linear_cross_entropy(hidden, weight, labels, objective, skip_below=skip_below).loss
    )


if __name__ == "__main__":
    main()
