"""Graded samples for the tests of scores, comparison and tables, written as short texts."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from trimsft.evaluate.metrics import GREEDY, Equivalent, GradeLine, summarize
from trimsft.evaluate.scores import BenchmarkScore, score_counts

STRICT = "strict 3"


def score(
    benchmark: str, samples: Sequence[GradeLine], equivalent: Equivalent, *, resamples: int = 400, grader: str = STRICT
) -> BenchmarkScore:
    """Score samples in whatever order they come, as an evaluation does from a record."""
    by_problem: dict[str, list[GradeLine]] = {}
    for sample in samples:
        by_problem.setdefault(sample.problem, []).append(sample)
    problems = [summarize(name, results, equivalent)[0] for name, results in sorted(by_problem.items())]
    statuses = Counter(sample.status for sample in samples if sample.votes)
    return score_counts(benchmark, problems, statuses, grader=grader, resamples=resamples)


def same(a: str, b: str) -> bool:
    """Answers are equivalent up to a trailing prime: 7 and 7'."""
    return a.rstrip("'") == b.rstrip("'")


def samples_of(problem: str, answers: str, *, gold: str = "1", greedy: str | None = None) -> list[GradeLine]:
    """One sample for each word of `answers`; "-" has no answer, "/" was cut off before it."""
    drawn = [_sample(problem, number, answer, gold) for number, answer in enumerate(answers.split())]
    return drawn if greedy is None else [*drawn, _sample(problem, GREEDY, greedy, gold)]


def _sample(problem: str, number: int, answer: str, gold: str) -> GradeLine:
    if answer in ("-", "/"):
        status = "truncated" if answer == "/" else "no_answer"
        return GradeLine(problem, number, status, None, tokens=100, truncated=answer == "/")
    return GradeLine(problem, number, "correct" if answer == gold else "wrong", answer, tokens=10)


def score_of(benchmark: str, correct: Iterable[int], samples: int = 8, resamples: int = 400) -> BenchmarkScore:
    """A benchmark whose problems p000, p001, ... have so many correct samples; the wrong ones all differ."""
    graded = [
        sample
        for number, count in enumerate(correct)
        for sample in samples_of(
            f"p{number:03}",
            " ".join(["1"] * count + [f"w{place}" for place in range(samples - count)]),
            greedy="1" if 2 * count > samples else "0",
        )
    ]
    return score(benchmark, graded, same, resamples=resamples)


def random_counts(problems: int, seed: int, shift: float = 0.0) -> list[int]:
    """Correct samples of 8; the same seed gives the same difficulties, a shift in log-odds another run on them."""
    difficulty = np.random.default_rng(seed).normal(0, 1.5, size=problems)
    chance = 1 / (1 + np.exp(-(difficulty + shift)))
    return np.random.default_rng([seed, int(1000 * shift) % 997]).binomial(8, chance).tolist()
