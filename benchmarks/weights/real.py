"""A real model under several objectives and seeds: trains them at once, samples each, and grades what they wrote.

    python -m benchmarks.weights.real prepare --model SmolLM2-135M-Instruct --data DATA --out prepared.npz
    python -m benchmarks.weights.real run prepared.npz --weights SmolLM2.gguf --device cuda --data gsm8k \
        --objectives sft auto-trim --seeds 1 2 3 --out runs/weights
    python -m benchmarks.weights.real grade runs/weights --prepared prepared.npz --model SmolLM2-135M-Instruct \
        --results results/weights_smollm2.json

The model is a Llama or a Gemma-3 for text (`architectures.py`); SmolLM2-135M-Instruct and Gemma-3-270m have been tried.
Three steps, for machines of different kinds. `prepare` writes 7,000 rows of GSM8K and of a mix, and the prompts of
GSM8K and MATH500, as token ids (3 MB); DATA has the files that prepared.py names. `run` needs torch, transformers and
this folder alone, and for a GGUF the package gguf. It trains one epoch (batches of 24, learning rate 5e-5, bfloat16
beside float32 parameters) and writes one file for each model: the ids of greedy decoding and of 8 samples at
temperature 1, and the course of its training. Models whose file is there are skipped. `grade` uses the package's
grader, keeps the grades that --results has, and prints the tables. Each model wants a prepared file, a folder of
--out and a file of --results of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measuring import machine
from benchmarks.weights.decoding import generate
from benchmarks.weights.objectives import grouped, named_objectives, parse_objective, table_name
from benchmarks.weights.prepared import BENCHMARKS, TRAINING, Prepared
from benchmarks.weights.stacked import Base
from benchmarks.weights.tables import Runs, difference, markdown, mean_over, percent
from benchmarks.weights.training import Examples, Job, Schedule, Trained, train
from trimsft.errors import TrimSFTError
from trimsft.runs import write_whole
from trimsft.runs.files import written_beside

NEW_TOKENS = {"gsm8k": 320, "math500": 512}
SAMPLES = 8
Record = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    try:
        options.command(options)
    except TrimSFTError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def prepare(options: argparse.Namespace) -> None:
    Prepared.of(options.model, options.data).save(options.out)


# ---- train and sample


def run(options: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("high")
    started, prepared = time.perf_counter(), Prepared.load(options.prepared)
    models = [(name, seed) for seed in options.seeds for name in named_objectives(options.objectives)]
    left = [one for one in models if not _file(options, *one).exists()]
    base, examples = Base.load(options.weights), Examples.of(prepared.training[options.data][: options.rows])
    for group in grouped(left, options.group):
        trained = _train(group, base, examples, options)
        print(f"trained {group}, {time.perf_counter() - started:.0f} s", flush=True)
        for at, (name, seed) in enumerate(group):
            written = _sample(trained.model.part(at, at + 1), prepared, options)
            facts = {"objective": name, "seed": seed, "data": options.data, "trace": trained.traces[at]}
            facts |= {"machine": machine(), "rows": len(examples), "batch": options.batch, "lr": options.lr}
            _save(_file(options, name, seed), facts, written)
            print(f"sampled {name}, seed {seed}, {time.perf_counter() - started:.0f} s", flush=True)
        del trained


def _train(group: Sequence[tuple[str, int]], base: Base, examples: Examples, options: argparse.Namespace) -> Trained:
    jobs = [Job(parse_objective(name), examples, seed, options.lr) for name, seed in group]
    schedule = Schedule(batch=options.batch, trace_every=20)
    compute = torch.bfloat16 if options.device.startswith("cuda") else torch.float32
    where: dict[str, Any] = {"device": options.device, "compute": compute}
    return train(base, jobs, schedule, **where)


def _file(options: argparse.Namespace, name: str, seed: int) -> Path:
    return Path(options.out, f"{options.data}-{re.sub('[^a-z0-9.]+', '-', name)}-{seed}.npz")


def _sample(model: Any, prepared: Prepared, options: argparse.Namespace) -> dict[str, Any]:
    written = {}
    for benchmark in options.benchmarks:
        prompts, new = prepared.prompts[benchmark][: options.problems], options.new_tokens or NEW_TOKENS[benchmark]
        rows = {"temperatures": (0.0, *[1.0] * SAMPLES), "new": new, "rows_at_once": options.rows_at_once}
        (written[benchmark],) = generate(model, prompts, eos=prepared.eos, **rows)
    return written


def _save(path: Path, facts: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    small = {name: ids.astype(np.uint16 if ids.max() < 2**16 else np.uint32) for name, ids in written.items()}
    with written_beside(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, facts=np.array(json.dumps(facts)), **small)


# ---- grade


def grade(options: argparse.Namespace) -> None:
    """Grades of files that --results has already are kept."""
    from trimsft.data.encode import load_tokenizer
    from trimsft.grading import Grader

    prepared, tokenizer = Prepared.load(options.prepared), load_tokenizer(options.model)
    results = json.loads(options.results.read_text()) if options.results.exists() else {"models": []}
    have = {one["file"] for one in results["models"]}
    grader = Grader()
    for path in sorted(options.folder.glob("*.npz")):
        if path.name in have:
            continue
        with np.load(path) as arrays:
            facts = json.loads(str(arrays["facts"]))
            written = {name: arrays[name] for name in arrays if name != "facts"}
        scores = {name: _grades(ids, name, prepared, tokenizer, grader) for name, ids in written.items()}
        results["models"].append({"file": path.name, **facts, "benchmarks": scores})
        write_whole(options.results, (json.dumps(results) + "\n").encode())
    print(show(results["models"]))


def _grades(ids_KnT: Any, benchmark: str, prepared: Prepared, tokenizer: Any, grader: Any) -> Record:
    """Of each problem: right samples, samples without an answer, distinct answers, right when greedy."""
    from trimsft.evaluate.metrics import summarize

    results, statuses = dict[str, list[Any]](), Counter[str]()
    for result in _results(ids_KnT, prepared.golds[benchmark], prepared.eos, tokenizer, grader):
        results.setdefault(result.problem, []).append(result)
        statuses[result.status] += result.votes
    names = sorted(results, key=int)
    problems = [summarize(name, results[name], grader.equivalent)[0] for name in names]
    return {
        "right_samples": [one.correct for one in problems],
        "no_answer": [one.no_answer for one in problems],
        "distinct_answers": [len(one.right) + len(one.wrong) for one in problems],
        "right_greedy": [int(bool(one.greedy)) for one in problems],
        "statuses": dict(sorted((+statuses).items())),
    }


def _results(ids_KnT: Any, golds: Sequence[str], eos: int, tokenizer: Any, grader: Any) -> Iterator[Any]:
    from trimsft.evaluate.metrics import GradeLine
    from trimsft.grading import Rules

    _, n, new = ids_KnT.shape
    is_end = ids_KnT.reshape(-1, new) == eos
    lengths = np.where(is_end.any(axis=1), is_end.argmax(axis=1), new)
    rows = [row[:length].tolist() for row, length in zip(ids_KnT.reshape(-1, new), lengths, strict=True)]
    texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
    items = [(text, golds[at // n], Rules(), len(rows[at]) == new) for at, text in enumerate(texts)]
    for at, found in enumerate(grader.grade_many(items)):
        yield GradeLine(
            problem=str(at // n),
            sample=at % n - 1,  # the first is the greedy one
            status=found.status,
            answer=found.answer,
            tokens=len(rows[at]),
            truncated=len(rows[at]) == new,
        )


# ---- tables

METRICS = ("average@8", "pass@8", "greedy", "no answer")


def show(records: Sequence[Record]) -> str:
    """Markdown: a table for each training set and benchmark, means over seeds and differences to SFT."""
    parts = []
    for data, benchmark in sorted({(one["data"], name) for one in records for name in one["benchmarks"]}):
        own = [one for one in records if one["data"] == data and benchmark in one["benchmarks"]]
        names = list(dict.fromkeys(one["objective"] for one in own))
        runs = {(name, metric): _runs(own, name, benchmark, metric) for name in names for metric in METRICS}
        rows = [_row(name, runs, [one for one in own if one["objective"] == name], benchmark) for name in names]
        header = [f"{data}, {benchmark}, %", "seeds", *METRICS, "distinct answers"]
        parts.append(markdown([*header, *(f"{metric} minus SFT's" for metric in METRICS[:3])], rows))
    return "\n\n".join(parts)


def _runs(records: Sequence[Record], name: str, benchmark: str, metric: str) -> Runs:
    own = {one["seed"]: one["benchmarks"][benchmark] for one in records if one["objective"] == name}
    return {seed: [_values(scores, metric)] for seed, scores in own.items()}


def _values(scores: Mapping[str, Any], metric: str) -> Any:
    right = np.array(scores["right_samples"], dtype=float)
    if metric == "greedy":
        return np.array(scores["right_greedy"], dtype=float)
    missing = np.array(scores["no_answer"], dtype=float)
    return {"average@8": right / SAMPLES, "pass@8": (right > 0) * 1.0, "no answer": missing / SAMPLES}[metric]


def _row(name: str, runs: Mapping[tuple[str, str], Runs], own: Sequence[Record], benchmark: str) -> list[str]:
    distinct = np.mean([one["benchmarks"][benchmark]["distinct_answers"] for one in own])
    means = [percent(mean_over(runs[name, metric])) for metric in METRICS]
    compared = [percent(difference(runs[name, m], runs.get(("sft", m), {}))) for m in METRICS[:3]]
    return [table_name(name), str(len(own)), *means, f"{distinct:.2f}", *(compared if name != "sft" else [""] * 3)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("prepare", help="Token ids of the data, in one file.")
    one.set_defaults(command=prepare)
    one.add_argument("--model", type=Path, required=True, help="Folder with the tokenizer.")
    one.add_argument("--data", type=Path, required=True, help="Folder of training sets and benchmarks.")
    one.add_argument("--out", type=Path, required=True)
    one = commands.add_parser("run", help="Train and sample.")
    one.set_defaults(command=run)
    one.add_argument("prepared", type=Path)
    one.add_argument("--weights", type=Path, required=True, help="Model folder or GGUF file.")
    one.add_argument("--out", type=Path, required=True, help="Folder for a file of each model.")
    one.add_argument("--data", default="gsm8k", choices=list(TRAINING))
    one.add_argument("--benchmarks", nargs="+", default=list(BENCHMARKS), choices=list(BENCHMARKS))
    one.add_argument("--objectives", nargs="+", default=["sft", "auto-trim"])
    one.add_argument("--seeds", type=int, nargs="+", default=[0])
    one.add_argument("--rows", type=int, help="Rows of the training set (default: all).")
    one.add_argument("--problems", type=int, help="Problems of each benchmark (default: all).")
    one.add_argument("--new-tokens", type=int, help="Longest answer (default: 320, MATH500 512).")
    one.add_argument("--batch", type=int, default=24)
    one.add_argument("--lr", type=float, default=5e-5)
    one.add_argument("--group", type=int, default=3, help="Models that are trained at once.")
    one.add_argument("--rows-at-once", type=int, default=12_000, help="Rows that are decoded at once.")
    one.add_argument("--device", default="cpu")
    one = commands.add_parser("grade", help="Scores of what the models wrote.")
    one.set_defaults(command=grade)
    one.add_argument("folder", type=Path)
    one.add_argument("--prepared", type=Path, required=True)
    one.add_argument("--model", type=Path, required=True, help="Folder with the tokenizer.")
    one.add_argument("--results", type=Path, required=True, help="JSON file to write.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
