"""What a study would take, said before it starts: tokens, time, disk. An estimate; nothing is run or downloaded.

cost = estimate_cost(cells, scale, Path("runs/study-lab"), needs)
cost.total.gpu_hours, cost.total.disk_bytes, cost.assumptions

Training tokens are counted on a sample of the rows where the data is at hand. Everything that is assumed instead is in
`assumptions`, and is printed below the table.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.study.cells import Cell
from trimsft.study.execution import all_needs, in_order
from trimsft.study.places import Place
from trimsft.study.scales import Scale
from trimsft.study.steps import CellJob
from trimsft.study.training import model_path, task, training_settings

if TYPE_CHECKING:
    from rich.table import Table

    from trimsft.train.settings import Settings

COUNTED_ROWS = 200
ROWS_UNKNOWN = 20_000
ROW_TOKENS = 526
"""Mean of 2,000 rows of NuminaMath-CoT in the tokens of SmolLM2; for data that is not at hand."""
ANSWER_TOKENS = {"lab": 45, "small": 160, "paper": 700}
"""Mean length of a sampled answer. Measured at the lab (docs/results/lab.md's runs); assumed elsewhere."""
PEAK_FLOPS = 312e12
"""Of one A100 in bfloat16: where there is no GPU to ask."""
GENERATED_PER_SECOND = 2e13
"""Tokens a second on one GPU, times the parameters of the model: 2,900 for one of 7 billion. Assumed, for vLLM."""
LAB_TRAINED_PER_SECOND = 3000.0
LAB_GENERATED_PER_SECOND = 3700.0
LAB_OVERHEAD = 4.0
"""Of one core with the lab's base: tokens a second in training and generation, and seconds for each cell beside them;
what the quickstarts of docs/results/lab_cpu.json took on a quiet machine."""
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
    disk_bytes: float = 0
    """What stays."""
    peak_bytes: float = 0
    """While it is at work: weights and a checkpoint with the optimizer's state."""


@dataclass(frozen=True)
class Cost:
    """What the missing cells of a study would take."""

    cells: list[CellCost]
    already_done: int
    assumptions: list[str] = field(default_factory=list)

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


def estimate_cost(cells: Sequence[Cell], scale: Scale, out: Path, needs: frozenset[str]) -> Cost:
    """Of every cell that is not done, what it would still take."""
    needs = all_needs(scale, needs)
    ordered = in_order(cells)
    job = CellJob(Place(out), scale, needs, {cell.name: cell for cell in ordered})
    missing = {cell: steps for cell in ordered if (steps := job.missing(cell))}
    counter = _Counter(job)
    found = [counter.cost(cell, steps) for cell, steps in missing.items()]
    return Cost(found, len(ordered) - len(found), counter.assumptions())


class _Counter:
    """Counts once what many cells share."""

    def __init__(self, job: CellJob) -> None:
        self._job, self._scale = job, job.scale
        self._tokens: dict[str, float] = {}
        self._sizes: dict[str, float] = {}
        self._said: dict[str, None] = {}

    def assumptions(self) -> list[str]:
        return list(self._said)

    def cost(self, cell: Cell, steps: Sequence[str]) -> CellCost:
        scale = self._scale
        trained = self._trained_tokens(cell) if "train" in steps else 0.0
        generated = self._generated_tokens() if "evaluate" in steps else 0.0
        parameters = self._parameters(cell.model)
        weights = 4.0 * parameters if "train" in steps else 0.0
        kept = weights if scale.keep_weights and not cell.is_base else 0.0
        cpu, gpu = self._hours(cell, trained, generated, parameters)
        return CellCost(
            name=cell.name,
            trained_tokens=trained,
            generated_tokens=generated,
            gpu_hours=gpu,
            cpu_hours=cpu,
            disk_bytes=kept + BYTES_PER_ANSWER_TOKEN * generated,
            peak_bytes=(1 if scale.defaults.get("save_strategy") == "no" else 4) * weights,
        )

    def _hours(self, cell: Cell, trained: float, generated: float, parameters: float) -> tuple[float, float]:
        """Of cores at the lab, of GPUs elsewhere."""
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
            f"at {UTILISATION:.0%} of the peak of {device} ({peak / 1e12:,.0f} Tflop/s); generation at "
            f"{GENERATED_PER_SECOND / 7e9:,.0f} tokens a second for 7 billion parameters (vLLM; transformers is slower)"
        )
        training = 8 * parameters * trained / (peak * UTILISATION)
        # while one process generates, the other GPUs of the cell wait
        generation = generated * parameters / GENERATED_PER_SECOND * self._scale.gpus_of(cell)
        return 0.0, (training + generation) / 3600

    def _generated_tokens(self) -> float:
        mean = ANSWER_TOKENS.get(self._scale.name, ANSWER_TOKENS["paper"])
        if limit := self._scale.sampling.get("max_tokens"):
            mean = min(mean, limit)
        how = "measured" if self._scale.name == "lab" else "assumed"
        self._say(
            f"generated tokens: {mean:,} for each answer ({how}), {self._scale.samples} samples and greedy"
        )
        problems = sum(self._problems(name) for name in self._scale.benchmarks)
        return float(problems * (self._scale.samples + 1) * mean)

    def _problems(self, name: str) -> int:
        from trimsft.evaluate.benchmarks import BENCHMARKS, load_benchmark
        from trimsft.lab.data import BENCHMARK_COUNT

        limit = self._scale.problems
        if name in BENCHMARKS:
            count = BENCHMARKS[name].count
        else:
            data = None if self._scale.benchmark_data is None else Path(self._scale.benchmark_data)
            count = limit or BENCHMARK_COUNT if name.startswith("lab-") else len(load_benchmark(name, data))
        return count if limit is None else min(count, limit)

    # ---- training

    def _trained_tokens(self, cell: Cell) -> float:
        """Tokens that go through the model in training, prompts included."""
        settings = training_settings(self._job.place, self._scale, cell)
        if cell.model not in self._tokens:
            self._tokens[cell.model] = self._rows(settings) * self._row_tokens(settings, cell.model)
        return self._tokens[cell.model] * float(settings.args.num_train_epochs)

    def _rows(self, settings: Settings) -> int:
        if self._scale.rows is not None:
            return self._scale.rows
        if settings.data.is_local:
            return len(_local_rows(settings))
        from trimsft.train.data_config import NUMINA

        asked = settings.data.sample or (20_000 if settings.data.dataset_name == NUMINA else None)
        if asked is None:
            self._say(f"rows of {settings.data.dataset_name}: {ROWS_UNKNOWN:,} assumed, it is not at hand")
        return asked or ROWS_UNKNOWN

    def _row_tokens(self, settings: Settings, model: str) -> float:
        """Mean over a sample of the rows, cut at the maximum length."""
        from trimsft.train.inputs import load_tokenizer
        from trimsft.train.settings import UsageError

        longest = settings.args.max_length
        rows = self._some_rows(settings)
        if rows is not None:
            try:
                tokenizer = load_tokenizer(settings)
            except UsageError:
                rows = None
        if rows is None:
            mean = min(ROW_TOKENS, longest or ROW_TOKENS)
            self._say(
                f"training tokens: {mean} for each row assumed ({model}: data or tokenizer is not at hand)"
            )
            return float(mean)
        from trimsft.train.data import encode

        with _no_bars():
            lengths = [len(ids) for ids in encode(rows, tokenizer, settings.data)["input_ids"]]
        self._say(f"training tokens: counted on {len(lengths)} rows")
        return sum(min(length, longest or length) for length in lengths) / len(lengths)

    def _some_rows(self, settings: Settings) -> Any:
        """A few rows; None where they would have to be downloaded."""
        import itertools

        from datasets import Dataset

        if self._scale.rows is not None:
            from trimsft.lab import training_rows

            return Dataset.from_list(
                list(itertools.islice(training_rows(task(self._scale, 0)), COUNTED_ROWS))
            )
        if not settings.data.is_local:
            return None
        rows = _local_rows(settings)
        return rows.shuffle(seed=0).select(range(min(COUNTED_ROWS, len(rows))))

    def _parameters(self, model: str) -> float:
        if model not in self._sizes:
            self._sizes[model] = self._count_parameters(model)
        return self._sizes[model]

    def _count_parameters(self, model: str) -> float:
        at = self._scale.at(model)
        folder = Path(model_path(at))
        if found := sum(map(_parameters_in, folder.glob("*.safetensors"))):
            return float(found)
        if at.parameters is None:
            self._say(f"parameters of {model}: 1 billion assumed, it is not at hand")
        return at.parameters or 1e9

    def _say(self, text: str) -> None:
        self._said[text] = None


def _local_rows(settings: Settings) -> Any:
    from trimsft.train.rows import load_rows

    return load_rows(settings.data)


@contextmanager
def _no_bars() -> Iterator[None]:
    import datasets

    were_off = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not were_off:
            datasets.enable_progress_bars()


def _parameters_in(file: Path) -> int:
    """By the header of a safetensors file, which names every tensor and its shape."""
    with file.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(size))
    total = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            count = 1
            for length in tensor["shape"]:
                count *= length
            total += count
    return total


def _peak() -> tuple[float, str]:
    """Operations a second of the GPU here, or of one that is assumed."""
    import torch

    from trimsft.train.estimate import peak_flops

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        known = peak_flops(name)
        if known:
            return known, name
    return PEAK_FLOPS, "an A100, assumed"


# ---- what is printed


def cost_table(cost: Cost, scale: Scale, most: int = 30) -> Table:
    """A row for each cell, the first ones, and the total."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    time = "core\nminutes" if scale.device == "cpu" else "GPU\nhours"
    table = Table(box=box.SIMPLE_HEAD, show_footer=True)
    rows = [_row(cell) for cell in cost.cells]
    headers = ("to run", "trained\ntokens", "generated\ntokens", time, "disk")
    feet = (f"{len(cost.cells)} cells, and {cost.already_done} done", *_row(cost.total)[1:])
    for number, (header, foot) in enumerate(zip(headers, feet, strict=True)):
        table.add_column(
            header, footer=foot, justify="right" if number else "left", min_width=8 if number else 20
        )
    for row in rows[:most]:
        table.add_row(*(Text(text) for text in row))
    if len(rows) > most:
        table.add_row(f"and {len(rows) - most} more")
    return table


def _row(cell: CellCost) -> tuple[str, str, str, str, str]:
    time = 60 * cell.cpu_hours or cell.gpu_hours
    return (
        cell.name,
        f"{cell.trained_tokens / 1e6:,.2f} M",
        f"{cell.generated_tokens / 1e6:,.2f} M",
        f"{time:,.1f}" if time < 100 else f"{time:,.0f}",
        size_text(cell.disk_bytes),
    )


def size_text(size: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 1e3:,.0f} kB"
