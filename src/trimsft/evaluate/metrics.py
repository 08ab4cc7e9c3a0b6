"""Counts over the samples of one problem, and every metric that follows from them.

Answers that say the same form a cluster; pass@k and majority@k average exactly over every way to choose k of the n
samples that were drawn.

    >>> cluster(["1/2", "0.5", None, "3", "1/2"], lambda a, b: {a, b} == {"1/2", "0.5"})
    [0, 0, None, 1, 0]
    >>> pass_at_k(n=8, correct=1, k=4)
    0.5
    >>> majority_at_k([0, 0, 1, None], k=2, correct={0: True, 1: False})  # 6 pairs: 3 won, 2 tied, 1 lost
    0.6666666666666666

One line of `scores.json` for a problem with 8 samples: 5 correct ones that agree, 2 that agree on a wrong answer,
1 that was cut off before it answered.

    {"problem": "gsm8k/17", "samples": 8, "correct": 5, "right": [5], "wrong": [2], "no_answer": 1, "truncated": 1,
     "tokens": 1604, "greedy": true, "mixed": false, "samples_at": 4, "correct_at": {"0.6": 3}}

Metrics, by name: average, pass@k and majority@k for k up to the number of samples, all_right (share of problems with
all samples right), greedy, T=0.6 (the average at a further temperature), no_answer, truncated (shares of the samples),
tokens (mean length).
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimsft.errors import UsageError
from trimsft.intervals import Array, Bounds

MOST_SAMPLES = 1000
"""Samples of a problem: the number of ways to choose among more does not fit a float64, so votes cannot be counted."""

Equivalent = Callable[[str, str], bool]

# ---- which answers say the same


def cluster(answers: Sequence[str | None], equivalent: Equivalent) -> list[int | None]:
    """Return the cluster of each answer, 0 for the one of the most frequent answer; None abstains.

    Equivalence of mathematical answers is neither symmetric nor transitive in practice, so the result must not depend
    on who asks whom first. Distinct answers are taken from the most to the least frequent, equally frequent ones by
    their text; each joins the first cluster whose representative, the answer that opened it, agrees with it in both
    directions. The order of the samples plays no part, and neither does the gold answer. `equivalent` is asked about
    distinct answers only: at most twice for each pair of a text and a cluster.
    """
    opened: list[str] = []
    joined: dict[str, int] = {}
    for text in _by_frequency(answers):
        agreeing = (at for at, other in enumerate(opened) if equivalent(other, text) and equivalent(text, other))
        joined[text] = next(agreeing, len(opened))
        if joined[text] == len(opened):
            opened.append(text)
    return [None if answer is None else joined[answer] for answer in answers]


def representatives(answers: Sequence[str | None], clusters: Sequence[int | None]) -> list[str]:
    """Return the answer that each cluster stands for: its most frequent text, the first in text order among equals."""
    cluster_of = dict(zip(answers, clusters, strict=True))
    first: dict[int, str] = {}
    for text in _by_frequency(answers):
        number = cluster_of[text]
        assert number is not None, "only None may abstain"
        first.setdefault(number, text)
    return [first[number] for number in sorted(first)]


def _by_frequency(answers: Sequence[str | None]) -> list[str]:
    counts = Counter(answer for answer in answers if answer is not None)
    return sorted(counts, key=lambda text: (-counts[text], text))


# ---- pass@k and majority@k


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the chance that k of n samples, `correct` of them right, hold a right one: 1 - C(n-c, k) / C(n, k)."""
    if not 0 <= correct <= n:
        raise ValueError(f"correct: must be from 0 to n = {n}, got {correct}")
    _require_subset(n, k)
    every = math.comb(n, k)
    # integers of any size; subtracted before the one rounding, so that small chances keep their digits
    return (every - math.comb(n - correct, k)) / every


@functools.lru_cache(maxsize=16_384)
def pass_curve(correct: int, n: int) -> Array:
    """Return pass@k for k = 1 to n."""
    curve = np.array([pass_at_k(n, correct, k) for k in range(1, n + 1)])
    curve.setflags(write=False)  # it is cached
    return curve


def majority_at_k(clusters: Sequence[int | None], k: int, *, correct: Mapping[int, bool]) -> float:
    """Return the chance that the vote of k of these samples elects a correct cluster.

    Args:
        clusters: what each sample votes for, as `cluster` gives it; None abstains.
        correct: whether the answer of each cluster is right.

    A tie scores the share of correct clusters among the tied ones; where all abstain, the score is 0. Clusters are
    those of all n samples: a subset is not clustered anew.
    """
    votes = Counter(number for number in clusters if number is not None)
    if unknown := sorted(votes.keys() - correct.keys()):
        raise ValueError(f"correct: must say whether each cluster is right, {unknown[0]} is missing")
    _require_subset(len(clusters), k)
    right = sorted(size for number, size in votes.items() if correct[number])
    wrong = sorted(size for number, size in votes.items() if not correct[number])
    return float(majority_curve(tuple(right), tuple(wrong), len(clusters))[k - 1])


@functools.lru_cache(maxsize=16_384)
def majority_curve(right: tuple[int, ...], wrong: tuple[int, ...], n: int) -> Array:
    """Return majority@k for k = 1 to n, from the sizes of the right and the wrong clusters; the other samples abstain.

    The winners' number of votes, `top`, is fixed in turn. `ways[k, j]` counts the k-subsets in which no cluster has
    more votes and j clusters have as many; `credit[k, j]` adds up the right ones among those j. Both grow by one
    cluster at a time. All terms are positive, so float64 keeps 13 digits or more.
    """
    if n > MOST_SAMPLES:
        raise ValueError(f"n: majority votes are counted for up to {MOST_SAMPLES} samples a problem, got {n}")
    abstaining = n - sum(right) - sum(wrong)
    if abstaining < 0 or min(right + wrong, default=1) < 1:
        raise ValueError(f"clusters: sizes must be 1 or more and add up to at most n = {n}, got {right + wrong}")
    won = np.zeros(n + 1)
    for top in range(1, max(right + wrong, default=0) + 1):
        most_tied = sum(size >= top for size in right + wrong)
        ways, credit = np.zeros((n + 1, most_tied + 1)), np.zeros((n + 1, most_tied + 1))
        ways[0, 0] = 1
        for size, is_right in [(s, True) for s in right] + [(s, False) for s in wrong]:
            credit = _with_cluster(credit, size, top)
            if is_right and size >= top:
                credit[top:, 1:] += math.comb(size, top) * ways[: n + 1 - top, :-1]
            ways = _with_cluster(ways, size, top)
        won += (credit[:, 1:] / np.arange(1, most_tied + 1)).sum(axis=1)
    won = _with_cluster(won[:, None], abstaining, abstaining + 1)[:, 0]
    # rounding may end a little above 1
    curve: Array = np.minimum(won[1:] / [float(math.comb(n, k)) for k in range(1, n + 1)], 1.0)
    curve.setflags(write=False)  # it is cached
    return curve


def _with_cluster(ways: Array, size: int, top: int) -> Array:
    """Let `size` more samples join each k-subset with up to `top` votes; `top` of them make one more winner."""
    grown = ways.copy()
    for votes in range(1, min(size, top - 1) + 1):
        grown[votes:] += math.comb(size, votes) * ways[:-votes]
    if size >= top:
        grown[top:, 1:] += math.comb(size, top) * ways[:-top, :-1]
    return grown


def _require_subset(n: int, k: int) -> None:
    if n < 1:
        raise ValueError(f"n: must be 1 sample or more, got {n}")
    if not 1 <= k <= n:
        raise ValueError(f"k: must be from 1 to n = {n}, got {k}")


# ---- one problem


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One graded answer of a model."""

    problem: str  # id of the problem within its benchmark
    sample: int
    correct: bool
    status: str  # how it was graded: correct, wrong, no_answer, truncated, timeout, unparsable
    answer: str | None  # what was extracted from the response; None abstains from the vote
    tokens: int
    truncated: bool  # whether generation ended at the length limit
    greedy: bool = False  # decoded greedily: reported on its own, never mixed with the samples
    temperature: float | None = None  # of a further temperature: likewise


@dataclass(frozen=True, slots=True)
class ProblemScore:
    """Counts over the samples of one problem; greedy decoding apart."""

    problem: str
    samples: int
    correct: int
    right: tuple[int, ...]  # sizes of the answer clusters that are correct
    wrong: tuple[int, ...]  # sizes of the others
    no_answer: int
    """Samples without an answer, whatever the reason; those cut off before they answered are among them."""
    truncated: int
    tokens: int  # sum over all samples
    greedy: bool | None  # whether greedy decoding was correct; None where it was not run
    mixed: bool  # whether some cluster holds answers with different grades
    samples_at: int = 0  # at each of the further temperatures
    correct_at: dict[float, int] = field(default_factory=dict)


def summarize(problem: str, results: Sequence[SampleResult], clusters: Sequence[int | None]) -> ProblemScore:
    """Count the answers of a problem; each cluster of the samples is graded by its representative.

    The vote elects an answer, and that answer is the representative: the most frequent text of the winning cluster. Its
    grade decides, also where other members were graded differently, as happens because the grader's equivalence is not
    transitive; `mixed` reports that, and only then can majority@1 differ from the average. Equal texts graded
    differently (a timeout) count as correct where one of them was.
    """
    sampled, greedy, further = parted(results)
    answers = [sample.answer for sample in sampled]
    correct_texts = {sample.answer for sample in sampled if sample.correct}
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for number, text in enumerate(representatives(answers, clusters)):
        sizes[text in correct_texts].append(clusters.count(number))
    graded = {(number, sample.correct) for number, sample in zip(clusters, sampled, strict=True)}
    return ProblemScore(
        problem=problem,
        samples=len(sampled),
        correct=sum(sample.correct for sample in sampled),
        right=tuple(sorted(sizes[True])),
        wrong=tuple(sorted(sizes[False])),
        no_answer=answers.count(None),
        truncated=sum(sample.truncated for sample in sampled),
        tokens=sum(sample.tokens for sample in sampled),
        greedy=None if greedy is None else greedy.correct,
        mixed=len(graded) > len({number for number, _ in graded}),
        samples_at=min(map(len, further.values()), default=0),
        correct_at={at: sum(sample.correct for sample in drawn) for at, drawn in further.items()},
    )


def parted(
    results: Sequence[SampleResult],
) -> tuple[list[SampleResult], SampleResult | None, dict[float, list[SampleResult]]]:
    """Split the results of a problem into samples, the greedy one, and those of each further temperature."""
    further: dict[float, list[SampleResult]] = {}
    for result in results:
        if result.temperature is not None:
            further.setdefault(result.temperature, []).append(result)
    sampled = [result for result in results if result.temperature is None and not result.greedy]
    return sampled, next((result for result in results if result.greedy), None), dict(sorted(further.items()))


def metric_names(samples: int, *, greedy: bool, temperatures: Iterable[float] = ()) -> list[str]:
    """List every metric that this many samples a problem allow."""
    if not samples:
        return ["greedy"]
    votes = [f"{kind}@{k}" for kind in ("pass", "majority") for k in range(1, samples + 1)]
    further = [f"T={temperature:g}" for temperature in temperatures]
    return [
        "average",
        "all_right",
        *votes,
        *(["greedy"] if greedy else []),
        *further,
        "no_answer",
        "truncated",
        "tokens",
    ]


def metric_bounds(metric: str) -> Bounds:
    """Return the values that a metric can take; lengths have no end."""
    return (0.0, math.inf if metric == "tokens" else 1.0)


def difference_bounds(metric: str) -> Bounds:
    """Return the values that a difference of two runs can take."""
    _, most = metric_bounds(metric)
    return (-most, most)


def metric_values(problems: Sequence[ProblemScore], metric: str) -> Array:
    """Return the metric of each problem, in order."""
    samples = min(problem.samples for problem in problems)
    greedy = all(problem.greedy is not None for problem in problems)
    names_at = {f"T={temperature:g}": temperature for temperature in problems[0].correct_at}
    at_k = re.fullmatch(r"(pass|majority)@([1-9][0-9]{0,5})", metric, re.ASCII)
    if at_k and int(at_k[2]) <= samples:
        curves = [
            pass_curve(p.correct, p.samples) if at_k[1] == "pass" else majority_curve(p.right, p.wrong, p.samples)
            for p in problems
        ]
        return np.array([curve[int(at_k[2]) - 1] for curve in curves])
    if metric.startswith("T=") and metric in names_at:
        return np.array([problem.correct_at[names_at[metric]] / problem.samples_at for problem in problems])
    if metric == "all_right" and samples:
        return np.array([float(problem.correct == problem.samples) for problem in problems])
    if metric == "greedy" and greedy:
        return np.array([float(problem.greedy or 0) for problem in problems])
    counts = {"average": "correct", "no_answer": "no_answer", "truncated": "truncated", "tokens": "tokens"}
    if metric in counts and samples:
        return np.array([getattr(problem, counts[metric]) / problem.samples for problem in problems])
    known = [
        *((f"average, pass@1 to pass@{samples}, majority@1 to majority@{samples}",) if samples else ()),
        *(("greedy",) if greedy else ()),
        *names_at,
        *(("all_right, no_answer, truncated, tokens",) if samples else ()),
    ]
    without = "" if greedy else " and no greedy decoding"
    problem = f"no {metric!r} with {samples} samples a problem{without}"
    raise UsageError(problem, field="metric", hint=f"known: {', '.join(known)}")
