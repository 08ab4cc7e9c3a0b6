"""From recorded texts to scores: grade every sample, cluster the votes, write `grades.jsonl` and `scores.json`.

Both files are made from `samples.jsonl` and `problems.jsonl` alone and may be made again at any time. A grade:

    {"problem": "test/algebra/1.json", "sample": 0, "status": "correct", "answer": "\\\\frac{1}{2}",
     "cluster": 0}

`cluster` says which samples of a problem voted together; null where one abstains or is the greedy one.
"""

import functools
import json
from collections.abc import Mapping, Sequence

from trimsft.evaluate.benchmarks import Problem
from trimsft.evaluate.samples import Key, Sample, SampleRecord
from trimsft.grading import GRADER_VERSION, Grader, Rules
from trimsft.runs import write_whole
from trimsft.scoring.metrics import Equivalent, SampleResult, cluster
from trimsft.scoring.records import write_scores
from trimsft.scoring.scores import BenchmarkScore, score


def judge(record: SampleRecord, grader: Grader) -> BenchmarkScore:
    """Grade and score a complete record; raises `IncompleteEvaluation` where samples are missing."""
    with record.lock():  # nobody may let it grow meanwhile: the scores would be those of a part
        samples, problems = record.complete(), {problem.id: problem for problem in record.problems()}
        rules = {name: Rules(p.multiple, p.tolerance, p.absolute, p.unit) for name, p in problems.items()}
        results = _grade_samples(samples, problems, rules, grader)
        equivalents = {name: functools.partial(grader.equivalent, rules=rules[name]) for name in problems}
        votes = _votes(results, equivalents)
        lines = (
            {
                "problem": r.problem,
                "sample": s.sample,
                "status": r.status,
                "answer": r.answer,
                "cluster": votes.get(s.key),
            }
            for r, s in zip(results, samples, strict=True)
        )
        write_whole(record.folder / "grades.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
        name, by_problem = record.settings()["benchmark"], equivalents.__getitem__
        scores = score(name, results, grader.equivalent, by_problem=by_problem, expected=problems)
        how = {"kind": grader.kind, "version": GRADER_VERSION, "ignored_rules": sorted(grader.ignored_rules)}
        write_scores(record.folder, scores, how)
        return scores


def _votes(results: Sequence[SampleResult], equivalents: Mapping[str, Equivalent]) -> dict[Key, int | None]:
    """The cluster of each drawn sample; `score` makes the same ones again, from what the grader remembers."""
    drawn: dict[str, list[SampleResult]] = {}
    for result in results:
        if not result.greedy:
            drawn.setdefault(result.problem, []).append(result)
    votes: dict[Key, int | None] = {}
    for name, sampled in drawn.items():
        numbers = cluster([result.answer for result in sampled], equivalents[name])
        votes |= {Key(name, result.sample): number for result, number in zip(sampled, numbers, strict=True)}
    return votes


def _grade_samples(
    samples: Sequence[Sample], problems: Mapping[str, Problem], rules: Mapping[str, Rules], grader: Grader
) -> list[SampleResult]:
    """A graded answer for every sample, in order."""
    items = [(s.text, problems[s.problem].answer, rules[s.problem], s.truncated) for s in samples]
    return [
        SampleResult(s.problem, s.sample, grade.correct, grade.status, grade.answer, s.tokens, s.truncated, s.greedy)
        for s, grade in zip(samples, grader.grade_many(items), strict=True)
    ]
