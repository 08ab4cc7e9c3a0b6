"""Answers that are no boxed mathematics: how they are asked, graded, and graded again."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import DataError, RunError
from trimsft.evaluate import Evaluated
from trimsft.evaluate.benchmarks import fingerprint, load_benchmark, read_problems, write_problems
from trimsft.evaluate.engines import Request
from trimsft.report.comparison import CompareSettings, compare

from .test_run import benchmark, run_eval

__all__ = ["benchmark", "run_eval"]

GSM8K = "#### (-?[0-9.,]+)"
CHOICE = {"problem": "2+2?", "answer": 1, "choices": ["3", "4"]}
MATH = {"problem": "1+1?", "answer": "2", "choices": "no list", "grading": "os:system"}  # no file names code


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ---- what a row may say


def test_choices_are_asked_where_answers_are_letters(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", CHOICE, CHOICE | {"answer": "b"}, CHOICE | {"answer": [1, "A"]})
    problems = load_benchmark(path, letters=True)
    assert [one.answer for one in problems] == ["B", "B", ("B", "A")]
    assert {one.question for one in problems} == {"2+2?\nA. 3\nB. 4"} and problems[0].rules.choices == ("3", "4")
    plain = load_benchmark(path)  # a column of that name may be somebody else's
    assert plain[0].question == "2+2?" and plain[0].answer == "1"
    (tmp_path / "again.jsonl").write_bytes(write_problems(problems))
    assert read_problems(tmp_path / "again.jsonl") == problems
    with pytest.raises(DataError, match="line 1: 'answer' must be a letter from A to B, or the number"):
        load_benchmark(write(tmp_path / "other.jsonl", CHOICE | {"answer": "C"}), letters=True)


def test_a_row_may_have_several_right_answers(tmp_path: Path) -> None:
    rows = ({"problem": "A root?", "answer": ["2", 3.5]}, MATH | {"answer": ["2"]})
    several, one = problems = read_problems(write(tmp_path / "mine.jsonl", *rows))
    assert (several.answer, one.answer, one.choices) == (("2", "3.5"), "2", ())
    (tmp_path / "again.jsonl").write_bytes(write_problems(problems))
    assert [problem.answer for problem in read_problems(tmp_path / "again.jsonl")] == [p.answer for p in problems]
    assert fingerprint([several]) != fingerprint([replace(several, answer="2")])


# ---- from problems to scores


@pytest.mark.parametrize(
    ("options", "row", "answer", "says"),
    [
        ({"grading": "choice"}, CHOICE, "The answer is (B).", "choice"),
        ({"grading": "exact"}, {"problem": "Capital?", "answer": "Paris"}, "Paris", "exact"),
        ({"pattern": GSM8K}, {"problem": "3+3?", "answer": 6}, "So\n#### 6", f"regex {GSM8K!r}"),
        ({}, {"problem": "A root?", "answer": ["2", "3"]}, r"\boxed{3}", ""),
    ],
)
def test_how_answers_are_graded_is_said_once(
    run_eval: Callable[..., Evaluated],
    tmp_path: Path,
    options: dict[str, str],
    row: dict[str, Any],
    answer: str,
    says: str,
) -> None:
    prompts = []

    def keep(request: Request) -> str:
        prompts.append(request.prompt)
        return answer if request.sampling.is_greedy else "none"

    path = write(tmp_path / "mine.jsonl", row)
    (score,) = run_eval(keep, benchmarks=[str(path)], **options).scores
    assert score.greedy is not None and score.greedy.value == 1 and score.average.value == 0
    assert all(("A. 3\nB. 4\n" in prompt) == (row is CHOICE) for prompt in prompts)
    assert score.grader.grading == says


# ---- a scorer of one's own


@pytest.fixture
def scorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scorer_here.py").write_text("def score(response, gold): return gold in response, response[:1]\n")
    yield tmp_path / "scorer_here.py"
    sys.modules.pop("scorer_here", None)


def test_the_code_of_a_scorer_is_its_version(run_eval: Callable[..., Evaluated], scorer: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", {"problem": "Capital?", "answer": "Paris"}, MATH | {"answer": "B"})
    own: dict[str, Any] = {"benchmarks": [str(path)], "grader": "scorer_here:score"}
    (score,) = run_eval(lambda request: "Paris or B", **own).scores
    before = score.grader
    assert before.kind == "scorer_here:score" and len(before.version) == 12 and before.grading == ""
    grades = (tmp_path / "run/eval/mine/grades.jsonl").read_text().splitlines()
    assert score.interval("average").value == 1 and json.loads(grades[0])["answer"] == "P"
    shutil.copytree(tmp_path / "run", tmp_path / "before")
    scorer.write_text("def score(response, gold): return False\n")
    sys.modules.pop("scorer_here")
    (changed,) = run_eval(**own).scores
    assert changed.interval("average").value == 0
    with pytest.raises(RunError, match=r"run was graded by scorer_here:score .*, before by scorer_here:score "):
        compare(CompareSettings(runs=(tmp_path / "before", tmp_path / "run")))
