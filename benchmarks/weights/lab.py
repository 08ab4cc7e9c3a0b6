"""The lab's objectives side by side: trains many copies of the base at once and samples them; writes JSON and a table.

    python -m benchmarks.weights.lab --device cuda --seeds 10 11 12 13 14 --results results/weights_lab.json
    python -m benchmarks.weights.lab --device cuda --seeds 10 11 --objectives sft --grid --results grid.json
    python -m benchmarks.weights.lab --device cuda --seeds 10 11 12 --objectives every --results family.json
    python -m benchmarks.weights.lab --show results/weights_lab.json

Eight conditions (`tasks.py`), 4,800 rows, 200 updates; 180 problems, greedy and 8 samples at temperature 1. A group of
models is trained and sampled, then the results are written: stopped, the same command with --continue goes on.
`--objectives` takes names, sets (main, every, grid) and parameters: trim,margin=6,bandwidth=2. Objectives that need a
reference get the base; Rho-1 gets an SFT of the same rows, which is trained first.

Another base of the lab's kind is made by

    python -m tools.lab_base.pretrain --out base-32m --device cuda --size medium --examples 1000000

(32 M parameters, nine minutes of a shared H200) and taken by --base base-32m --group 40 --rows-at-once 8000; that this
fits into 139 GiB is an estimate. With --compute bfloat16 it multiplies in bfloat16 beside float32 parameters. All of
it needs torch, transformers and what `trimsft.lab` and `trimsft.text` import, but neither trl nor datasets, and no
installation: PYTHONPATH=src.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.weights import tasks
from benchmarks.weights.decoding import generate
from benchmarks.weights.objectives import SETS, grouped, named_objectives, parse_objective, reference_of, table_name
from benchmarks.weights.stacked import Base
from benchmarks.weights.tables import Runs, difference, markdown, mean_over, over_conditions, percent
from benchmarks.weights.training import Examples, Job, Schedule, Trained, make_reference, train
from trimsft.bench.head import machine
from trimsft.errors import TrimSFTError
from trimsft.lab import TIERS, base_model_path
from trimsft.runs import write_whole

NEW_TOKENS = 128
SAMPLES = 8
COMPUTE = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Model:
    """One model of the comparison."""

    objective: str
    condition: str
    seed: int

    @property
    def data(self) -> tuple[str, int]:
        return self.condition, self.seed


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    try:
        if options.show:
            results = [json.loads(path.read_text())["models"] for path in options.show]
            print(show([record for models in results for record in models]))
        else:
            run(options)
    except TrimSFTError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("high")  # TF32 where there is any
    names = named_objectives(options.objectives, grid=options.grid)
    wanted = [Model(name, c, seed) for name in names for c in options.conditions for seed in options.seeds]
    records = _records_of(options) if options.go_on else []
    have = {Model(one["objective"], one["condition"], one["seed"]) for one in records}
    left = [model for model in wanted if model not in have]
    with _workers(options.processes) as workers:
        bench = Bench(options, workers, {model.data for model in left})
        for group in grouped(left, lambda model: model.objective, options.group):
            records += bench.measure(group)
            _write(options, records)
            print(f"{len(records)} of {len(wanted)} models, {bench.seconds():.0f} s", flush=True)
    print(show(records))


def _workers(processes: int) -> Executor:
    """Processes that write rows and grade; 0: a thread of this one."""
    if processes == 0:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


class Bench:
    """The base, the rows of every condition and seed, and the problems."""

    def __init__(self, options: argparse.Namespace, workers: Executor, data: set[tuple[str, int]]) -> None:
        self._options, self._workers, self._started = options, workers, time.perf_counter()
        self._folder = str(options.base or base_model_path())
        rows = {d: workers.submit(tasks.training_pairs, self._folder, *d, options.rows) for d in sorted(data)}
        held = {d: workers.submit(tasks.held_out_pairs, self._folder, *d) for d in sorted(data)}
        self._base = Base.load(self._folder)
        self._problems = tasks.Problems.of(self._folder, options.problems)
        self._rows = {one: Examples.of(future.result()) for one, future in rows.items()}
        self._held = {one: Examples.of(future.result()) for one, future in held.items()}
        print(f"rows of {len(data)} conditions and seeds, {self.seconds():.0f} s", flush=True)

    def seconds(self) -> float:
        return time.perf_counter() - self._started

    def measure(self, group: Sequence[Model]) -> list[dict[str, Any]]:
        """Train and sample a group of models; a record for each."""
        trained = self._train(group)
        print(f"trained {len(group)} models, {self.seconds():.0f} s", flush=True)
        written = generate(
            trained.model,
            self._problems.prompts,
            samples=SAMPLES,
            new=NEW_TOKENS,
            eos=self._problems.eos,
            rows_at_once=self._options.rows_at_once,
        )
        answers = self._problems.answers
        grades = [self._workers.submit(tasks.grade, self._folder, rows, answers) for rows in written]
        held = tasks.held_out_figures(trained.model, [self._held[model.data] for model in group])
        parts = zip(group, grades, held, trained.traces, strict=True)
        return [{**vars(m), **grade.result(), "held_out": h, "trace": trace} for m, grade, h, trace in parts]

    def _train(self, group: Sequence[Model]) -> Trained:
        jobs = [Job(parse_objective(one.objective), self._rows[one.data], one.seed) for one in group]
        schedule = Schedule(self._options.batch, self._options.lr)
        where: dict[str, Any] = {"device": self._options.device, "compute": COMPUTE[self._options.compute]}
        reference = make_reference(reference_of(group[0].objective), self._base, jobs, schedule, **where)
        return train(self._base, jobs, schedule, reference=reference, **where)


# ---- what is written and shown


def _records_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    if not options.results.exists():
        return []
    written = json.loads(options.results.read_text())
    if written["settings"] != _settings(options):
        raise TrimSFTError(f"{options.results} was made with other settings: {written['settings']}")
    return list(written["models"])


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    told = {name: getattr(options, name) for name in ("rows", "batch", "lr", "problems")}
    if options.compute != "float32":  # files made before there was a choice say nothing
        told["compute"] = options.compute
    return {**told, "samples": SAMPLES, "base": Path(options.base).name if options.base else "the lab's own"}


def _write(options: argparse.Namespace, records: Sequence[Mapping[str, Any]]) -> None:
    content = {"machine": machine(), "settings": _settings(options)}
    lines = ",\n".join(json.dumps(record) for record in records)
    text = f'{json.dumps(content, indent=1)[:-2]},\n "models": [\n{lines}\n]}}\n'
    write_whole(options.results, text.encode())


def show(records: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: the scores in every condition, their mean, the difference to SFT, and what else is measured."""
    conditions = [name for name in tasks.CONDITIONS if any(one["condition"] == name for one in records)]
    names = list(dict.fromkeys(one["objective"] for one in records))
    parts = []
    for metric in ("average", "pass@8", "greedy"):
        runs = {(n, c): _runs(records, n, c, metric) for n in names for c in conditions}
        header = [f"{metric}, %", *conditions, "mean"]
        parts.append(markdown(header, [_row(name, runs, conditions) for name in names]))
        if "sft" in names:
            differences = [_row(name, runs, conditions, to="sft") for name in names if name != "sft"]
            parts.append(markdown([f"{metric} minus SFT's", *header[1:]], differences))
    parts.append(markdown(["others, mean over all", *OTHERS], [_others(name, records) for name in names]))
    return "\n\n".join(parts)


def _runs(records: Sequence[Mapping[str, Any]], name: str, condition: str, metric: str) -> Runs:
    """Of each seed the values of the problems, in tiers."""
    chosen = [one for one in records if (one["objective"], one["condition"]) == (name, condition)]
    return {one["seed"]: np.split(_values(one, metric), len(TIERS)) for one in chosen}


def _values(record: Mapping[str, Any], metric: str) -> Any:
    right = np.array(record["right_samples"], dtype=float)
    of = {"average": right / SAMPLES, "pass@8": (right > 0).astype(float)}
    return of[metric] if metric in of else np.array(record["right_greedy"], dtype=float)


def _row(
    name: str, runs: Mapping[tuple[str, str], Runs], conditions: Sequence[str], to: str | None = None
) -> list[str]:
    own = [runs[name, condition] for condition in conditions]
    mean = over_conditions(own)
    if to is None:
        return [table_name(name), *(percent(mean_over(one)) for one in [*own, mean])]
    others = [runs[to, condition] for condition in conditions]
    pairs = zip([*own, mean], [*others, over_conditions(others)], strict=True)
    return [table_name(name), *(percent(difference(one, other)) for one, other in pairs)]


OTHERS = ("box, %", "new format where it is taught, %", "distinct answers", "nll", "entropy", "ECE")


def _others(name: str, records: Sequence[Mapping[str, Any]]) -> list[str]:
    own = [one for one in records if one["objective"] == name]
    taught = [100 * one["new_format"] for one in own if one["condition"].startswith("allnew")]
    means = [100 * np.mean([one["boxed"] for one in own]), np.mean(taught) if taught else np.nan]
    means.append(np.mean([one["distinct_answers"] for one in own]))
    means += [np.mean([one["held_out"][figure] for one in own]) for figure in ("nll", "entropy", "ece")]
    return [table_name(name), *(f"{mean:.1f}" for mean in means[:2]), *(f"{mean:.3f}" for mean in means[2:])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("weights_lab.json"), help="JSON file to write.")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="Print the tables of these results.")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="Skip what --results has already.")
    parser.add_argument("--objectives", nargs="+", default=["main"], help=f"Names, or sets: {', '.join(SETS)}.")
    parser.add_argument("--grid", action="store_true", help="Add TrimSFT with 5 margins and 5 bandwidths.")
    parser.add_argument("--conditions", nargs="+", default=list(tasks.CONDITIONS), choices=list(tasks.CONDITIONS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rows", type=int, default=4800)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--problems", type=int, default=60, help="Problems of each tier.")
    parser.add_argument("--base", type=Path, help="Folder of another base model of the lab.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compute", default="float32", choices=list(COMPUTE), help="Parameters stay in float32.")
    parser.add_argument("--group", type=int, default=80, help="Models that are trained at once.")
    parser.add_argument("--rows-at-once", type=int, default=16_000, help="Rows that are decoded at once.")
    parser.add_argument("--processes", type=int, default=12, help="Processes for rows and grades; 0: none.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
