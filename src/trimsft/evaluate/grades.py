"""From recorded texts to scores: grade every sample, cluster the votes, write `grades.jsonl` and `scores.json`.

Both files are made from `samples.jsonl` and `problems.jsonl` alone and may be made again at any time. A grade:

    {"problem": "test/algebra/1.json", "sample": 0, "status": "correct", "answer": "\\\\frac{1}{2}",
     "cluster": 0, "temperature": null}

`cluster` says which samples of a problem voted together; null where one abstains, is the greedy one, or of a further
temperature. `scores.json` says by the fingerprints of both what it was made of: nothing is graded where nothing is new.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

from trimsft.errors import RunError
from trimsft.evaluate.benchmarks import Problem, describe_gradings, fingerprint
from trimsft.evaluate.metrics import SampleResult, summarize
from trimsft.evaluate.samples import Sample, SampleRecord
from trimsft.evaluate.scores import BenchmarkScore, GradedBy, read_scores, score_counts, write_scores
from trimsft.grading import Grader
from trimsft.runs.files import written_beside

GRADES = "grades.jsonl"


@dataclass(frozen=True)
class GradeLine:
    """A line of grades.jsonl."""

    problem: str
    sample: int
    status: str
    answer: str | None
    cluster: int | None
    temperature: float | None = None


def grade_record(record: SampleRecord, grader: Grader, graded_as: Sequence[Problem] = ()) -> BenchmarkScore:
    """Grade and score a complete record; raises `IncompleteEvaluation` where samples are missing.

    `graded_as` are the same problems with another grading than the record's; from then on it is the record's.
    """
    with record.lock():  # it may not grow meanwhile: the scores would be those of a part
        before = _scores_before(record)
        record.change_grading(graded_as)
        protocol, problems = record.protocol(), {problem.id: problem for problem in record.problems()}
        wanted = protocol.keys(list(problems.values()))
        record.require_complete(wanted)
        problems_sha, size = fingerprint(problems.values(), with_grading=True), record.samples_path.stat().st_size
        if before is not None:
            by = before.grader
            made_of = (by.kind, by.version, by.problems_sha256, by.samples_bytes)
            if made_of == (grader.name, grader.version, problems_sha, size):
                return before
        results = _grade((one for one in record if one.key in wanted), problems, grader)
        counts, statuses = [], Counter[str]()
        with written_beside(record.folder / GRADES) as beside, open(beside, "wb") as file:
            for name, of_problem in results.items():
                of_problem.sort(key=lambda one: (one.temperature is not None, one.temperature, one.sample))
                score, votes = summarize(name, of_problem, partial(grader.equivalent, rules=problems[name].rules))
                counts.append(score)
                statuses.update(one.status for one in of_problem if one.votes)
                for one, vote in zip(of_problem, votes, strict=True):
                    line = GradeLine(name, one.sample, one.status, one.answer, vote, one.temperature)
                    file.write((json.dumps(asdict(line)) + "\n").encode())
        counts.sort(key=attrgetter("problem"))
        graded_by = GradedBy(
            kind=grader.name,
            version=grader.version,
            ignored_rules=tuple(sorted(grader.ignored_rules)),  # known once all is graded
            grading=describe_gradings(problems.values()) if grader.uses_rules else "",
            problems_sha256=problems_sha,
            samples_bytes=size,
            samples_sha256=_sha256(record.samples_path, size),
        )
        temperature = float(protocol.sampling["temperature"])
        scores = score_counts(protocol.benchmark, counts, statuses, grader=graded_by, temperature=temperature)
        write_scores(record.folder, scores)
        return scores


def _grade(samples: Iterable[Sample], problems: dict[str, Problem], grader: Grader) -> dict[str, list[SampleResult]]:
    """Return the graded samples of each problem, whose texts are not kept."""
    results: dict[str, list[SampleResult]] = {name: [] for name in problems}
    for one in samples:
        problem, is_cut = problems[one.problem], one.finish == "length"
        grade = grader.grade(one.text, problem.answer, problem.rules, truncated=is_cut)
        made = (one.tokens, is_cut, one.temperature)
        # the id of the problem is one text for all of its samples
        results[problem.id].append(SampleResult(problem.id, one.sample, grade.status, grade.answer, *made))
    return results


def _scores_before(record: SampleRecord) -> BenchmarkScore | None:
    """Return the scores that are there; samples that have changed since, and were not only added to, are refused."""
    try:
        before = read_scores(record.folder)
    except RunError:  # there are none, or they are damaged: then all is graded again
        return None
    if _sha256(record.samples_path, before.grader.samples_bytes) != before.grader.samples_sha256:
        raise RunError(
            f"{record.samples_path}: has changed since it was graded, and was only ever added to",
            hint="restore it, or remove scores.json beside it to have it graded as it is",
        )
    return before


def _sha256(path: Path, size: int) -> str:
    """Return the fingerprint of the first bytes of a file."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(size)).hexdigest()
