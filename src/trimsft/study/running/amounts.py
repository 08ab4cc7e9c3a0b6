"""How much there is to do for a cell: tokens to train on and to generate, parameters of its model.

amounts = Amounts(job)
amounts.trained_tokens(cell), amounts.generated_tokens(), amounts.parameters("lab")
amounts.assumptions()                          # what was not at hand to be counted, in the order it came up

Rows are counted on a sample, where the data is at hand; nothing is downloaded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.study.cells import Cell
from trimsft.study.running.job import CellJob
from trimsft.study.running.training import model_path, task, training_settings

if TYPE_CHECKING:
    from trimsft.train.settings import Settings

COUNTED_ROWS = 200
ROWS_UNKNOWN = 20_000
ROW_TOKENS = 526
"""Mean of 2,000 rows of NuminaMath-CoT in the tokens of SmolLM2; for data that is not at hand."""
ANSWER_TOKENS = {"lab": 45, "small": 160, "paper": 700}
"""Mean length of a sampled answer. Measured at the lab (docs/results/lab.md's runs); assumed elsewhere."""

WEIGHT_BYTES = 4.0
"""Bytes of one parameter: float32, as the recipes train."""


class Amounts:
    """Counts once what many cells share."""

    def __init__(self, job: CellJob) -> None:
        self._folder, self._scale = job.folder, job.scale
        self._tokens: dict[str, float] = {}
        self._sizes: dict[str, float] = {}
        self._said: dict[str, None] = {}

    def assumptions(self) -> list[str]:
        return list(self._said)

    def say(self, text: str) -> None:
        """One more assumption; twice is once."""
        self._said[text] = None

    def generated_tokens(self) -> float:
        mean = ANSWER_TOKENS.get(self._scale.name, ANSWER_TOKENS["paper"])
        if limit := self._scale.sampling.get("max_tokens"):
            mean = min(mean, limit)
        how = "measured" if self._scale.name == "lab" else "assumed"
        self.say(f"generated tokens: {mean:,} for each answer ({how}), {self._scale.samples} samples and greedy")
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

    def trained_tokens(self, cell: Cell) -> float:
        """Tokens that go through the model in training, prompts included."""
        settings = training_settings(self._folder, self._scale, cell)
        if cell.model not in self._tokens:
            self._tokens[cell.model] = self._rows(settings) * self._row_tokens(settings, cell.model)
        return self._tokens[cell.model] * float(settings.args.num_train_epochs)

    def checkpoint_bytes(self, cell: Cell) -> float:
        """At their most: a new checkpoint is whole before an old one goes, and each holds AdamW's two moments."""
        args = training_settings(self._folder, self._scale, cell).args
        if str(getattr(args.save_strategy, "value", args.save_strategy)) == "no":
            return 0.0
        if args.save_total_limit is None:
            self.say("disk: all checkpoints are kept (save_total_limit is not set); two of them are counted")
        parts = 1 if args.save_only_model else 3
        return ((args.save_total_limit or 1) + 1) * parts * WEIGHT_BYTES * self.parameters(cell.model)

    def _rows(self, settings: Settings) -> int:
        if self._scale.rows is not None:
            return self._scale.rows
        if settings.data.is_local:
            return len(_local_rows(settings))
        from trimsft.text.data_config import NUMINA

        rows = settings.data.sample or (20_000 if settings.data.dataset_name == NUMINA else None)
        if rows is None:
            self.say(f"rows of {settings.data.dataset_name}: {ROWS_UNKNOWN:,} assumed, it is not at hand")
        return rows or ROWS_UNKNOWN

    def _row_tokens(self, settings: Settings, model: str) -> float:
        """Mean over a sample of the rows, cut at the maximum length."""
        from trimsft.errors import UsageError
        from trimsft.train.settings import load_tokenizer

        longest = settings.args.max_length
        rows = self._some_rows(settings)
        if rows is not None:
            try:
                tokenizer = load_tokenizer(settings)
            except UsageError:
                rows = None
        if rows is None:
            mean = min(ROW_TOKENS, longest or ROW_TOKENS)
            self.say(f"training tokens: {mean} for each row assumed ({model}: data or tokenizer is not at hand)")
            return float(mean)
        from trimsft.text.training_data import encode

        with _no_bars():
            lengths = [len(ids) for ids in encode(rows, tokenizer, settings.data)["input_ids"]]
        self.say(f"training tokens: counted on {len(lengths)} rows")
        return sum(min(length, longest or length) for length in lengths) / len(lengths)

    def _some_rows(self, settings: Settings) -> Any:
        """A few rows; None where they would have to be downloaded."""
        from datasets import Dataset

        if self._scale.rows is not None:
            from trimsft.lab import training_rows

            return Dataset.from_list(list(itertools.islice(training_rows(task(self._scale, 0)), COUNTED_ROWS)))
        if not settings.data.is_local:
            return None
        rows = _local_rows(settings)
        return rows.shuffle(seed=0).select(range(min(COUNTED_ROWS, len(rows))))

    def parameters(self, model: str) -> float:
        if model not in self._sizes:
            self._sizes[model] = self._count_parameters(model)
        return self._sizes[model]

    def _count_parameters(self, model: str) -> float:
        at = self._scale.at(model)
        folder = Path(model_path(at))
        if counted := sum(map(_parameters_in, folder.glob("*.safetensors"))):
            return float(counted)
        if at.parameters is None:
            self.say(f"parameters of {model}: 1 billion assumed, it is not at hand")
        return at.parameters or 1e9


def _local_rows(settings: Settings) -> Any:
    from trimsft.text.rows import load_rows

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
    from safetensors import safe_open

    with safe_open(file, "np") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
