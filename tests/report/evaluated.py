"""Evaluated run directories for the tests of the page, scored by the real code from answers written as short texts."""

import json
from pathlib import Path
from typing import Any

from tests.scoring.graded import same, samples_of
from trimsft.scoring.metrics import cluster
from trimsft.scoring.scores import score


def make_evaluated(
    folder: Path,
    benchmark: str,
    answers: dict[str, str],
    *,
    greedy: str = "1",
    text: str = "I say \\boxed{%s}.",
    problem: str = "%s?",
    clusters: bool = True,
) -> Path:
    """One word of `answers` a sample ("-" abstains); the gold is 1; 7 and 7' say the same.

    Args:
        clusters: whether the grades say who voted together, as they did not always.
    """
    where = folder / "eval" / benchmark
    where.mkdir(parents=True)
    graded = {name: samples_of(name, words, greedy=greedy) for name, words in answers.items()}
    results = [result for of_problem in graded.values() for result in of_problem]
    content = {"grader": {"kind": "strict", "version": "1"}, **score(benchmark, results, same).as_dict()}
    (where / "scores.json").write_text(json.dumps(content))
    (where / "settings.json").write_text("{}")
    samples, grades = [], []
    for name, found in graded.items():
        drawn = [result for result in found if not result.greedy]
        votes = cluster([result.answer for result in drawn], same)
        for result, vote in zip(found, [*votes, None], strict=True):
            key = {"problem": name, "sample": -1 if result.greedy else result.sample}
            written = text % result.answer if "%s" in text else text
            samples.append({**key, "text": written, "tokens": result.tokens})
            grade = {**key, "status": result.status, "answer": result.answer}
            grades.append(grade | ({"cluster": vote} if clusters else {}))
    _lines(where / "samples.jsonl", samples[::-1])
    _lines(where / "grades.jsonl", grades)
    _lines(where / "problems.jsonl", [{"id": name, "problem": problem % name, "answer": "1"} for name in answers])
    return folder


def _lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
