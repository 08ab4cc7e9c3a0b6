"""From problems and solutions to tokens and labels: what the trainer is given.

A row, and what `encode` makes of it (the prompt masked, eos trained):

    problem    What is 1+1?
    solution   It is \\boxed{2}.
    input_ids  prompt tokens            | It  is  \\  boxed  {  2  }.  <eos>
    labels     -100 -100 -100 ... -100  | It  is  \\  boxed  {  2  }.  <eos>
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import datasets
from datasets import Dataset

from trimsft.errors import DataError
from trimsft.head import IGNORED
from trimsft.text.data_config import DataConfig
from trimsft.text.encoding import encode_pairs
from trimsft.text.overlap import OverlapReport, find_overlap, read_benchmarks
from trimsft.text.rows import Kind, kind_of, load_rows, log
from trimsft.text.templates import PromptTemplate, choose_template


@dataclass(frozen=True)
class Encoded:
    """Data as the trainer takes it, and what was noticed on the way."""

    dataset: Dataset
    overlap: OverlapReport | None
    """What it shares with the benchmarks, where a folder of them was named; counted before any row is dropped."""
    kind: Kind
    """problem-solution: tokenised here; trl: in a form that TRL tokenises itself, passed on as it is."""


def load_training_data(config: DataConfig, tokenizer: Any, *, with_eval: bool) -> tuple[Encoded, Encoded | None]:
    """Everything between the settings and the trainer; only training rows are compared with benchmarks."""
    # before any row is read: a wrong folder should not cost a download
    benchmarks = None if config.benchmarks_dir is None else read_benchmarks(config.benchmarks_dir)
    rows = load_rows(config, split="train")
    test_rows = load_rows(config, split="test") if with_eval else None
    if kind_of(rows.column_names, config, config.dataset_name) == "trl":
        _refuse_rendering_settings(config)
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
    return Encoded(rows if kind == "trl" else encode(rows, tokenizer, config), overlap, kind)


def encode(rows: Dataset, tokenizer: Any, config: DataConfig) -> Dataset:
    """Tokenise problem/solution rows to input_ids and labels, at full length: the trainer truncates."""
    ids = datasets.List(datasets.Value("int32"))
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
        load_from_cache_file=False,  # its key would not see that this code has changed
        desc="Tokenising",
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
    defaults = DataConfig()
    for name in ("template", "system_prompt", "benchmarks_dir", "drop_incomplete"):
        if getattr(config, name) != getattr(defaults, name):
            raise DataError(
                f"has no effect on data without {config.problem_column!r} and {config.solution_column!r} "
                f"({config.dataset_name})",
                field=name,
                value=getattr(config, name),
                hint="remove it",
            )


def _without(rows: Dataset, dropped: tuple[int, ...]) -> Dataset:
    if len(dropped) == len(rows):
        raise DataError("every row is a benchmark problem; nothing is left to train on", field="drop_overlap")
    gone = set(dropped)
    return rows.select([row for row in range(len(rows)) if row not in gone])
