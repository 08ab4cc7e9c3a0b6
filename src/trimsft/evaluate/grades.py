"""From recorded texts to scores: grade every sample, cluster the votes, write `grades.jsonl` and `scores.json`.

Both files may be made again at any time. `scores.json` says by whom, how and of which texts it was made: nothing is
graded where nothing is new.
"""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter

from trimsft.errors import RunError
from trimsft.evaluate.benchmarks import Problem
from trimsft.evaluate.metrics import GradeLine, summarize
from trimsft.evaluate.samples import SampleRecord
from trimsft.evaluate.scores import BenchmarkScore, GradedBy, read_scores, score_counts, write_scores
from trimsft.grading import Grader, Grading
from trimsft.runs.files import written_beside

GRADES = "grades.jsonl"


def grade_record(record: SampleRecord, grader: Grader, problems: Sequence[Problem], grading: Grading) -> BenchmarkScore:
    """Grade and score a complete record of these problems; raises `IncompleteEvaluation` where samples are missing."""
    with record.lock():  # it may not grow meanwhile: the scores would be those of a part
        protocol = record.protocol()
        wanted = protocol.keys(problems)
        record.require_complete(wanted)
        content = hashlib.sha256(record.problems_path.read_bytes())
        content.update(record.samples_path.read_bytes())
        by = GradedBy(
            kind=grader.name,
            version=grader.version,
            grading=str(grading) if grader.uses_rules and grading != Grading() else "",
            made_of=content.hexdigest(),
        )
        with contextlib.suppress(RunError):  # there are no scores, or they are damaged: then all is graded again
            before = read_scores(record.folder)
            if asdict(by) == asdict(before.grader) | {"ignored_rules": ()}:
                return before
        rules = {one.id: replace(one.rules, grading=grading) for one in problems}
        golds, results = {one.id: one.answer for one in problems}, {one.id: list[GradeLine]() for one in problems}
        for one in (one for one in record if one.key in wanted):
            is_cut = one.finish == "length"
            grade = grader.grade(one.text, golds[one.problem], rules[one.problem], truncated=is_cut)
            how = {"temperature": one.temperature, "tokens": one.tokens, "truncated": is_cut}
            line = GradeLine(one.problem, one.sample, grade.status, grade.answer, **how)
            results[one.problem].append(line)
        counts, statuses = [], Counter[str]()
        with written_beside(record.folder / GRADES) as beside, open(beside, "wb") as file:
            for name, lines in results.items():
                lines.sort(key=lambda one: (one.temperature is not None, one.temperature, one.sample))
                score, voted = summarize(name, lines, partial(grader.equivalent, rules=rules[name]))
                counts.append(score)
                statuses.update(one.status for one in voted if one.votes)
                file.writelines((json.dumps(asdict(one)) + "\n").encode() for one in voted)
        by = replace(by, ignored_rules=tuple(sorted(grader.ignored_rules)))  # known once all is graded
        counts.sort(key=attrgetter("problem"))
        temperature = float(protocol.sampling["temperature"])
        scores = score_counts(protocol.benchmark, counts, statuses, grader=by, temperature=temperature)
        write_scores(record.folder, scores)
        return scores
