"""What the samples of one problem came to: counts from which every metric follows.

One line of `scores.json` for a problem with 8 samples: 5 correct ones that agree, 2 that agree on a wrong answer,
1 that was cut off before it answered.

    {"problem": "gsm8k/17", "samples": 8, "correct": 5, "right": [5], "wrong": [2], "no_answer": 1, "truncated": 1,
     "tokens": 1604, "greedy": true, "mixed": false}

Metrics, by name: average, pass@k and majority@k for k up to the number of samples, greedy, no_answer, truncated (shares
of the samples), tokens (mean length).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimsft.scoring.bootstrap import Array, Bounds
from trimsft.scoring.clusters import cluster, representatives
from trimsft.scoring.subsets import majority_curve, pass_curve

Equivalent = Callable[[str, str], bool]


@dataclass(frozen=True)
class SampleResult:
    """One graded answer of a model."""

    problem: str
    """Id of the problem within its benchmark."""
    sample: int
    correct: bool
    status: str
    """Of the grade: correct, wrong, no_answer, truncated, timeout, unparsable."""
    answer: str | None
    """What was extracted from the response; None abstains from the vote."""
    tokens: int
    truncated: bool
    """Whether generation ended at the length limit."""
    greedy: bool = False
    """Decoded greedily: reported on its own, never mixed with the samples."""


@dataclass(frozen=True)
class ProblemScore:
    """Counts over the samples of one problem; greedy decoding apart."""

    problem: str
    samples: int
    correct: int
    right: tuple[int, ...]
    """Sizes of the answer clusters that are correct."""
    wrong: tuple[int, ...]
    """Sizes of the others."""
    no_answer: int
    """Samples without an answer, whatever the reason; those cut off before they answered are among them."""
    truncated: int
    tokens: int
    """Of all samples together."""
    greedy: bool | None
    """Whether greedy decoding was correct; None where it was not run."""
    mixed: bool
    """Whether some cluster holds answers with different grades."""

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "right": list(self.right), "wrong": list(self.wrong)}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> ProblemScore:
        return cls(**{**record, "right": tuple(record["right"]), "wrong": tuple(record["wrong"])})


def summarize(
    problem: str, sampled: Sequence[SampleResult], greedy: SampleResult | None, equivalent: Equivalent
) -> ProblemScore:
    """Cluster the answers, then grade each cluster by its representative.

    The vote elects an answer, and that answer is the representative: the most frequent text of the winning cluster. Its
    grade decides, also where other members were graded differently, as happens because the grader's equivalence is not
    transitive; `mixed` reports that, and only then can majority@1 differ from the average. Equal texts graded
    differently (a timeout) count as correct where one of them was.
    """
    answers = [sample.answer for sample in sampled]
    clusters = cluster(answers, equivalent)
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
    )


def metric_names(samples: int, *, greedy: bool) -> list[str]:
    """Every metric that this many samples a problem allow."""
    if not samples:
        return ["greedy"]
    ks = range(1, samples + 1)
    votes = [f"{kind}@{k}" for kind in ("pass", "majority") for k in ks]
    return ["average", *votes, *(["greedy"] if greedy else []), "no_answer", "truncated", "tokens"]


def metric_bounds(metric: str) -> Bounds | None:
    """The values a metric can take; None for lengths, which have no end."""
    return None if metric == "tokens" else (0.0, 1.0)


def metric_values(problems: Sequence[ProblemScore], metric: str) -> Array:
    """The metric of each problem, in order."""
    at_k = re.fullmatch(r"(pass|majority)@([1-9][0-9]{0,5})", metric, re.ASCII)
    if at_k and int(at_k[2]) <= min(problem.samples for problem in problems):
        return np.array([_curve(problem, at_k[1])[int(at_k[2]) - 1] for problem in problems])
    if metric == "greedy" and all(problem.greedy is not None for problem in problems):
        return np.array([float(problem.greedy or 0) for problem in problems])
    counts = {"average": "correct", "no_answer": "no_answer", "truncated": "truncated", "tokens": "tokens"}
    if metric in counts and all(problem.samples for problem in problems):
        return np.array([getattr(problem, counts[metric]) / problem.samples for problem in problems])
    samples = min(problem.samples for problem in problems)
    greedy = all(problem.greedy is not None for problem in problems)
    known = [
        *((f"average, pass@1 to pass@{samples}, majority@1 to majority@{samples}",) if samples else ()),
        *(("greedy",) if greedy else ()),
        *(("no_answer, truncated, tokens",) if samples else ()),
    ]
    raise ValueError(
        f"metric: no {metric!r} with {samples} samples a problem{'' if greedy else ' and no greedy decoding'}; known: "
        f"{', '.join(known)}"
    )


def _curve(problem: ProblemScore, kind: str) -> Array:
    if kind == "pass":
        return pass_curve(problem.correct, problem.samples)
    return majority_curve(problem.right, problem.wrong, problem.samples)
