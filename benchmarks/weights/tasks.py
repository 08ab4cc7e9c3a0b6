"""The lab's conditions: what rows are like, the problems, and what the answers came to."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.weights.conditions import condition
from benchmarks.weights.training import Pair
from trimsft.data.encode import encode_pairs, encode_prompts, load_tokenizer
from trimsft.data.templates import choose_template
from trimsft.lab import TIERS, benchmark
from trimsft.lab.task import FAR, NEAR, draw_problems, write_solution

_ANSWER = re.compile(r"(?:\\boxed\{|Answer: )(-?\d+)")  # style `plain` teaches to answer without a box
_NEW_FORMAT = "->"  # what only solutions in the unfamiliar style have


@cache
def _reading(base: str) -> tuple[Any, Any]:
    tokenizer = load_tokenizer(base, field="base")
    return tokenizer, choose_template("auto", tokenizer)


def training_pairs(base: str, name: str, seed: int) -> list[Pair]:
    """Return prompts and completions of a condition; plain lists, since they come from another process.

    Problem, format, slips and filler are drawn apart: conditions of one seed have the same problems.
    """
    known = condition(name)
    rng = random.Random(f"fine-tuning/{seed}")
    streams = {tier: draw_problems(tier, f"fine-tuning/{seed}", "training") for tier in TIERS}
    problems, solutions = [], []
    for number in range(known.rows):
        problem = next(streams[rng.choice(tuple(TIERS))])
        style = known.formats[int(rng.random() * len(known.formats))]
        solution = write_solution(
            problem,
            style,
            random.Random(f"fine-tuning/{seed}/{number}"),
            slip_rate=known.slip_rate,
            offsets=NEAR if known.near else FAR,
            filler_rate=known.filler_rate,
            slips_from=len(problem.steps) - 1 if known.last_only else 0,
        )
        solutions.append(solution.text)
        problems.append(problem.problem)
    return [*encode_pairs(problems, solutions, *_reading(base))]


@dataclass(frozen=True)
class Problems:
    """The benchmark: as many problems of each tier."""

    prompts: list[list[int]]
    answers: list[str]
    eos: int

    @classmethod
    def of(cls, base: str, each: int) -> Problems:
        problems = [problem for tier in TIERS for problem in benchmark(tier, each)]
        tokenizer, template = _reading(base)
        prompts = encode_prompts([problem.problem for problem in problems], tokenizer, template)
        return cls(prompts, [problem.answer for problem in problems], tokenizer.eos_token_id)


def grade(
    base: str, written: NDArray[np.int32], answers: Sequence[str], temperatures: Sequence[float]
) -> dict[str, Any]:
    """Return what the rows [K, n, new] of a model came to; row i of a problem was drawn at temperatures[i].

    `right` has a text for each temperature with a digit for each problem: how many of its samples are right;
    `right_in_new` counts those that are written in the unfamiliar format as well.
    """
    tokenizer, _ = _reading(base)
    problems, n, new = written.shape
    texts = tokenizer.batch_decode(written.reshape(-1, new), skip_special_tokens=True)
    answers_of = [_ANSWER.findall(text) for text in texts]
    found = np.array([found[-1] if found else "" for found in answers_of], dtype=object).reshape(problems, n)
    is_right = found == np.array(answers, dtype=object)[:, None]
    is_new = np.array([_NEW_FORMAT in text for text in texts]).reshape(problems, n)
    drawn_at = np.array(temperatures)
    by_temperature = {f"{t:g}": drawn_at == t for t in dict.fromkeys(temperatures)}
    last = by_temperature[f"{max(temperatures):g}"]

    def digits(is_counted: NDArray[np.bool_]) -> dict[str, str]:
        return {t: "".join(map(str, is_counted[:, rows].sum(axis=1))) for t, rows in by_temperature.items()}

    return {
        "right": digits(is_right),
        "right_in_new": digits(is_right & is_new),
        "answered": float((found[:, last] != "").mean()),
        "new_format": float(is_new[:, last].mean()),
        "distinct_answers": float(np.mean([len(set(row)) for row in found[:, last]])),
    }
