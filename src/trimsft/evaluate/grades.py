"""From recorded texts to scores: grade every sample, cluster the votes, write `grades.jsonl` and `scores.json`.

Both files are made from `samples.jsonl` and `problems.jsonl` alone and may be made again at any time. A grade:

    {"problem": "test/algebra/1.json", "sample": 0, "status": "correct", "answer": "\\\\frac{1}{2}",
     "cluster": 0, "temperature": null}

`cluster` says which samples of a problem voted together; null where one abstains, is the greedy one, or of a further
temperature. `scores.json` says by the fingerprints of both what it was made of: nothing is graded where nothing is new.
"""

import hashlib
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path

from trimsft.errors import RunError
from trimsft.evaluate.metrics import SampleResult, cluster, parted, summarize
from trimsft.evaluate.problems import Problem, describe_gradings, grading_fingerprint
from trimsft.evaluate.samples import Sample, SampleRecord
from trimsft.evaluate.scores import BenchmarkScore, GradedBy, Recorded, read_scores, score_counts, write_scores
from trimsft.grading import Grader
from trimsft.runs.files import written_beside

GRADES = "grades.jsonl"
AT_ONCE = 4096  # samples that are graded together, and whose texts are in memory
log = logging.getLogger("trimsft")


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
        _scored_before(record)  # or refuse
        record.change_grading(graded_as)
        settings, wanted = record.settings(), record.wanted()
        record.require_complete(wanted)
        problems = {problem.id: problem for problem in record.problems()}
        by_problem: dict[str, list[SampleResult]] = {name: [] for name in problems}
        alike = _Alike()
        samples = (sample for sample in record if sample.key in wanted)
        for result in _graded(map(alike.look, samples), problems, grader):
            by_problem[result.problem].append(result)

        scored, statuses = [], Counter[str]()
        with written_beside(record.folder / GRADES) as beside, open(beside, "wb") as file:
            for name, results in by_problem.items():
                results.sort(key=lambda one: (one.temperature is not None, one.temperature, one.sample))
                sampled, _, _ = parted(results)
                answers = [result.answer for result in sampled]
                votes = cluster(answers, partial(grader.equivalent, rules=problems[name].rules))
                vote_of = dict(zip(map(id, sampled), votes, strict=True))
                scored.append(summarize(name, results, votes))
                statuses.update(result.status for result in sampled)
                for one in results:
                    vote = vote_of.get(id(one))
                    line = GradeLine(name, one.sample, one.status, one.answer, vote, one.temperature)
                    file.write((json.dumps(asdict(line)) + "\n").encode())

        size = record.samples_path.stat().st_size
        temperature = float(settings["sampling"]["temperature"])
        scored.sort(key=attrgetter("problem"))
        scores = score_counts(settings["benchmark"], scored, statuses, temperature=temperature)
        if note := alike.note():
            log.warning(f"{scores.benchmark}: {note}")
        graded_by = GradedBy(
            kind=grader.name,
            version=grader.version,
            ignored_rules=tuple(sorted(grader.ignored_rules)),
            grading=describe_gradings(problems.values()) if grader.uses_rules else "",
            notes=(note,) if note else (),
            problems_sha256=grading_fingerprint(problems.values()),
            samples_bytes=size,
            samples_sha256=_sha256(record.samples_path, size),
        )
        write_scores(record.folder, scores, graded_by)
        return scores


def scores_as_recorded(record: SampleRecord, kind: str, version: str) -> BenchmarkScore | None:
    """Return the scores of a record in which nothing has changed since they were made; None where something has."""
    before = _scored_before(record)
    if before is None:
        return None
    scores, grader = before
    is_same = (
        (grader.kind, grader.version) == (kind, version)
        and grader.problems_sha256 == grading_fingerprint(record.problems())
        and grader.samples_bytes == record.samples_path.stat().st_size
    )
    return scores if is_same else None


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
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while size > 0 and (block := file.read(min(size, 2**20))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def _graded(samples: Iterator[Sample], problems: Mapping[str, Problem], grader: Grader) -> Iterator[SampleResult]:
    rules = {name: problem.rules for name, problem in problems.items()}
    while batch := list(islice(samples, AT_ONCE)):
        items = [(s.text, problems[s.problem].answer, rules[s.problem], s.truncated) for s in batch]
        for sample, grade in zip(batch, grader.grade_many(items), strict=True):
            yield SampleResult(
                problem=problems[sample.problem].id,  # one text for all samples of a problem
                sample=sample.sample,
                correct=grade.status == "correct",
                status=sys.intern(grade.status),
                answer=grade.answer,
                tokens=sample.tokens,
                truncated=sample.truncated,
                greedy=sample.greedy,
                temperature=sample.temperature,
            )


class _Alike:
    """Notices samples that look as if none was drawn."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._drawn, self._differ = 0, False

    def look(self, sample: Sample) -> Sample:
        if not sample.greedy and sample.temperature is None:
            self._drawn += 1
            text = hash(sample.text)
            self._differ |= self._first.setdefault(sample.problem, text) != text
        return sample

    def note(self) -> str | None:
        """Return what is to be said where all samples of every problem are the same text."""
        problems = len(self._first)
        if self._differ or problems < 2 or self._drawn < 2 * problems:
            return None
        return (
            f"all {self._drawn // problems} samples of each of the {problems:,} problems are the same text: either "
            "the model is sure of every word, or what generated them does not sample"
        )
