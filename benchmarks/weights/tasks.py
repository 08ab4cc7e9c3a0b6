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

from benchmarks.weights.stacked import StackedModel
from benchmarks.weights.training import Examples, Pair, make_batch, token_stats
from trimsft.lab import TIERS, benchmark
from trimsft.lab.arithmetic import draw_problems
from trimsft.lab.styles import FAR, TARGET, UNFAMILIAR, write_solution
from trimsft.text.encoding import encode_pairs, encode_prompts, load_tokenizer
from trimsft.text.templates import choose_template


@dataclass(frozen=True)
class Condition:
    """How rows are written; each of the styles in as many rows."""

    slip_rate: float = 0.05
    filler_rate: float = 0.1
    styles: tuple[str, ...] = (TARGET,)


CONDITIONS = {
    "clean": Condition(slip_rate=0.0, filler_rate=0.0),
    "default": Condition(),
    "slips20": Condition(slip_rate=0.2),
    "halfnew": Condition(styles=(TARGET, UNFAMILIAR)),
    "allnew": Condition(styles=(UNFAMILIAR,)),
    "allnew20": Condition(slip_rate=0.2, styles=(UNFAMILIAR,)),
    "filler50": Condition(filler_rate=0.5),
    "mix": Condition(styles=(TARGET, "words")),
}
HELD_OUT_ROWS, HELD_OUT_SEED = 60, 1000
BINS = 15  # of the expected calibration error
_BOX = re.compile(r"\\boxed\{(-?\d+)\}")
_NEW_FORMAT = "->"  # what only solutions in the unfamiliar style have


@cache
def _reading(base: str) -> tuple[Any, Any]:
    tokenizer = load_tokenizer(base, field="base")
    return tokenizer, choose_template("auto", tokenizer)


def training_pairs(base: str, condition: str, seed: int, rows: int) -> list[Pair]:
    """Prompts and completions; plain lists, since they come from another process."""
    return _pairs(base, CONDITIONS[condition], seed, rows)


def held_out_pairs(base: str, condition: str, seed: int) -> list[Pair]:
    """Rows of other problems in the same styles, without slips or filler."""
    clean = replace(CONDITIONS[condition], slip_rate=0.0, filler_rate=0.0)
    return _pairs(base, clean, HELD_OUT_SEED + seed, HELD_OUT_ROWS)


def _pairs(base: str, condition: Condition, seed: int, rows: int) -> list[Pair]:
    """Problem, style, slips and filler are drawn apart: conditions of one seed have the same problems."""
    rng = random.Random(f"fine-tuning/{seed}")
    streams = {tier: draw_problems(tier, f"fine-tuning/{seed}", "training") for tier in TIERS}
    problems, solutions = [], []
    for number in range(rows):
        problem = next(streams[rng.choice(tuple(TIERS))])
        style = condition.styles[int(rng.random() * len(condition.styles))]
        own = random.Random(f"fine-tuning/{seed}/{number}")
        rates = {"slip_rate": condition.slip_rate, "filler_rate": condition.filler_rate}
        solutions.append(write_solution(problem, style, own, offsets=FAR, **rates).text)
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


def grade(base: str, written: NDArray[np.int32], answers: Sequence[str]) -> dict[str, Any]:
    """What the rows [K, n, new] of a model came to; the first row of a problem is greedy.

    Besides shares it says of each problem how many samples were right, and whether greedy decoding was: one digit each.
    """
    tokenizer, _ = _reading(base)
    problems, n, new = written.shape
    texts = tokenizer.batch_decode(written.reshape(-1, new), skip_special_tokens=True)
    boxes = [_BOX.findall(text) for text in texts]
    found = np.array([box[-1] if box else "" for box in boxes], dtype=object).reshape(problems, n)
    right = found == np.array(answers, dtype=object)[:, None]
    is_new = np.array([_NEW_FORMAT in text for text in texts]).reshape(problems, n)
    samples = found[:, 1:]
    return {
        "average": float(right[:, 1:].mean()),
        f"pass@{n - 1}": float(right[:, 1:].any(axis=1).mean()),
        "greedy": float(right[:, 0].mean()),
        "boxed": float((samples != "").mean()),
        "new_format": float(is_new[:, 1:].mean()),
        "distinct_answers": float(np.mean([len(set(row)) for row in samples])),
        "right_samples": right[:, 1:].sum(axis=1).tolist(),
        "right_greedy": right[:, 0].astype(int).tolist(),
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
    """sum_b n_b / N |accuracy_b - confidence_b|, in bins of equal width; as `trimsft.tokens.statistics.calibration`."""
    sure = np.minimum(np.exp(np.maximum(0.0, -gap) - nll), 1.0)
    right = np.where(gap > 0, 1.0, np.where(gap < 0, 0.0, 0.5))
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    excess = np.bincount(bins, weights=right - sure, minlength=BINS)
    return float(np.abs(excess).sum() / len(nll))
