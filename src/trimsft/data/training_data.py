"""From problems and solutions to tokens and labels: what the trainer is given, and what was noticed about it.

A row, and what `encode` makes of it (the prompt masked, eos trained):

    problem    What is 1+1?
    solution   It is \\boxed{2}.
    input_ids  prompt tokens            | It  is  \\  boxed  {  2  }.  <eos>
    labels     -100 -100 -100 ... -100  | It  is  \\  boxed  {  2  }.  <eos>
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc
from datasets import Dataset

from trimsft.data.encoding import Keep, encode_pairs, kept_window
from trimsft.data.readers import is_text, read_file
from trimsft.data.reference import add_reference
from trimsft.data.rows import DataConfig, Kind, kind_of, load_rows, log
from trimsft.data.templates import PromptTemplate, choose_template
from trimsft.errors import DataError, counted
from trimsft.head import IGNORED


@dataclass(frozen=True)
class Encoded:
    """Data as the trainer takes it, and what was noticed on the way."""

    dataset: Dataset
    overlap: OverlapReport | None
    """What it shares with the benchmarks, where a folder of them was named; counted before any row is dropped."""
    kind: Kind  # problem-solution: tokenised here; trl: in a form that TRL tokenises itself, passed on as it is


def load_training_data(config: DataConfig, tokenizer: Any, *, with_eval: bool) -> tuple[Encoded, Encoded | None]:
    """Everything between the settings and the trainer; only training rows are compared with benchmarks."""
    # before any row is read: a wrong folder should not cost a download
    benchmarks = None if config.benchmarks_dir is None else read_benchmarks(config.benchmarks_dir)
    rows = load_rows(config, split="train")
    test_rows = load_rows(config, split="test") if with_eval else None
    if kind_of(rows.column_names, config, config.dataset_name) == "trl":
        _refuse_rendering_settings(config)
    if config.reference is not None and with_eval:
        problem = "has no log-probabilities for an evaluation"
        raise DataError(problem, field="reference", value=config.reference, hint="set eval_strategy to 'no'")
    overlap = None
    if benchmarks is not None:
        overlap = find_overlap(rows[config.problem_column], benchmarks)
        (log.warning if overlap.rows else log.info)("overlap: %s", overlap)
        if config.drop_overlap:
            rows = _without(rows, overlap.rows)
    train = _encoded(rows, tokenizer, config, overlap, config.dataset_name)
    return train, None if test_rows is None else _encoded(test_rows, tokenizer, config, None, "evaluation data")


def _encoded(rows: Dataset, tokenizer: Any, config: DataConfig, overlap: OverlapReport | None, name: str) -> Encoded:
    kind = kind_of(rows.column_names, config, name)
    if kind == "trl":
        return Encoded(rows, overlap, kind)
    encoded = encode(rows, tokenizer, config)
    if config.reference is not None:
        pairs = zip(rows[config.problem_column], rows[config.solution_column], strict=True)
        plain = [{"problem": problem, "solution": solution} for problem, solution in pairs]
        template = choose_template(config.template, tokenizer, config.system_prompt)
        encoded = add_reference(encoded, config.reference, plain, template)
    return Encoded(encoded, overlap, kind)


def encode(rows: Any, tokenizer: Any, config: DataConfig) -> Any:
    """Tokenise problem/solution rows to input_ids and labels, at full length: the trainer truncates."""
    ids = datasets.List(datasets.Value("int32"))
    options: dict[str, Any] = {}
    if isinstance(rows, Dataset):  # the cache's key would not see that this code has changed
        options = {"load_from_cache_file": False, "desc": "Tokenising"}
    return rows.map(
        _encode_batch,
        batched=True,
        input_columns=[config.problem_column, config.solution_column],
        remove_columns=rows.column_names,
        features=datasets.Features({"input_ids": ids, "labels": ids}),
        fn_kwargs={
            "tokenizer": tokenizer,
            "template": choose_template(config.template, tokenizer, config.system_prompt),
        },
        **options,
    )


def _encode_batch(
    problems: list[str], solutions: list[str], *, tokenizer: Any, template: PromptTemplate
) -> dict[str, list[list[int]]]:
    pairs = encode_pairs(problems, solutions, tokenizer, template)
    return {
        "input_ids": [prompt + completion for prompt, completion in pairs],
        "labels": [[IGNORED] * len(prompt) + completion for prompt, completion in pairs],
    }


def _refuse_rendering_settings(config: DataConfig) -> None:
    """Options about problems and solutions do nothing to data that TRL renders."""
    for name in ("template", "system_prompt", "benchmarks_dir", "drop_incomplete", "reference"):
        if getattr(config, name) != getattr(DataConfig, name):
            columns = f"{config.problem_column!r} and {config.solution_column!r}"
            problem = f"has no effect on data without {columns} ({config.dataset_name})"
            raise DataError(problem, field=name, value=getattr(config, name), hint="remove it")


def _without(rows: Dataset, dropped: tuple[int, ...]) -> Dataset:
    if len(dropped) == len(rows):
        raise DataError("every row is a benchmark problem; nothing is left to train on", field="drop_overlap")
    gone = set(dropped)
    return rows.select([row for row in range(len(rows)) if row not in gone])


# ---- overlap with benchmarks


@dataclass(frozen=True)
class OverlapReport:
    """Which training problems are benchmark problems: equal once lower-cased and without all but letters and digits.

    >>> print(find_overlap(["What is 1+1?", "Find $x$."], {"toy": ["what is 1 + 1"], "other": ["Find $y$."]}))
    1 of 2 training problems is also a benchmark problem (toy 1, other 0): row 0
    """

    checked: int
    per_benchmark: dict[str, int]  # training problems found in each benchmark; one problem may be in several
    rows: tuple[int, ...]  # rows of the training data, after sampling, that are in any benchmark; from 0

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count:,}" for name, count in self.per_benchmark.items())
        if not self.rows:
            return f"none of {self.checked:,} training problems is also a benchmark problem ({counts})"
        shown = ", ".join(map(str, self.rows[:5])) + (", ..." if len(self.rows) > 5 else "")
        verb, s = ("is also a benchmark problem", "") if len(self.rows) == 1 else ("are also benchmark problems", "s")
        return f"{len(self.rows):,} of {self.checked:,} training problems {verb} ({counts}): row{s} {shown}"


def find_overlap(problems: Iterable[str], benchmarks: Mapping[str, Iterable[str]]) -> OverlapReport:
    """Compare every training problem with every problem of every benchmark."""
    # a problem of symbols alone is nothing to compare by
    known = {name: {_bare(problem) for problem in texts} - {""} for name, texts in benchmarks.items()}
    asked = [_bare(problem) for problem in problems]
    counts = {name: sum(problem in texts for problem in asked) for name, texts in known.items()}
    anywhere = set().union(*known.values())
    return OverlapReport(len(asked), counts, tuple(row for row, problem in enumerate(asked) if problem in anywhere))


def read_benchmarks(folder: str | Path) -> dict[str, list[str]]:
    """The field "problem" of every *.jsonl (or *.jsonl.gz) of a folder, by the name of the file."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataError("no such folder", field="benchmarks_dir", value=str(folder))
    files = sorted(path for path in root.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")) and path.is_file())
    if not files:
        raise DataError("the folder holds no .jsonl file", field="benchmarks_dir", value=str(folder))
    benchmarks = {}
    for path in files:
        rows = read_file(path)
        problems = rows.column("problem")
        for number, problem in zip(rows.numbers, problems, strict=True):
            if not is_text(problem):
                raise DataError(f'{path}, line {number}: no text in the field "problem", which a benchmark needs')
        benchmarks[path.name.removesuffix(".gz").removesuffix(".jsonl")] = problems
    return benchmarks


def _bare(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())


# ---- lengths


@dataclass(frozen=True)
class LengthReport:
    """How long the examples of a tokenised dataset are, and what a maximum length takes from them, in tokens.

    20,000 rows, 6,120,345 tokens (median 265, longest 3,912), of which 4,603,211 are trained. max_length=2048 cuts
    11 rows by 5,120 tokens. 1 row keeps no trained token and adds nothing.
    """

    rows: int
    tokens: int  # tokens of all rows, before truncation
    trained_tokens: int
    """Labels that enter the loss: after truncation, and without the first token of a row, which nothing predicts."""
    longest: int
    median: float
    truncated: int  # rows longer than `max_length`
    truncated_tokens: int  # tokens that truncation takes away
    dropped: int  # rows without a trained label after truncation; left out, or packed without effect
    max_length: int | None

    def __str__(self) -> str:
        says = [
            f"{counted(self.rows, 'row')}, {counted(self.tokens, 'token')} (median {self.median:,g}, longest "
            f"{self.longest:,}), of which {self.trained_tokens:,} are trained."
        ]
        if self.truncated:
            cut = f"{counted(self.truncated, 'row')} by {counted(self.truncated_tokens, 'token')}"
            says.append(f"max_length={self.max_length} cuts {cut}.")
        elif self.max_length is not None:
            says.append(f"None is longer than max_length={self.max_length}.")
        if self.dropped:
            keep, add = ("keeps", "adds") if self.dropped == 1 else ("keep", "add")
            says.append(f"{counted(self.dropped, 'row')} {keep} no trained token and {add} nothing.")
        return " ".join(says)


def measure_lengths(dataset: Any, max_length: int | None, *, keep: Keep = "start") -> LengthReport:
    """Measure a dataset with the columns input_ids and labels; `keep` says which end truncation leaves."""
    missing = [name for name in ("input_ids", "labels") if name not in dataset.column_names]
    if missing:
        problem = f"no column {' and '.join(missing)} among {', '.join(dataset.column_names)}"
        raise DataError(problem, field="dataset", hint="tokenise it first")
    lengths, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for table in dataset.with_format("arrow").iter(batch_size=10_000):
        ids, labels = (table[name] for name in ("input_ids", "labels"))
        sizes = _list_lengths(labels)
        if not np.array_equal(_list_lengths(ids), sizes):
            raise DataError("input_ids and labels of a row differ in length", field="dataset")
        starts = np.cumsum(sizes) - sizes
        low, high = kept_window(sizes, max_length, keep)
        is_trained = np.asarray(pc.list_flatten(labels)) != IGNORED
        before = np.concatenate([[0], np.cumsum(is_trained)])  # trained labels ahead of each position
        first = starts + np.minimum(low + 1, high)  # what is first in a row is predicted by nothing
        counts.append(before[starts + high] - before[first])
        lengths.append(sizes)
    length, trained = np.concatenate(lengths), np.concatenate(counts)
    over = length[length > max_length] if max_length is not None else length[:0]
    return LengthReport(
        rows=len(length),
        tokens=int(length.sum()),
        trained_tokens=int(trained.sum()),
        longest=int(length.max(initial=0)),
        median=float(np.median(length)) if len(length) else 0.0,
        truncated=len(over),
        truncated_tokens=int((over - (max_length or 0)).sum()),
        dropped=int((trained == 0).sum()),
        max_length=max_length,
    )


def _list_lengths(lists: Any) -> Any:
    """How long each list of an Arrow column is, whatever kind of list it holds."""
    if not hasattr(lists.type, "value_type") or lists.null_count:
        raise DataError("input_ids and labels must be lists of whole numbers", field="dataset")
    return pc.list_value_length(lists).to_numpy().astype(np.int64)
