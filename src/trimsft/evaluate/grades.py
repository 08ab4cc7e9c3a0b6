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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path

from trimsft.errors import RunError
from trimsft.evaluate.metrics import SampleResult, summarize
from trimsft.evaluate.problems import Problem, describe_gradings, fingerprint
from trimsft.evaluate.samples import GREEDY, Sample, SampleRecord
from trimsft.evaluate.scores import BenchmarkScore, GradedBy, Recorded, read_scores, score_counts, write_scores
from trimsft.grading import Grader
from trimsft.runs.files import written_beside

GRADES = "grades.jsonl"
AT_ONCE = 4096  # samples that are graded together, and whose texts are in memory


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
        before = _scored_before(record)
        record.change_grading(graded_as)
        wanted = record.wanted()
        record.require_complete(wanted)
        problems = {problem.id: problem for problem in record.problems()}
        problems_sha, size = fingerprint(problems.values(), with_grading=True), record.samples_path.stat().st_size
        if before is not None:
            by = before.grader
            made_of = (by.kind, by.version, by.problems_sha256, by.samples_bytes)
            if made_of == (grader.name, grader.version, problems_sha, size):
                return before.scores
        samples = (sample for sample in record if sample.key in wanted)
        results_of = _grade(samples, problems, grader)
        scored, statuses = [], Counter[str]()
        with written_beside(record.folder / GRADES) as beside, open(beside, "wb") as file:
            for name, results in results_of.items():
                results.sort(key=lambda one: (one.temperature is not None, one.temperature, one.sample))
                counts, votes = summarize(name, results, partial(grader.equivalent, rules=problems[name].rules))
                scored.append(counts)
                statuses.update(one.status for one in results if not one.greedy and one.temperature is None)
                for one, vote in zip(results, votes, strict=True):
                    line = GradeLine(name, one.sample, one.status, one.answer, vote, one.temperature)
                    file.write((json.dumps(asdict(line)) + "\n").encode())
        scored.sort(key=attrgetter("problem"))
        protocol = record.protocol()
        temperature = float(protocol.sampling["temperature"])
        scores = score_counts(protocol.benchmark, scored, statuses, temperature=temperature)
        graded_by = GradedBy(
            kind=grader.name,
            version=grader.version,
            ignored_rules=tuple(sorted(grader.ignored_rules)),
            grading=describe_gradings(problems.values()) if grader.uses_rules else "",
            problems_sha256=problems_sha,
            samples_bytes=size,
            samples_sha256=_sha256(record.samples_path, size),
        )
        write_scores(record.folder, scores, graded_by)
        return scores


def _grade(samples: Iterator[Sample], problems: Mapping[str, Problem], grader: Grader) -> dict[str, list[SampleResult]]:
    """Return the graded samples of each problem, whose texts are not kept."""
    results: dict[str, list[SampleResult]] = {name: [] for name in problems}
    while batch := list(islice(samples, AT_ONCE)):
        items = [(s.text, problems[s.problem].answer, problems[s.problem].rules, s.finish == "length") for s in batch]
        for sample, grade in zip(batch, grader.grade_many(items), strict=True):
            results[sample.problem].append(
                SampleResult(
                    problem=problems[sample.problem].id,  # one text for all samples of a problem
                    sample=sample.sample,
                    correct=grade.status == "correct",
                    status=grade.status,
                    answer=grade.answer,
                    tokens=sample.tokens,
                    truncated=sample.finish == "length",
                    greedy=sample.sample == GREEDY,
                    temperature=sample.temperature,
                )
            )
    return results


def _scored_before(record: SampleRecord) -> Recorded | None:
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
