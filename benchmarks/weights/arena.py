"""The arena: objectives on conditions drawn at random, each trained on the same rows and seeds; JSON, tables, a figure.

    python -m benchmarks.weights.arena --device cuda --conditions choose:100 --objectives main floors --out arena.json
    python -m benchmarks.weights.arena --conditions new-filler50 slips40 --objectives sft auto-trim --out arena.json
    python -m benchmarks.weights.arena --show results/arena.json --conditions choose:100 --figure docs/figures/arena.png

Conditions are drawn by `conditions.py`: choose:100 means choose-0 to choose-99. Models that share a batch size and a
number of updates are trained at once; then all of them are sampled: greedily, 8 samples of each problem at temperature
1, 4 at 0.6 and 4 at 0.3. Results append to --out; what is there already is not trained again. Every difference is to
SFT on the same rows, at temperature 1, greedily, and at the temperature that suits SFT best in that condition. Where
the rows teach the unfamiliar format alone, a sample is right if it is written in it: whoever goes on in an old format,
which the base has mastered, has learned nothing of what was taught. `--any-format` counts those, too.
It needs torch, transformers and numpy, but neither trl nor datasets, and no installation: PYTHONPATH=src.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measuring import machine
from benchmarks.weights import tasks
from benchmarks.weights.conditions import KINDS, condition
from benchmarks.weights.decoding import generate
from benchmarks.weights.objectives import SETS, grouped, named_objectives, parse_objective, table_name
from benchmarks.weights.stacked import Base
from benchmarks.weights.tables import markdown
from benchmarks.weights.training import Examples, Job, Schedule, train
from trimsft.errors import TrimSFTError
from trimsft.lab import base_model_path
from trimsft.runs import write_whole

NEW_TOKENS = 128
TEMPERATURES = (0.0, *[1.0] * 8, *[0.6] * 4, *[0.3] * 4)
"""Of the rows of each problem."""
WORST = 5  # conditions that are named
Record = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """One model of the arena."""

    objective: str
    condition: str
    seed: int


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    try:
        names = conditions_named(options.conditions)
        if options.show:
            records = [one for one in read(options.show) if not names or one["condition"] in names]
            if options.any_format:
                records = [{key: value for key, value in one.items() if key != "right_in_new"} for one in records]
            print(show(records))
            if options.figure:
                draw(records, options.figure)
        else:
            run(names, options)
    except (TrimSFTError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def conditions_named(words: Sequence[str]) -> list[str]:
    """Return the names of conditions: choose:3 is choose-0, choose-1 and choose-2; choose:3:5 choose-3 and choose-4."""
    names = []
    for word in words:
        kind, *ends = word.split(":")
        names += [f"{kind}-{number}" for number in range(*map(int, ends))] if ends else [word]
    for name in names:
        condition(name)
    return names


def read(path: Path) -> list[Record]:
    return list(json.loads(path.read_text())["models"]) if path.exists() else []


def run(names: Sequence[str], options: argparse.Namespace) -> None:
    """Train and sample what --out does not have yet, group by group."""
    torch.set_float32_matmul_precision("high")  # TF32 where there is any
    records, started = read(options.out), time.perf_counter()
    have = {(one["objective"], one["condition"], one["seed"]) for one in records}
    objectives = named_objectives(options.objectives)
    wanted = [Model(o, c, seed) for c in names for o in objectives for seed in options.seeds]
    left = [model for model in wanted if (model.objective, model.condition, model.seed) not in have]
    alike: dict[tuple[int, int], list[Model]] = {}
    for model in left:
        known = condition(model.condition)
        alike.setdefault((known.batch, known.updates), []).append(model)
    with _workers(options.processes) as workers:
        bench = Bench(options, workers)
        for (batch, _), models in sorted(alike.items()):
            for group in grouped(models, options.group):
                records += bench.measure(group, batch)
                write(options.out, records)
                print(f"{len(records)} of {len(wanted)} models, {time.perf_counter() - started:.0f} s", flush=True)
    print(show([one for one in records if one["condition"] in names]))


def _workers(processes: int) -> Executor:
    """Return processes that write rows and grade; with 0 a thread of this one."""
    if processes == 0:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


class Bench:
    """The base, the problems, and who writes rows and grades."""

    def __init__(self, options: argparse.Namespace, workers: Executor) -> None:
        self._options, self._workers = options, workers
        self._folder = str(options.base or base_model_path())
        self._base = Base.load(self._folder)
        self._problems = tasks.Problems.of(self._folder, options.problems)

    def measure(self, group: Sequence[Model], batch: int) -> list[Record]:
        """Train and sample a group of models; return a record of each."""
        data = sorted({(model.condition, model.seed) for model in group})
        submitted = [self._workers.submit(tasks.training_pairs, self._folder, *one) for one in data]
        rows = {one: Examples.of(future.result()) for one, future in zip(data, submitted, strict=True)}
        jobs = [
            Job(parse_objective(m.objective), rows[m.condition, m.seed], m.seed, condition(m.condition).rate)
            for m in group
        ]
        where: dict[str, Any] = {"device": self._options.device}
        trained = train(self._base, jobs, Schedule(batch), **where)
        written = generate(
            trained.model,
            self._problems.prompts,
            temperatures=TEMPERATURES,
            new=NEW_TOKENS,
            eos=self._problems.eos,
            rows_at_once=self._options.rows_at_once,
        )
        answers = self._problems.answers
        grades = [self._workers.submit(tasks.grade, self._folder, one, answers, TEMPERATURES) for one in written]
        ends = [{name: values[-1] for name, values in trace.items()} for trace in trained.traces]
        parts = zip(group, grades, ends, strict=True)
        return [{**asdict(model), **grade.result(), "end": end} for model, grade, end in parts]


def write(path: Path, records: Sequence[Record]) -> None:
    content = {
        "machine": machine(),
        "temperatures": TEMPERATURES,
        "conditions": {name: asdict(condition(name)) for name in sorted({one["condition"] for one in records})},
    }
    lines = ",\n".join(json.dumps(record) for record in records)
    write_whole(path, f'{json.dumps(content, indent=1)[:-2]},\n "models": [\n{lines}\n]}}\n'.encode())


# ---- what it shows


def accuracy(record: Record, temperature: str) -> float:
    """Return the share of samples that are right, and in the format that was taught (where that is in the record)."""
    is_new = condition(record["condition"]).teaches_only_new and "right_in_new" in record
    digits = record["right_in_new" if is_new else "right"][temperature]
    samples = sum(f"{one:g}" == temperature for one in TEMPERATURES)
    return sum(map(int, digits)) / (samples * len(digits))


def differences(records: Sequence[Record]) -> dict[str, dict[str, dict[str, float]]]:
    """Return points above SFT by objective, view and condition (means over seeds).

    The views: temperature 1, greedy, and SFT's best temperature: the one at which SFT, of all seeds, is right most
    often in that condition.
    """
    by_model: dict[tuple[str, str], list[Record]] = {}
    for one in records:
        by_model.setdefault((one["objective"], one["condition"]), []).append(one)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (objective, name), own in by_model.items():
        sft = {one["seed"]: one for one in by_model.get(("sft", name), [])}
        pairs = [(one, sft[one["seed"]]) for one in own if one["seed"] in sft]
        if objective == "sft" or not pairs:
            continue
        best = max(own[0]["right"], key=lambda t: np.mean([accuracy(other, t) for _, other in pairs]))
        for view, t in (("temperature 1", "1"), ("SFT's best temperature", best), ("greedy", "0")):
            points = np.mean([accuracy(one, t) - accuracy(other, t) for one, other in pairs])
            found.setdefault(objective, {}).setdefault(view, {})[name] = 100 * float(points)
    return found


VIEWS = ("temperature 1", "SFT's best temperature", "greedy")


def show(records: Sequence[Record]) -> str:
    """Return Markdown: accuracy, points above SFT with intervals over conditions, and the worst conditions by name."""
    names = list(dict.fromkeys(one["objective"] for one in records))
    mean_rows: list[list[str]] = []
    for name in names:
        own = [one for one in records if one["objective"] == name]
        new = [one["new_format"] for one in own if condition(one["condition"]).teaches_new]
        means = [np.mean([accuracy(one, t) for one in own]) for t in own[0]["right"]]
        mean_rows.append(
            [table_name(name), str(len(own)), *(f"{100 * one:.1f}" for one in [*means, np.mean(new or [np.nan])])]
        )
    temperatures = [f"T = {t}" for t in records[0]["right"]] if records else []
    parts = [markdown(["accuracy, %", "models", *temperatures, "new format where taught"], mean_rows)]
    found = differences(records)
    for view in VIEWS:
        rows = []
        for name, views in found.items():
            values = views[view]
            worst = sorted(values, key=lambda one: values[one])[:WORST]
            below = np.mean([value < 0 for value in values.values()])
            named = ", ".join(f"{one} {values[one]:+.1f}" for one in worst)
            rows.append([table_name(name), interval(list(values.values())), f"{below:.0%}", named])
        parts.append(markdown([f"points above SFT, {view}", "mean [95 %]", "below SFT in", "worst"], rows))
    return "\n\n".join(parts)


def interval(values: Sequence[float], resamples: int = 10_000) -> str:
    """Return the mean and its percentile bootstrap over conditions."""
    array = np.array(values)
    means = array[np.random.default_rng(0).integers(0, len(array), (resamples, len(array)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{array.mean():+.1f} [{low:+.1f}, {high:+.1f}]"


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw a dot for each condition: points above SFT, a panel for each view."""
    import matplotlib.pyplot as plt

    found = differences(records)
    figure, panels = plt.subplots(1, 3, sharey=True, figsize=(11, 0.9 + 0.42 * len(found)), layout="constrained")
    rng = np.random.default_rng(0)
    for panel, view in zip(panels, VIEWS, strict=True):
        panel.axvline(0, color="#8A8A8A", linewidth=1)
        for at, views in enumerate(found.values()):
            values = np.array(list(views[view].values()))
            panel.scatter(
                values, at + rng.uniform(-0.28, 0.28, len(values)), s=9, alpha=0.5, linewidths=0, color="#0072B2"
            )
            panel.plot([values.mean()] * 2, [at - 0.38, at + 0.38], color="black", linewidth=1.6)
        panel.set(title=view, xlabel="points above SFT")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(found)), [table_name(name) for name in found])
    panels[0].invert_yaxis()
    figure.savefig(path, dpi=150)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("arena.json"), help="JSON file that results append to.")
    parser.add_argument("--show", type=Path, metavar="FILE", help="Print the tables of these results.")
    parser.add_argument("--figure", type=Path, help="With --show: draw them.")
    parser.add_argument("--any-format", action="store_true", help="With --show: right answers count in any format.")
    parser.add_argument("--objectives", nargs="+", default=["main"], help=f"Names, or sets: {', '.join(SETS)}.")
    parser.add_argument("--conditions", nargs="+", default=[], help=f"Names, or {', '.join(KINDS)} as choose:100.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="Of rows, their order and samples.")
    parser.add_argument("--problems", type=int, default=40, help="Problems of each tier.")
    parser.add_argument("--base", type=Path, help="Folder of another base model of the lab.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--group", type=int, default=80, help="Models that are trained at once.")
    parser.add_argument("--rows-at-once", type=int, default=16_000, help="Rows that are decoded at once.")
    parser.add_argument("--processes", type=int, default=12, help="Processes for rows and grades; 0: none.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
