"""`scores.json`, the last file of an evaluation: a benchmark's scores and the grader that gave them.

{"format": 2, "grader": {"kind": "strict", "version": "6", "ignored_rules": []}, "benchmark": "math500",
 "problems": 500, "average": {"value": 0.61, "low": 0.57, "high": 0.65}, ..., "per_problem": [...]}

Format 1, which has no such field, holds intervals of an earlier kind: they are made anew from the counts of problems.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.evaluate.metrics import MOST_SAMPLES, ProblemScore
from trimsft.evaluate.scores import BenchmarkScore, score_counts
from trimsft.intervals import Interval
from trimsft.runs import RunDirectory, write_whole
from trimsft.runs.parsing import read_json

SCORES = "scores.json"
FORMAT = 2
AGAIN = "it is damaged or of another version: make it again with trimsft eval, which generates nothing anew"


@dataclass(frozen=True)
class GradedBy:
    """The grader of a benchmark; scores by different ones do not compare."""

    kind: str
    version: str
    ignored_rules: tuple[str, ...] = ()
    grading: str = ""  # how answers are found and compared, where that is not boxed mathematics
    notes: tuple[str, ...] = field(default=(), compare=False)  # what struck it, such as samples that are all alike

    def __str__(self) -> str:
        without = f" without {', '.join(self.ignored_rules)}" if self.ignored_rules else ""
        return f"{self.kind} {self.version}{without}"


@dataclass(frozen=True, kw_only=True)
class _File(BenchmarkScore):
    """What the file holds."""

    grader: GradedBy
    format: int = 1


@dataclass(frozen=True)
class Recorded:
    """What was read from one folder."""

    scores: BenchmarkScore
    grader: GradedBy


def write_scores(folder: Path, scores: BenchmarkScore, grader: Mapping[str, Any]) -> None:
    """Write the scores of a benchmark, and how its samples were graded, into its folder."""
    content = {"format": FORMAT, "grader": grader, **scores.as_dict()}
    write_whole(folder / SCORES, (json.dumps(content, indent=1) + "\n").encode())


def read_scores(folder: Path) -> Recorded:
    """The scores in the folder of a benchmark, with the grader that gave them."""
    path = folder / SCORES
    try:
        file = read_json(path, _File, hint=AGAIN)
    except FileNotFoundError:
        raise RunError(f"{folder}: holds no scores", hint="finish it with trimsft eval") from None
    if file.format > FORMAT:
        problem = f"{path}: was written by a newer version of trimsft (format {file.format}, here {FORMAT})"
        raise RunError(problem, hint="read it with that version")
    if wrong := _impossible(file) if file.benchmark == folder.name else f"these are scores of {file.benchmark!r}":
        raise RunError(f"{path}: {wrong}", hint=AGAIN)
    problems = tuple(sorted(file.per_problem, key=lambda problem: problem.problem))
    if file.format < FORMAT:
        return Recorded(score_counts(file.benchmark, problems, file.statuses), file.grader)
    recorded = {one.name: getattr(file, one.name) for one in fields(BenchmarkScore)}
    return Recorded(BenchmarkScore(**recorded | {"per_problem": problems}), file.grader)


def _impossible(file: BenchmarkScore) -> str | None:
    """What no evaluation could have written; None where all is possible."""
    names = [problem.problem for problem in file.per_problem]
    if not names or len(names) != file.problems or len(set(names)) < len(names):
        return f"problems is {file.problems}, but it counts {len(set(names))} of them"
    if not 0 <= file.samples <= MOST_SAMPLES:
        return f"samples must be from 0 to {MOST_SAMPLES}, got {file.samples}"
    decoded = file.per_problem[0].greedy is not None
    odd = next((one for one in file.per_problem if not _is_possible(one, file.samples, decoded)), None)
    if odd is not None:
        return f"the counts of problem {odd.problem!r} do not fit {file.samples} samples"
    if not file.samples and not decoded:
        return "it has neither samples nor greedy answers"
    ks = set(range(1, file.samples + 1))
    sampled = (file.average, file.no_answer_rate, file.truncation_rate, file.mean_tokens)
    lacks = [one is None for one in sampled] != [not file.samples] * 4 or (file.greedy is None) == decoded
    if lacks or file.pass_at.keys() != ks or file.majority_at.keys() != ks:
        return "its metrics do not fit its samples"
    shares = [file.average, file.greedy, file.no_answer_rate, file.truncation_rate]
    shares += [*file.pass_at.values(), *file.majority_at.values()]
    shares += [one for by in file.groups.values() for group in by.values() for one in (group.average, group.greedy)]
    if not all(_is_between(one, 1 + 1e-9) for one in shares) or not _is_between(file.mean_tokens, 2.0**63):
        return "an interval does not hold its value, or is out of range"
    return None


def _is_between(interval: Interval | None, most: float) -> bool:
    return interval is None or 0 <= interval.low <= interval.value <= interval.high <= most


def _is_possible(problem: ProblemScore, samples: int, decoded: bool) -> bool:
    sizes = (*problem.right, *problem.wrong)
    counts = (problem.correct, problem.no_answer, problem.truncated)
    return (
        problem.samples == samples
        and all(0 <= count <= samples for count in counts)
        and min(sizes, default=1) >= 1
        and sum(sizes) + problem.no_answer == samples
        and 0 <= problem.tokens < 2**63
        and (problem.greedy is not None) == decoded
    )


def load_run(path: str | Path, benchmarks: Sequence[str] = ()) -> list[BenchmarkScore]:
    """The scores of a run directory, of these benchmarks or of all; refuses scores by different graders."""
    return [recorded.scores for recorded in read_run_scores(path, benchmarks)]


def read_run_scores(path: str | Path, benchmarks: Sequence[str] = ()) -> list[Recorded]:
    """The same, with the grader of all of them."""
    run = RunDirectory(path)
    if not run.eval_dir.is_dir():
        raise RunError(f"{path}: holds no evaluation", hint="make one with trimsft eval")
    evaluated = run.evaluations()
    if not evaluated:
        raise RunError(f"{path}: holds no scores", hint="finish its evaluation with trimsft eval")
    names = list(benchmarks) or evaluated
    if missing := next((name for name in names if name not in evaluated), None):
        raise RunError(f"{path}: holds no scores of {missing!r}", hint=f"it has {', '.join(evaluated)}")
    read = [read_scores(run.eval_dir / name) for name in names]
    graders = sorted({str(recorded.grader) for recorded in read})
    if len(graders) > 1:
        raise RunError(f"{path}: was graded by {' and '.join(graders)}", hint="grade it again with one of them")
    return read
