"""What a study would take, said before it starts: tokens, time, disk. An estimate; nothing is run or downloaded.

cost = estimate_cost(cells, scale, StudyFolder(Path("runs/study-lab")), needs)
cost.total.gpu_hours, cost.total.disk_bytes, cost.assumptions

Training tokens are counted on a sample of the rows where the data is at hand. Everything that is assumed instead is in
`assumptions`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import UsageError
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running.checks import refuse_lost_weights
from trimsft.study.running.execution import in_order
from trimsft.study.running.job import CellJob, all_needs, uses_vllm
from trimsft.study.running.training import model_path, task, training_settings
from trimsft.study.scales import Scale

if TYPE_CHECKING:
    from trimsft.train.settings import Settings

COUNTED_ROWS = 200
ROWS_UNKNOWN = 20_000
ROW_TOKENS = 526  # mean of 2,000 rows of NuminaMath-CoT in the tokens of SmolLM2; for data that is not at hand
ANSWER_TOKENS = {"lab": 45, "small": 160, "paper": 700}
"""Mean length of a sampled answer. Measured at the lab (docs/results.md's runs); assumed elsewhere."""
WEIGHT_BYTES = 4.0  # bytes of one parameter: float32, as the recipes train
PEAK_FLOPS = 312e12  # the peak of one A100 in bfloat16: where there is no GPU to ask
GENERATED_PER_SECOND = 2e13
"""Tokens a second on one GPU, times the parameters of the model: 2,900 for one of 7 billion. Assumed, for vLLM."""
TRANSFORMERS_PER_SECOND = 5e12
"""The same without vLLM, assumed: a quarter. Measured (docs/evaluation.md) is 2.6e13 on an H200 with 135 million
parameters; nothing is with larger models, whose caches leave room for fewer answers at once."""
LAB_TRAINED_PER_SECOND = 3000.0
LAB_GENERATED_PER_SECOND = 3700.0
LAB_OVERHEAD = 4.0
"""Speed of one core with the lab's base: tokens a second in training and generation, and seconds for each cell beside
them; what the quickstarts of results/lab_cpu.json took on a quiet machine."""
LAB_PARAMETERS = 2.5e6
BYTES_PER_ANSWER_TOKEN = 5


@dataclass(frozen=True)
class CellCost:
    """What one cell would still take."""

    name: str
    trained_tokens: float = 0
    generated_tokens: float = 0
    gpu_hours: float = 0
    cpu_hours: float = 0
    disk_bytes: float = 0  # what stays
    peak_bytes: float = 0
    """While it is at work, at its most: checkpoints with the optimizer's state, or what stays."""


@dataclass(frozen=True)
class Cost:
    """What the missing cells of a study would take."""

    cells: list[CellCost]
    already_done: int
    assumptions: list[str] = field(default_factory=list)
    """What was not at hand to be counted, in the order it came up."""

    @property
    def total(self) -> CellCost:
        parts = ("trained_tokens", "generated_tokens", "gpu_hours", "cpu_hours", "disk_bytes")
        sums = {part: sum(getattr(cell, part) for cell in self.cells) for part in parts}
        return CellCost("total", **sums, peak_bytes=max((cell.peak_bytes for cell in self.cells), default=0))

    def as_dict(self) -> dict[str, Any]:
        return {
            "already_done": self.already_done,
            "cells": [vars(cell) for cell in self.cells],
            "total": vars(self.total),
            "assumptions": self.assumptions,
        }


def estimate_cost(cells: Sequence[Cell], scale: Scale, folder: StudyFolder, needs: frozenset[str]) -> Cost:
    """What every cell that is not done would still take."""
    needs = all_needs(scale, needs)
    ordered = in_order(cells)
    job = CellJob(folder, scale, needs, {cell.name: cell for cell in ordered})
    refuse_lost_weights(job)
    missing = {cell: steps for cell in ordered if (steps := job.missing(cell))}
    estimate = _Estimate(job)
    costs = [estimate.cost(cell, steps) for cell, steps in missing.items()]
    return Cost(costs, len(ordered) - len(costs), list(estimate.assumptions))


def sum_costs(costs: Iterable[Cost]) -> Cost:
    """The cost of cells that have nothing in common."""
    costs = list(costs)
    assumptions = list(dict.fromkeys(text for cost in costs for text in cost.assumptions))
    return Cost([cell for cost in costs for cell in cost.cells], sum(cost.already_done for cost in costs), assumptions)


def _peak() -> tuple[float, str]:
    """Operations a second of the GPU here, or of one that is assumed."""
    import torch

    from trimsft.train.estimate import peak_flops

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        if known := peak_flops(name):
            return known, name
    return PEAK_FLOPS, "an A100, assumed"


# ---- how much there is to do


class _Estimate:
    """What cells would take; counts once what many of them share."""

    def __init__(self, job: CellJob) -> None:
        self._folder, self._scale = job.folder, job.scale
        self._data: dict[str, tuple[int, float]] = {}  # by model: rows, and tokens of a row
        self._sizes: dict[str, float] = {}
        self._settings: dict[Cell, Settings] = {}
        self.assumptions: dict[str, None] = {}

    def cost(self, cell: Cell, steps: Sequence[str]) -> CellCost:
        """What these steps of a cell would take."""
        trained = self._trained_tokens(cell) if "train" in steps else 0.0
        generated = self._generated_tokens() if "evaluate" in steps else 0.0
        parameters = self._parameters(cell.model)
        weights = WEIGHT_BYTES * parameters if "train" in steps else 0.0
        kept = weights if self._scale.keep_weights and not cell.is_base else 0.0
        cpu, gpu = self._hours(cell, trained, generated)
        return CellCost(
            name=cell.name,
            trained_tokens=trained,
            generated_tokens=generated,
            gpu_hours=gpu,
            cpu_hours=cpu,
            disk_bytes=kept + BYTES_PER_ANSWER_TOKEN * generated,
            peak_bytes=max(weights, self._checkpoint_bytes(cell)) if "train" in steps else 0.0,
        )

    def _hours(self, cell: Cell, trained: float, generated: float) -> tuple[float, float]:
        """Hours of cores and of GPUs; one of them is 0."""
        parameters = self._parameters(cell.model)
        if self._scale.device == "cpu":
            larger = max(1.0, parameters / LAB_PARAMETERS)
            seconds = larger * (trained / LAB_TRAINED_PER_SECOND + generated / LAB_GENERATED_PER_SECOND)
            self._say(
                f"time: {LAB_TRAINED_PER_SECOND:,.0f} trained and {LAB_GENERATED_PER_SECOND:,.0f} generated tokens a "
                f"second and core with the lab's base, as measured; larger models in proportion"
            )
            return (seconds + LAB_OVERHEAD) / 3600, 0.0
        from trimsft.train.estimate import UTILISATION

        peak, device = _peak()
        self._say(
            f"GPU hours: 8 operations for each parameter and trained token (6, and a third more for recomputed layers) "
            f"at {UTILISATION:.0%} of the peak of {device} ({peak / 1e12:,.0f} Tflop/s)"
        )
        training = 8 * parameters * trained / (peak * UTILISATION)
        # while one process generates, the other GPUs of the cell wait
        generation = generated * parameters / self._generated_per_second() * self._scale.gpus_of(cell)
        return 0.0, (training + generation) / 3600

    def _generated_per_second(self) -> float:
        """Times the parameters of the model, by the engine that would be taken here."""
        speed, engine = GENERATED_PER_SECOND, "vLLM, assumed"
        if not uses_vllm(self._scale):
            why = ", which is not installed here" if self._scale.engine == "auto" else ""
            speed = TRANSFORMERS_PER_SECOND
            engine = f"transformers, assumed: a quarter of what is assumed for vLLM{why}"
        self._say(f"generation: {speed / 7e9:,.0f} tokens a second for 7 billion parameters ({engine})")
        return speed

    def _say(self, text: str) -> None:
        """One more assumption; twice is once."""
        self.assumptions[text] = None

    def _generated_tokens(self) -> float:
        mean = ANSWER_TOKENS.get(self._scale.name, ANSWER_TOKENS["paper"])
        if limit := self._scale.sampling.get("max_tokens"):
            mean = min(mean, limit)
        how = "measured" if self._scale.name == "lab" else "assumed"
        self._say(f"generated tokens: {mean:,} for each answer ({how}), {self._scale.samples} samples and greedy")
        problems = sum(self._problems(name) for name in self._scale.benchmarks)
        return float(problems * (self._scale.samples + 1) * mean)

    def _problems(self, name: str) -> int:
        from trimsft.evaluate.benchmarks import BENCHMARKS, load_benchmark
        from trimsft.lab import TIERS
        from trimsft.lab.data import BENCHMARK_COUNT

        limit = self._scale.problems
        if name in BENCHMARKS:
            count = BENCHMARKS[name].count
        else:
            data = None if self._scale.benchmark_data is None else Path(self._scale.benchmark_data)
            count = limit or BENCHMARK_COUNT if name in TIERS else len(load_benchmark(name, data))
        return count if limit is None else min(count, limit)

    def _trained_tokens(self, cell: Cell) -> float:
        """Tokens that go through the model in training, prompts included."""
        settings = self._settings_of(cell)
        if cell.model not in self._data:
            count, sample = self._rows(settings)
            self._data[cell.model] = count, self._row_tokens(settings, sample, cell.model)
        rows, row_tokens = self._data[cell.model]
        return rows * row_tokens * self._epochs(cell, rows, row_tokens)

    def _epochs(self, cell: Cell, rows: int, row_tokens: float) -> float:
        """How often each row is trained on; `max_steps` goes before `num_train_epochs`, as it does in training."""
        args = self._settings_of(cell).args
        if args.max_steps <= 0:
            return float(args.num_train_epochs)
        each = args.per_device_train_batch_size * args.gradient_accumulation_steps * self._scale.gpus_of(cell)
        sequences = rows * row_tokens / args.max_length if args.packing and args.max_length else rows
        return float(args.max_steps / math.ceil(sequences / (args.global_batch or each)))

    def _settings_of(self, cell: Cell) -> Settings:
        """How a cell is trained, whatever its seed: reading settings takes longer than all the rest."""
        if cell.setting not in self._settings:
            self._settings[cell.setting] = training_settings(self._folder, self._scale, cell.setting)
        return self._settings[cell.setting]

    def _checkpoint_bytes(self, cell: Cell) -> float:
        """At their most: a new checkpoint is whole before an old one goes, and each holds AdamW's two moments."""
        args = self._settings_of(cell).args
        if str(getattr(args.save_strategy, "value", args.save_strategy)) == "no":
            return 0.0
        if args.save_total_limit is None:
            self._say("disk: all checkpoints are kept (save_total_limit is not set); two of them are counted")
        parts = 1 if args.save_only_model else 3
        return ((args.save_total_limit or 1) + 1) * parts * WEIGHT_BYTES * self._parameters(cell.model)

    def _rows(self, settings: Settings) -> tuple[int, Any]:
        """How many are trained on, and some of them; None where they would have to be downloaded."""
        from datasets import Dataset

        from trimsft.data.rows import NUMINA, load_rows
        from trimsft.lab import training_rows

        if self._scale.rows is not None:
            some = itertools.islice(training_rows(task(self._scale, 0)), COUNTED_ROWS)
            return self._scale.rows, Dataset.from_list(list(some))
        if settings.data.is_local:
            rows = load_rows(settings.data)
            return len(rows), rows.shuffle(seed=0).select(range(min(COUNTED_ROWS, len(rows))))
        count = settings.data.sample or (20_000 if settings.data.dataset_name == NUMINA else None)
        if count is None:
            self._say(f"rows of {settings.data.dataset_name}: {ROWS_UNKNOWN:,} assumed, it is not at hand")
        return count or ROWS_UNKNOWN, None

    def _row_tokens(self, settings: Settings, rows: Any, model: str) -> float:
        """Mean over these rows, cut at the maximum length."""
        from trimsft.data.encoding import Encoder
        from trimsft.data.rows import kind_of, plain_rows
        from trimsft.data.templates import choose_template
        from trimsft.train.settings import load_tokenizer

        data, template = settings.data, None
        longest, tokenizer = settings.args.max_length, None
        if rows is not None:
            with suppress(UsageError):
                tokenizer = load_tokenizer(settings)
        if tokenizer is None:
            mean = min(ROW_TOKENS, longest or ROW_TOKENS)
            self._say(f"training tokens: {mean} for each row assumed ({model}: data or tokenizer is not at hand)")
            return float(mean)
        if kind_of(rows.column_names, data, data.dataset_name) == "problem-solution":
            template = choose_template(data.template, tokenizer, data.system_prompt)
        lengths = [len(example) for example in Encoder(tokenizer, template).examples(plain_rows(rows, data))]
        self._say(f"training tokens: counted on {len(lengths)} rows")
        return sum(min(length, longest or length) for length in lengths) / len(lengths)

    def _parameters(self, model: str) -> float:
        if model not in self._sizes:
            at = self._scale.at(model)
            counted = sum(map(_parameters_in, Path(model_path(at)).glob("*.safetensors")))
            if not counted and at.parameters is None:
                self._say(f"parameters of {model}: 1 billion assumed, it is not at hand")
            self._sizes[model] = float(counted) or at.parameters or 1e9
        return self._sizes[model]


def _parameters_in(file: Path) -> int:
    """By the header of a safetensors file, which names every tensor and its shape."""
    from safetensors import safe_open

    with safe_open(file, "np") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
