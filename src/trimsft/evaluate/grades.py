"""From recorded texts to scores: grade every sample, cluster the votes, write `grades.jsonl` and `scores.json`.

Both files are made from `samples.jsonl` and `problems.jsonl` alone and may be made again at any time. A grade:

    {"problem": "test/algebra/1.json", "sample": 0, "status": "correct", "answer": "\\\\frac{1}{2}",
     "cluster": 0, "temperature": null}

`cluster` says which samples of a problem voted together; null where one abstains or is the greedy one. `graded.json`
says what the two were made of, so that only what is new is graded, and nothing where nothing is:

    {"kind": "strict", "version": "7", "ignored_rules": [], "problems": 500, "problems_sha256": "0f3c...",
     "samples_bytes": 9241022, "samples_sha256": "77ab...", "grades_sha256": "...", "scores_sha256": "..."}
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path

from trimsft.errors import RunError
from trimsft.evaluate.metrics import SampleResult, cluster, parted, summarize
from trimsft.evaluate.problems import Problem, describe_gradings, grading_fingerprint
from trimsft.evaluate.samples import Key, Sample, SampleRecord
from trimsft.evaluate.scores import SCORES, BenchmarkScore, GradedBy, read_scores, score_counts, write_scores
from trimsft.grading import Grader
from trimsft.runs import JsonLines, write_whole
from trimsft.runs.files import written_beside
from trimsft.runs.parsing import checked, read_json

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
        record.change_grading(graded_as)
        problems, keys = {problem.id: problem for problem in record.problems()}, record.wanted()
        record.require_complete(keys)
        before = _Made.read(record.folder)
        kept = before.grades(record, grader) if before else {}
        grader.ignored_rules |= set(before.ignored_rules) if before and kept else set()
        results, note = _results(record, keys, kept, problems, grader)
        scored, statuses = [], Counter[str]()
        with written_beside(record.folder / GRADES) as beside, open(beside, "wb") as file:
            for name, of_problem in results.items():
                sampled, _, _ = parted(of_problem)
                equivalent = partial(grader.equivalent, rules=problems[name].rules)
                votes = cluster([result.answer for result in sampled], equivalent)
                scored.append(summarize(name, of_problem, votes))
                statuses.update(result.status for result in sampled)
                vote_of = dict(zip((sample.sample for sample in sampled), votes, strict=True))
                for result in of_problem:
                    vote = vote_of.get(result.sample) if result.temperature is None else None
                    line = GradeLine(
                        result.problem, result.sample, result.status, result.answer, vote, result.temperature
                    )
                    file.write((json.dumps(asdict(line)) + "\n").encode())
        settings = record.settings()
        name = settings["benchmark"]
        scored.sort(key=attrgetter("problem"))
        scores = score_counts(name, scored, statuses, temperature=float(settings["sampling"]["temperature"]))
        if note:
            log.warning(f"{name}: {note}")
        grading = describe_gradings(problems.values()) if grader.uses_rules else ""
        ignored = tuple(sorted(grader.ignored_rules))
        notes = (note,) if note else ()
        write_scores(record.folder, scores, GradedBy(grader.name, grader.version, ignored, grading, notes))
        made = _Made.of(record, grader.name, grader.version, ignored)
        write_whole(record.folder / "graded.json", (json.dumps(asdict(made), indent=1) + "\n").encode())
        return scores


def scores_as_recorded(record: SampleRecord, kind: str, version: str) -> BenchmarkScore | None:
    """Return the scores of a record in which nothing has changed since they were made; None where something has."""
    made = _Made.read(record.folder)
    if made is None or made != _Made.of(record, kind, version, made.ignored_rules):
        return None
    return read_scores(record.folder).scores


def _results(
    record: SampleRecord,
    keys: Collection[Key],
    kept: Mapping[Key, GradeLine],
    problems: Mapping[str, Problem],
    grader: Grader,
) -> tuple[dict[str, list[SampleResult]], str | None]:
    """Return the graded answers of each problem, and a note where the samples look as if none was drawn."""
    by_problem: dict[str, list[SampleResult]] = {name: [] for name in problems}
    rules = {name: problem.rules for name, problem in problems.items()}
    first: dict[str, int] = {}
    drawn, differ = 0, False

    def wanted() -> Iterator[Sample]:
        nonlocal drawn, differ
        for sample in record:
            if sample.key in keys:
                if not sample.greedy and sample.temperature is None:
                    drawn += 1
                    differ |= first.setdefault(sample.problem, hash(sample.text)) != hash(sample.text)
                yield sample

    samples = wanted()
    while batch := list(islice(samples, AT_ONCE)):
        new = [sample for sample in batch if sample.key not in kept]
        items = [(s.text, problems[s.problem].answer, rules[s.problem], s.truncated) for s in new]
        grades = dict(zip((sample.key for sample in new), grader.grade_many(items), strict=True))
        for sample in batch:
            grade = grades.get(sample.key) or kept[sample.key]
            name = problems[sample.problem].id  # one text for all samples of a problem
            is_correct, status = grade.status == "correct", sys.intern(grade.status)
            more = (sample.tokens, sample.truncated, sample.greedy, sample.temperature)
            by_problem[name].append(SampleResult(name, sample.sample, is_correct, status, grade.answer, *more))
    for of_problem in by_problem.values():
        of_problem.sort(key=lambda result: (result.temperature is not None, result.temperature, result.sample))
    if differ or len(first) < 2 or drawn < 2 * len(first):
        return by_problem, None
    return by_problem, (
        f"all {drawn // len(first)} samples of each of the {len(first):,} problems are the same text: either "
        "the model is sure of every word, or what generated them does not sample"
    )


@dataclass(frozen=True)
class _Made:
    """`graded.json`: the grader, and what it has read and written, by fingerprints."""

    kind: str  # strict, qwen, or the name of the user's own scorer
    version: str
    ignored_rules: tuple[str, ...]
    problems: int
    problems_sha256: str
    samples_bytes: int
    samples_sha256: str
    grades_sha256: str
    scores_sha256: str

    @classmethod
    def read(cls, folder: Path) -> _Made | None:
        """Return None where there is none that can be read: then all is graded again."""
        try:
            return read_json(folder / "graded.json", cls)
        except (OSError, RunError):
            return None

    @classmethod
    def of(cls, record: SampleRecord, kind: str, version: str, ignored_rules: Sequence[str]) -> _Made:
        """Describe what is in the folder now."""
        problems, samples = record.problems(), record.samples_path
        return cls(
            kind=kind,
            version=version,
            ignored_rules=tuple(ignored_rules),
            problems=len(problems),
            problems_sha256=grading_fingerprint(problems),
            samples_bytes=samples.stat().st_size if samples.exists() else 0,
            samples_sha256=_sha256(samples),
            grades_sha256=_sha256(record.folder / GRADES),
            scores_sha256=_sha256(record.folder / SCORES),
        )

    def grades(self, record: SampleRecord, grader: Grader) -> dict[Key, GradeLine]:
        """Return the grades that still hold; none where grader or their file is another. Samples must be the same."""
        if _sha256(record.samples_path, self.samples_bytes) != self.samples_sha256:
            raise RunError(
                f"{record.samples_path}: has changed since it was graded, and was only ever added to",
                hint="restore it, or remove graded.json beside it to have it graded as it is",
            )
        path = record.folder / GRADES
        is_same = (
            (self.kind, self.version) == (grader.name, grader.version)
            and grading_fingerprint(record.problems()[: self.problems]) == self.problems_sha256
            and _sha256(path) == self.grades_sha256
        )
        lines = (checked(GradeLine, line, where=str(path)) for line in (JsonLines(path) if is_same else ()))
        return {Key(grade.problem, grade.sample, grade.temperature): grade for grade in lines}


def _sha256(path: Path, most: int = 1 << 62) -> str:
    """Return the fingerprint of the first `most` bytes of a file; that of nothing where there is no file."""
    digest = hashlib.sha256()
    if path.exists():
        with open(path, "rb") as file:
            while most > 0 and (block := file.read(min(most, 2**20))):
                digest.update(block)
                most -= len(block)
    return digest.hexdigest()
