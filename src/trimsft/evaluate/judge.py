"""From recorded texts to scores: grade every sample, cluster the votes, write `grades.jsonl` and `scores.json`.

Both files are made from `samples.jsonl` and `problems.jsonl` alone and may be made again at any time. A grade:

    {"problem": "test/algebra/1.json", "sample": 0, "status": "correct", "answer": "\\\\frac{1}{2}",
     "cluster": 0}

`cluster` says which samples of a problem voted together; null where one abstains or is the greedy one. `graded.json`
says what the two were made of, so that only what is new is graded, and nothing where nothing is.
"""

import functools
import itertools
import json
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from trimsft.evaluate.graded import GRADES, Graded, GradeLine
from trimsft.evaluate.metrics import Equivalent, SampleResult, cluster
from trimsft.evaluate.problems import Problem, describe_gradings
from trimsft.evaluate.records import read_scores, write_scores
from trimsft.evaluate.samples import Key, Sample, SampleRecord
from trimsft.evaluate.scores import BenchmarkScore, score
from trimsft.grading import Grader, Rules
from trimsft.runs.files import written_beside

AT_ONCE = 4096  # samples that are graded together, and whose texts are in memory
log = logging.getLogger("trimsft")


def judge(record: SampleRecord, grader: Grader, graded_as: Sequence[Problem] = ()) -> BenchmarkScore:
    """Grade and score a complete record; raises `IncompleteEvaluation` where samples are missing.

    `graded_as` are the same problems with another grading than the record's; from then on it is the record's.
    """
    with record.lock():  # nobody may let it grow meanwhile: the scores would be those of a part
        record.change_grading(graded_as)
        problems, keys = {problem.id: problem for problem in record.problems()}, record.wanted()
        record.require_complete(keys)
        rules = {name: problem.rules for name, problem in problems.items()}
        before = Graded.read(record.folder)
        kept = before.grades(record, grader.name, grader.version) if before else {}
        grader.ignored_rules |= set(before.ignored_rules) if before and kept else set()
        results, note = _results(record, keys, kept, problems, rules, grader)
        equivalents = _equivalents(results, kept, rules, grader)
        with written_beside(record.folder / GRADES) as beside, open(beside, "wb") as file:
            file.writelines(_lines(results, equivalents))
        name, groups = record.settings()["benchmark"], _groups(problems)
        scores = score(
            name, results, grader.equivalent, by_problem=equivalents.__getitem__, expected=problems, groups=groups
        )
        ignored = sorted(grader.ignored_rules)
        how: dict[str, Any] = {"kind": grader.name, "version": grader.version, "ignored_rules": ignored}
        if grader.uses_rules and (grading := describe_gradings(problems.values())):
            how["grading"] = grading
        if note:
            log.warning(f"{name}: {note}")
            how["notes"] = [note]
        write_scores(record.folder, scores, how)
        Graded.of(record, grader.name, grader.version, ignored).write(record.folder)
        return scores


def scores_as_recorded(record: SampleRecord, kind: str, version: str) -> BenchmarkScore | None:
    """The scores of a record in which nothing has changed since they were made; None where some has to be done."""
    graded = Graded.read(record.folder)
    if graded is None or graded != Graded.of(record, kind, version, graded.ignored_rules):
        return None
    return read_scores(record.folder).scores


# ---- grades


def _results(
    record: SampleRecord,
    keys: Collection[Key],
    kept: Mapping[Key, GradeLine],
    problems: Mapping[str, Problem],
    rules: Mapping[str, Rules],
    grader: Grader,
) -> tuple[list[SampleResult], str | None]:
    """A graded answer for every sample that is asked for, in the order of the keys, and a note where the samples look
    as if none was drawn."""
    drawn = _Drawn()
    by_problem: dict[str, list[SampleResult]] = {name: [] for name in problems}

    def add(sample: Sample, status: str, answer: str | None) -> None:
        is_correct, name = status == "correct", problems[sample.problem].id  # one text for all samples of a problem
        more = (sample.tokens, sample.truncated, sample.greedy)
        result = SampleResult(name, sample.sample, is_correct, sys.intern(status), answer, *more)
        by_problem[name].append(result)

    def grade(batch: Sequence[Sample]) -> None:
        items = [(s.text, problems[s.problem].answer, rules[s.problem], s.truncated) for s in batch]
        for sample, graded in zip(batch, grader.grade_many(items), strict=True):
            add(sample, graded.status, graded.answer)

    waiting: list[Sample] = []
    for sample in record:
        if sample.key not in keys:
            continue
        drawn.add(sample)
        if before := kept.get(sample.key):
            add(sample, before.status, before.answer)
            continue
        waiting.append(sample)
        if len(waiting) == AT_ONCE:
            grade(waiting)
            waiting = []
    grade(waiting)
    in_order = (sorted(of_problem, key=attrgetter("sample")) for of_problem in by_problem.values())
    return list(itertools.chain.from_iterable(in_order)), drawn.note()


class _Drawn:
    """Whether the samples of each problem differ from each other, as drawn ones do."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._counts = 0
        self._differ = False

    def add(self, sample: Sample) -> None:
        if not sample.greedy:
            self._counts += 1
            self._differ |= self._first.setdefault(sample.problem, hash(sample.text)) != hash(sample.text)

    def note(self) -> str | None:
        """None unless several samples of several problems are all alike."""
        problems = len(self._first)
        if self._differ or problems < 2 or self._counts < 2 * problems:
            return None
        return (
            f"all {self._counts // problems} samples of each of the {problems:,} problems are the same text: either "
            "the model is sure of every word, or what generated them does not sample"
        )


# ---- votes


def _equivalents(
    results: Sequence[SampleResult], kept: Mapping[Key, GradeLine], rules: Mapping[str, Rules], grader: Grader
) -> dict[str, Equivalent]:
    """Whether two answers to a problem say the same: as they were clustered, where no sample of it is new."""
    changed = {result.problem for result in results if not result.greedy and _key(result) not in kept}
    clusters: dict[str, dict[str | None, int | None]] = {}
    for line in kept.values():
        if line.problem not in changed and line.cluster is not None:
            clusters.setdefault(line.problem, {})[line.answer] = line.cluster
    voted: dict[str, Callable[[str, str], bool]] = {
        name: functools.partial(_together, answers) for name, answers in clusters.items()
    }
    return {name: voted.get(name) or functools.partial(grader.equivalent, rules=rules[name]) for name in rules}


def _together(clusters: Mapping[str | None, int | None], a: str, b: str) -> bool:
    return clusters[a] == clusters[b]


def _lines(results: Sequence[SampleResult], equivalents: Mapping[str, Equivalent]) -> Iterator[bytes]:
    """Grades with the cluster of each drawn sample; `score` makes the same again, from what the grader remembers."""
    for name, of_problem in itertools.groupby(results, attrgetter("problem")):
        every = list(of_problem)
        votes = iter(cluster([result.answer for result in every if not result.greedy], equivalents[name]))
        for result in every:
            vote = None if result.greedy else next(votes)
            line = GradeLine(result.problem, result.sample, result.status, result.answer, vote)
            yield (json.dumps(asdict(line)) + "\n").encode()


def _key(result: SampleResult) -> Key:
    return Key(result.problem, result.sample)


def _groups(problems: Mapping[str, Problem]) -> dict[str, dict[str, str]]:
    """What the problems may be told apart by: subject and level, where the benchmark has them."""
    groups = {
        name: {problem.id: label for problem in problems.values() if (label := getattr(problem, name)) is not None}
        for name in ("subject", "level")
    }
    return {name: of_problem for name, of_problem in groups.items() if of_problem}
