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
from trimsft.text.overlap import OverlapReport, find_overlap, read_benchmarks
from trimsft.text.rows import Kind, kind_of, load_rows, log
from trimsft.text.templates import (
    PromptTemplate,
    TemplateError,
    choose_template,
    encode_completions,
    encode_prompts,
)

__all__ = ["DataConfig", "DataError", "Encoded", "encode", "load_rows", "load_training_data"]


@dataclass(frozen=True)
class Encoded:
    """Data as the trainer takes it, and what was found on the way."""

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
    kind = kind_of(rows.column_names, config, config.dataset_name)
    if kind == "trl":
        _refuse_rendering_settings(config)
    overlap = None
    if benchmarks is not None:
        overlap = find_overlap(rows[config.problem_column], benchmarks)
        (log.warning if overlap.rows else log.info)("overlap: %s", overlap)
        if config.drop_overlap:
            rows = _without(rows, overlap.rows)
    train = rows if kind == "trl" else encode(rows, tokenizer, config)
    if test_rows is None:
        return Encoded(train, overlap, kind), None
    test_kind = kind_of(test_rows.column_names, config, "evaluation data")
    test = test_rows if test_kind == "trl" else encode(test_rows, tokenizer, config)
    return Encoded(train, overlap, kind), Encoded(test, None, test_kind)


def encode(rows: Dataset, tokenizer: Any, config: DataConfig) -> Dataset:
    """Tokenise problem/solution rows to input_ids and labels, at full length: the trainer truncates."""
    if tokenizer.eos_token_id is None:
        raise DataError("tokenizer: has no eos_token, so nothing would teach the model to stop; set one")
    try:
        template = choose_template(config.template, tokenizer, config.system_prompt)
    except TemplateError as error:
        raise DataError(str(error)) from error
    ids = datasets.List(datasets.Value("int32"))
    return rows.map(
        _encode_batch,
        batched=True,
        input_columns=[config.problem_column, config.solution_column],
        remove_columns=rows.column_names,
        features=datasets.Features({"input_ids": ids, "labels": ids}),
        fn_kwargs={"tokenizer": tokenizer, "template": template},
        load_from_cache_file=False,  # its key would not see that this code has changed
        desc="Tokenising",
    )


def _encode_batch(
    problems: list[str], solutions: list[str], *, tokenizer: Any, template: PromptTemplate
) -> dict[str, list[list[int]]]:
    """Prompt and completion are tokenised apart, as in generation, where the prompt's last token is settled."""
    prompts = encode_prompts(problems, tokenizer, template)
    pairs = list(zip(prompts, encode_completions(solutions, tokenizer), strict=True))
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
                f"{name}: {getattr(config, name)!r} has no effect on data without {config.problem_column!r} and "
                f"{config.solution_column!r} ({config.dataset_name}); remove it"
            )


def _without(rows: Dataset, dropped: tuple[int, ...]) -> Dataset:
    if len(dropped) == len(rows):
        raise DataError("drop_overlap: every row is a benchmark problem; nothing is left to train on")
    gone = set(dropped)
    return rows.select([row for row in range(len(rows)) if row not in gone])
