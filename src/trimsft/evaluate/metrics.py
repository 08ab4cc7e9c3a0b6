"""Counts over the samples of one problem, and every metric that follows from them.

Answers that say the same form a cluster; pass@k averages exactly over every way to choose k of the n samples that were
drawn.

    >>> cluster(["1/2", "0.5", None, "3", "1/2"], lambda a, b: {a, b} == {"1/2", "0.5"})
    [0, 0, None, 1, 0]
    >>> pass_at_k(n=8, correct=1, k=4)
    0.5
    >>> majority_at_k([0, 0, 1, None], k=2, correct={0: True, 1: False})  # 6 pairs: 3 won, 2 tied, 1 lost
    0.6666666666666666

Metrics are known by name, see `metric_names`; docs/evaluation.md says what they are.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimsft.errors import UsageError
from trimsft.intervals import Array, Bounds

GREEDY = -1
"""The number of the greedy sample of a problem."""

Equivalent = Callable[[str, str], bool]

# ---- which answers say the same


def cluster(answers: Sequence[str | None], equivalent: Equivalent) -> list[int | None]:
    """Return the cluster of each answer, 0 for the one of the most frequent answer; None abstains.

    Equivalence of answers is neither symmetric nor transitive in practice, so the result must not depend on the order
    of samples. Distinct answers are taken from the most to the least frequent, then by their text; each joins the first
    cluster whose first answer agrees with it in both directions.
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
    """Return the answer that each cluster stands for: its most frequent text."""
    cluster_of = dict(zip(answers, clusters, strict=True))
    first: dict[int | None, str] = {}
    for text in _by_frequency(answers):
        first.setdefault(cluster_of[text], text)
    return [first[number] for number in sorted(number for number in first if number is not None)]


def _by_frequency(answers: Sequence[str | None]) -> list[str]:
    counts = Counter(answer for answer in answers if answer is not None)
    return sorted(counts, key=lambda text: (-counts[text], text))


# ---- pass@k and majority@k


@functools.lru_cache(maxsize=16_384)
def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the chance that k of n samples, `correct` of them right, hold a right one: 1 - C(n-c, k) / C(n, k)."""
    if not (0 <= correct <= n and 1 <= k <= n):
        raise ValueError(f"n={n}, correct={correct}, k={k}: correct must be from 0 to n, and k from 1 to n")
    every = math.comb(n, k)
    # integers of any size; subtracted before the one rounding, so that small chances keep their digits
    return (every - math.comb(n - correct, k)) / every


def majority_at_k(clusters: Sequence[int | None], k: int, *, correct: Mapping[int, bool]) -> float:
    """Return the chance that the vote of k of these samples elects a correct cluster.

    Args:
        clusters: the vote of each sample, as `cluster` gives it; None abstains.
        correct: whether the answer of each cluster is right.

    A tie scores the share of correct clusters among the tied ones; where all abstain, the score is 0. Subsets are
    counted by size, votes of the winners, winners, and correct winners, which grow cluster by cluster.
    """
    if not 1 <= k <= len(clusters):
        raise ValueError(f"k: must be from 1 to n = {len(clusters)}, got {k}")
    ways = Counter({(0, 1, 0, 0): 1})
    for number, size in Counter(clusters).items():
        grown = Counter[tuple[int, int, int, int]]()
        for (votes, top, tied, right), count in ways.items():
            for more in range(min(size, k - votes) + 1):
                if number is None or more < top:
                    winners = (top, tied, right)
                else:  # it draws level with the winners so far, or beats them
                    winners = (more, 1 + tied * (more == top), correct[number] + right * (more == top))
                grown[votes + more, *winners] += count * math.comb(size, more)
        ways = grown
    won = sum(count * right / tied for (votes, _, tied, right), count in ways.items() if tied and votes == k)
    return won / math.comb(len(clusters), k)


def majority(right: Sequence[int], wrong: Sequence[int]) -> float:
    """Return whether the vote of all samples is right, from the sizes of the right and the wrong clusters.

    >>> majority((3, 2), (3,)), majority((), ())  # a tie scores the share of right clusters
    (0.5, 0.0)
    """
    top = max((*right, *wrong), default=0)
    return right.count(top) / ((*right, *wrong).count(top) or 1)


# ---- one problem


@dataclass(frozen=True, slots=True)
class GradeLine:
    """One graded answer of a model: a line of grades.jsonl."""

    problem: str  # id of the problem within its benchmark
    sample: int
    status: str  # how it was graded: correct, wrong, no_answer, truncated, timeout, unparsable
    answer: str | None  # what was extracted from the response; None abstains from the vote
    cluster: int | None = None
    """Samples of a problem with the same one voted together; None: it abstains, is greedy, or of a further
    temperature."""
    temperature: float | None = None  # of a further one: never mixed with the samples
    tokens: int = 0
    truncated: bool = False  # whether generation ended at the length limit

    @property
    def correct(self) -> bool:
        return self.status == "correct"

    @property
    def votes(self) -> bool:
        """Return whether it is one of the samples, neither greedy nor of a further temperature."""
        return self.sample != GREEDY and self.temperature is None


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
    samples_at: int = 0  # at each of the further temperatures
    correct_at: dict[float, int] = field(default_factory=dict)


def summarize(
    problem: str, results: Sequence[GradeLine], equivalent: Equivalent
) -> tuple[ProblemScore, list[GradeLine]]:
    """Count the answers of a problem; return them with the cluster of each sample, too.

    Each cluster is graded by its most frequent text, which is the answer that the vote elects, also where others of it
    were graded differently. Equal texts graded differently (a timeout) count as correct where one of them was.
    """
    sampled = [result for result in results if result.votes]
    answers = [sample.answer for sample in sampled]
    clusters = cluster(answers, equivalent)
    correct_texts = {sample.answer for sample in sampled if sample.correct}
    sizes: dict[bool, list[int]] = {True: [], False: []}
    for number, text in enumerate(representatives(answers, clusters)):
        sizes[text in correct_texts].append(clusters.count(number))
    further = Counter(result.temperature for result in results if result.temperature is not None)
    score = ProblemScore(
        problem=problem,
        samples=len(sampled),
        correct=sum(sample.correct for sample in sampled),
        right=tuple(sorted(sizes[True])),
        wrong=tuple(sorted(sizes[False])),
        no_answer=answers.count(None),
        truncated=sum(sample.truncated for sample in sampled),
        tokens=sum(sample.tokens for sample in sampled),
        greedy=next((result.correct for result in results if result.sample == GREEDY), None),
        samples_at=min(further.values(), default=0),
        correct_at={at: sum(one.correct for one in results if one.temperature == at) for at in sorted(further)},
    )
    votes = iter(clusters)
    return score, [replace(one, cluster=next(votes)) if one.votes else one for one in results]


# ---- metrics by name


def metric_names(samples: int, *, greedy: bool, temperatures: Iterable[float] = ()) -> list[str]:
    """List every metric that this many samples a problem allow."""
    if not samples:
        return ["greedy"]
    votes = [*(f"pass@{k}" for k in range(1, samples + 1)), f"majority@{samples}"]
    further = [f"T={temperature:g}" for temperature in temperatures]
    sampled = ["average", "all_right", "diversity", "brier", *votes]
    return [*sampled, *["greedy"] * greedy, *further, "no_answer", "truncated", "tokens"]


def metric_bounds(metric: str) -> Bounds:
    """Return the values that a metric can take; lengths have no end."""
    return (0.0, math.inf if metric == "tokens" else 1.0)


def difference_bounds(metric: str) -> Bounds:
    """Return the values that a difference of two runs can take."""
    _, most = metric_bounds(metric)
    return (-most, most)


def metric_values(problems: Sequence[ProblemScore], metric: str) -> Array:
    """Return the metric of each problem, in order."""
    samples, has_greedy = min(p.samples for p in problems), all(p.greedy is not None for p in problems)
    temperatures = {f"T={at:g}": at for at in problems[0].correct_at}
    names = metric_names(samples, greedy=has_greedy, temperatures=temperatures.values())
    if metric not in names:
        votes = f", pass@1 to pass@{samples}, majority@{samples}" if samples else ""
        hint = f"known: {', '.join(name for name in names if '@' not in name)}{votes}"
        raise UsageError(f"no {metric!r} with {samples} samples a problem", field="metric", hint=hint)
    kind, _, k = metric.partition("@")

    def of(p: ProblemScore) -> float:
        if kind == "pass":
            return pass_at_k(p.samples, p.correct, int(k))
        if kind == "majority":
            return majority(p.right, p.wrong)
        if metric in temperatures:
            return p.correct_at[temperatures[metric]] / p.samples_at
        if metric == "diversity":
            shares = np.array(p.right + p.wrong) / max(1, sum(p.right + p.wrong))
            return abs(float((shares * np.log(shares)).sum())) / math.log(max(2, p.samples))
        if metric == "brier":  # of a tie what is expected
            confidence = max(p.right + p.wrong, default=0) / p.samples
            return confidence**2 + (1 - 2 * confidence) * majority(p.right, p.wrong)
        if metric in ("greedy", "all_right"):
            return float(p.greedy or 0) if metric == "greedy" else float(p.correct == p.samples)
        return float(getattr(p, "correct" if metric == "average" else metric) / p.samples)

    return np.array([of(problem) for problem in problems])
