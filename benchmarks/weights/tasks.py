"""The lab's conditions: what rows are like, the problems, and what the answers came to."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.weights.conditions import Condition, condition
from benchmarks.weights.stacked import StackedModel
from benchmarks.weights.training import Examples, Pair, make_batch, token_stats
from trimsft.data.encode import encode_pairs, encode_prompts, load_tokenizer
from trimsft.data.templates import choose_template
from trimsft.lab import TIERS, benchmark
from trimsft.lab.task import FAR, NEAR, draw_problems, write_solution

HELD_OUT_ROWS, HELD_OUT_SEED = 60, 1000
BINS = 15  # of the expected calibration error
_ANSWER = re.compile(r"(?:\\boxed\{|Answer: )(-?\d+)")  # style `plain` teaches to answer without a box
_NEW_FORMAT = "->"  # what only solutions in the unfamiliar style have


@cache
def _reading(base: str) -> tuple[Any, Any]:
    tokenizer = load_tokenizer(base, field="base")
    return tokenizer, choose_template("auto", tokenizer)


def training_pairs(base: str, name: str, seed: int) -> list[Pair]:
    """Return prompts and completions of a condition; plain lists, since they come from another process."""
    known = condition(name)
    return _pairs(base, known, seed, known.rows)


def held_out_pairs(base: str, name: str, seed: int) -> list[Pair]:
    """Return rows of other problems in the same formats, without slips or filler."""
    clean = replace(condition(name), slip_rate=0.0, filler_rate=0.0)
    return _pairs(base, clean, HELD_OUT_SEED + seed, HELD_OUT_ROWS)


def _pairs(base: str, known: Condition, seed: int, rows: int) -> list[Pair]:
    """Problem, format, slips and filler are drawn apart: conditions of one seed have the same problems."""
    rng = random.Random(f"fine-tuning/{seed}")
    streams = {tier: draw_problems(tier, f"fine-tuning/{seed}", "training") for tier in TIERS}
    problems, solutions = [], []
    for number in range(rows):
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

    `right` has a text for each temperature with a digit for each problem: how many of its samples are right.
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
    return {
        "right": {t: "".join(map(str, is_right[:, rows].sum(axis=1))) for t, rows in by_temperature.items()},
        "answered": float((found[:, last] != "").mean()),
        "new_format": float(is_new[:, last].mean()),
        "distinct_answers": float(np.mean([len(set(row)) for row in found[:, last]])),
    }


@torch.no_grad()
def held_out_figures(model: StackedModel, sets: Sequence[Examples], at_once: int = 16) -> list[dict[str, float]]:
    """Of each model on its set: cross-entropy, entropy, and expected calibration error of the first choice."""
    figures = []
    for first in range(0, model.count, at_once):
        part, chosen = model.part(first, first + at_once), sets[first : first + at_once]
        batch = make_batch(chosen, [torch.arange(len(one)) for one in chosen], str(model.device))
        nll_MK, stats = token_stats(part, part.hidden(batch.ids_MBL, batch.real_MP), batch)
        assert stats.entropy is not None
        rows = zip(nll_MK, stats.entropy, stats.gap, batch.counts, strict=True)
        for nll, entropy, gap, count in rows:
            nll, entropy, gap = nll[:count], entropy[:count], gap[:count]
            error = calibration_error(nll.double().cpu().numpy(), gap.double().cpu().numpy())
            figures.append({"nll": float(nll.mean()), "entropy": float(entropy.mean()), "ece": error})
    return [{name: round(value, 5) for name, value in one.items()} for one in figures]


def calibration_error(nll: NDArray[np.float64], gap: NDArray[np.float64]) -> float:
    """sum_b n_b / N |accuracy_b - confidence_b|, in bins of equal width; as `trimsft.tokens.statistics`."""
    sure = np.minimum(np.exp(np.maximum(0.0, -gap) - nll), 1.0)
    right = np.where(gap > 0, 1.0, np.where(gap < 0, 0.0, 0.5))
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    excess = np.bincount(bins, weights=right - sure, minlength=BINS)
    return float(np.abs(excess).sum() / len(nll))
