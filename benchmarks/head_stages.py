"""The head on hidden states of a model at the start, in the middle and at the end of its training; writes JSON.

    python -m benchmarks.head_stages prepared.npz --weights SmolLM2.gguf --device cuda --out head_stages.json

Each objective trains a copy of the model (`benchmarks/weights/`, which makes the prepared file) and is then timed on
that copy's own states, as it is by default and exactly, in turns: how many rows it keeps, and what that saves.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measuring import machine, measure
from benchmarks.weights.objectives import parse_objective
from benchmarks.weights.prepared import Prepared
from benchmarks.weights.stacked import EMBEDDING, Base, StackedModel
from benchmarks.weights.training import Examples, Job, Schedule, make_batch, train
from trimsft import linear_cross_entropy
from trimsft.head import IGNORED
from trimsft.runs import write_whole

OBJECTIVES = ("sft", "dft", "trim", "trim,margin=6,bandwidth=2", "trim-e", "auto-trim")
ROWS_AT_ONCE = 32


def main() -> None:
    options = _parser().parse_args()
    prepared = Prepared.load(options.prepared)
    examples = Examples.of(prepared.training[options.data][: options.rows])
    jobs = [Job(parse_objective(name), examples, 0, options.lr) for name in options.objectives]
    updates = len(examples) // options.batch
    stages = {0: "start", updates // 2: "middle", updates: "end"}
    settings = {name: getattr(options, name) for name in ("data", "rows", "batch", "lr", "tokens", "turns")}
    report: dict[str, Any] = {"machine": machine(), "settings": settings, "results": []}

    def watch(update: int, model: StackedModel, objectives: Sequence[Any]) -> None:
        if update not in stages:
            return
        for at, name in enumerate(options.objectives):
            hidden, labels = _states(model.part(at, at + 1), examples, options.tokens)
            weight = model.parameters[EMBEDDING][at].detach().to(hidden.dtype)
            figures = _timed(hidden, weight, labels, objectives[at], options.turns)
            report["results"].append({"objective": name, "stage": stages[update], "update": update, **figures})
            write_whole(options.out, (json.dumps(report, indent=1) + "\n").encode())
            print(json.dumps(report["results"][-1]), flush=True)

    compute = torch.bfloat16 if options.device.startswith("cuda") else torch.float32
    schedule = Schedule(batch=options.batch)
    train(Base.load(options.weights), jobs, schedule, device=options.device, compute=compute, watch=watch)


@torch.no_grad()
def _states(model: StackedModel, examples: Examples, tokens: int) -> tuple[Tensor, Tensor]:
    """Hidden states and labels of so many trained tokens, from the last rows on."""
    hidden, labels, count, last = [], [], 0, len(examples)
    while count < tokens and last > 0:
        rows = torch.arange(max(0, last - ROWS_AT_ONCE), last)
        batch = make_batch([examples], [rows], str(model.device))
        is_trained = batch.labels_MP[0] != IGNORED
        hidden.append(model.hidden(batch.ids_MBL, batch.real_MP)[0][is_trained])
        labels.append(batch.labels_MP[0][is_trained])
        count, last = count + len(labels[-1]), int(rows[0])
    return torch.cat(hidden)[:tokens].clone(), torch.cat(labels)[:tokens].clone()


def _timed(hidden: Tensor, weight: Tensor, labels: Tensor, objective: Any, turns: int) -> dict[str, Any]:
    hidden, weight = hidden.requires_grad_(), weight.requires_grad_()
    kept = linear_cross_entropy(hidden, weight, labels, objective).kept
    times: dict[str, list[float]] = {"default": [], "exact": []}
    for _ in range(turns):
        for name, skip_below in (("default", None), ("exact", 0.0)):
            measured = measure(
                lambda skip=skip_below: linear_cross_entropy(hidden, weight, labels, objective, skip_below=skip).loss,
                (hidden, weight),
            )
            times[name].append(measured["milliseconds"])
    medians = {f"milliseconds_{name}": statistics.median(own) for name, own in times.items()}
    return {"tokens": len(labels), "kept": kept / len(labels), **medians, "times": times}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--weights", type=Path, required=True, help="Model folder or GGUF file.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--objectives", nargs="+", default=list(OBJECTIVES))
    parser.add_argument("--data", default="gsm8k")
    parser.add_argument("--rows", type=int, default=7000)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--tokens", type=int, default=16_384, help="Trained tokens that the head is timed on.")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    return parser


if __name__ == "__main__":
    main()
