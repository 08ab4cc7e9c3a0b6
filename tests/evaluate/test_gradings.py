"""Benchmarks that are no boxed mathematics: what a row may say, what is asked, and how it is graded again."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import DataError, RunError
from trimsft.evaluate import EvalSettings, Evaluated, evaluate, run
from trimsft.evaluate.benchmarks import Problem, fingerprint, load_benchmark, read_problems, write_problems
from trimsft.evaluate.engines import EngineError, Request
from trimsft.grading import Grading
from trimsft.report.comparison import CompareSettings, compare

from .scripted import ScriptedEngine

GSM8K = "#### (-?[0-9.,]+)"
EXACT = {"problem": "Capital of France?", "answer": "Paris", "grading": "exact", "ignore_case": True}
CHOICE = {"problem": "2+2?", "answer": 1, "choices": ["3", "4"], "grading": "choice"}
REGEX = {"problem": "3+3?", "answer": 6, "grading": "regex", "pattern": GSM8K, "unit": "m"}
MATH = {"problem": "1+1?", "answer": "2", "choices": "no list", "pattern": 3}  # what it does not use does not matter


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ---- what a row may say


def test_rows_say_how_they_are_graded(tmp_path: Path) -> None:
    problems = read_problems(write(tmp_path / "mine.jsonl", EXACT, CHOICE, REGEX, MATH))
    exact, choice, regex, plain = problems
    assert exact.grading == Grading("exact", ignore_case=True)
    assert (choice.grading, choice.answer, choice.choices) == (Grading("choice"), "B", ("3", "4"))
    assert choice.question == "2+2?\nA. 3\nB. 4" and choice.rules.choices == ("3", "4")
    assert (regex.grading, regex.unit) == (Grading("regex", pattern=GSM8K), "m")
    assert plain == Problem("mine-4", "1+1?", "2") and plain.question == "1+1?"
    (tmp_path / "again.jsonl").write_bytes(write_problems(problems))
    again = read_problems(tmp_path / "again.jsonl")
    assert again == problems and [one.grading for one in again] == [one.grading for one in problems]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (EXACT | {"grading": "exactly"}, r"line 1: grading: unknown name 'exactly'; did you mean 'exact'\?"),
        (EXACT | {"tolerance": 0.1}, "line 1: 'tolerance' has no effect on grading 'exact'; remove it"),
        (REGEX | {"pattern": "(((("}, "line 1: pattern: is no regular expression "),
        (
            CHOICE | {"answer": "C"},
            "line 1: 'answer' must be a letter from A to B, or the number of a choice from 0 on",
        ),
        (CHOICE | {"choices": ["3"]}, "line 1: 'choices' must be a list of 2 to 10 texts, got "),
        # no file names code: only the command line does
        (EXACT | {"grading": "os:system"}, "line 1: grading: unknown name 'os:system'"),
    ],
)
def test_rows_that_mean_nothing_are_refused_with_their_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_problems(write(tmp_path / "mine.jsonl", row))


def test_options_grade_rows_that_say_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", {"problem": "a?", "answer": "b", "choices": ["x", "y"]}, EXACT)
    assert [p.grading.kind for p in load_benchmark(path, grading=Grading("choice"))] == ["choice", "exact"]
    assert load_benchmark(path, grading=Grading("choice"))[0].answer == "B"
    assert {p.grading.pattern for p in load_benchmark("lab-easy", grading=Grading("regex", GSM8K))} == {GSM8K}


def test_a_row_may_have_several_right_answers(tmp_path: Path) -> None:
    rows = ({"problem": "A root?", "answer": ["2", 3.5]}, MATH | {"answer": ["2"]}, CHOICE | {"answer": [1, "A"]})
    several, one, letters = problems = read_problems(write(tmp_path / "mine.jsonl", *rows))
    assert (several.answer, one.answer, letters.answer) == (("2", "3.5"), "2", ("B", "A"))
    (tmp_path / "again.jsonl").write_bytes(write_problems(problems))
    assert [problem.answer for problem in read_problems(tmp_path / "again.jsonl")] == [p.answer for p in problems]
    assert fingerprint([several]) != fingerprint([replace(several, answer="2")])


# ---- from problems to scores


@pytest.fixture
def run_eval(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Evaluated]:
    def evaluate_with(benchmark: Path, answers: Callable[[Request], str] | None, **options: Any) -> Evaluated:
        monkeypatch.setattr(run, "make_engine", lambda settings: _engine(answers))
        given = {"model": "m", "benchmarks": [str(benchmark)], "out": tmp_path / "run", "template": "plain"}
        return evaluate(EvalSettings(**{"samples": 2} | given | options))

    return evaluate_with


def _engine(answers: Callable[[Request], str] | None) -> ScriptedEngine:
    if answers is None:
        raise EngineError("nothing is generated anew", field="engine")
    return ScriptedEngine(answers, identity={"model": "m", "revision": None})


def said(request: Request) -> str:
    """What a model may say to the four rows above: the first two and the last right, the third without the pattern."""
    problem = request.prompt.rpartition("Problem:\n")[2]
    answers = {"Capital": "paris", "2+2": "The answer is (B).", "3+3": r"\boxed{6}", "1+1": r"\boxed{2}"}
    return next(answer for start, answer in answers.items() if problem.startswith(start))


def test_each_row_is_graded_its_own_way_and_choices_are_asked(
    run_eval: Callable[..., Evaluated], tmp_path: Path
) -> None:
    prompts = []

    def keep(request: Request) -> str:
        prompts.append(request.prompt)
        return said(request)

    (score,) = run_eval(write(tmp_path / "mine.jsonl", EXACT, CHOICE, REGEX, MATH), keep).scores
    assert [one.correct for one in sorted(score.per_problem, key=lambda one: one.problem)] == [2, 2, 0, 2]
    assert score.statuses == {"correct": 6, "no_answer": 2}
    assert any("2+2?\nA. 3\nB. 4\n" in prompt for prompt in prompts)
    by = score.grader
    assert by.grading == f"choice and exact without case and math and regex {GSM8K!r} compared as math"
    for _ in range(2):  # graded anew, then read
        lenient = run_eval(tmp_path / "mine.jsonl", None, grader="qwen").scores[0].grader
        assert (lenient.kind, lenient.ignored_rules) == ("qwen", ("unit",))


def test_another_grading_needs_no_engine(run_eval: Callable[..., Evaluated], tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "problem": f"{n}?", "answer": str(n)} for n in range(3)]
    path = write(tmp_path / "mine.jsonl", *rows)
    digits = {f"{n}?": f"so\n#### {n}" for n in range(3)}
    (boxed,) = run_eval(
        path, lambda request: next(text for key, text in digits.items() if key in request.prompt)
    ).scores
    assert boxed.average is not None and boxed.average.value == 0 and boxed.statuses == {"no_answer": 6}
    samples = (tmp_path / "run/eval/mine/samples.jsonl").read_bytes()
    for _ in range(2):  # graded anew, then read
        (found,) = run_eval(path, None, pattern=GSM8K).scores
        assert found.average is not None and found.average.value == 1 and found.interval("majority@2").value == 1
    assert (tmp_path / "run/eval/mine/samples.jsonl").read_bytes() == samples
    (tmp_path / "run").rename(tmp_path / "by-pattern")
    run_eval(path, lambda request: r"\boxed{1}")
    with pytest.raises(
        RunError, match=r"run was graded by strict \d+, by-pattern by strict \d+ \(regex '####.*, so their"
    ):
        compare(CompareSettings(runs=(tmp_path / "by-pattern", tmp_path / "run")))
    (again,) = run_eval(path, None).scores
    assert again.average is not None and again.average.value == pytest.approx(1 / 3)


# ---- a scorer of one's own


@pytest.fixture
def scorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scorer_here.py").write_text("def score(response, gold): return gold in response, response[:1]\n")
    yield tmp_path / "scorer_here.py"
    sys.modules.pop("scorer_here", None)


def test_the_code_of_a_scorer_is_its_version(run_eval: Callable[..., Evaluated], scorer: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", EXACT, CHOICE)
    (score,) = run_eval(path, lambda request: "Paris or B", grader="scorer_here:score").scores
    before = score.grader
    assert before.kind == "scorer_here:score" and len(before.version) == 12 and before.grading == ""
    grades = (tmp_path / "run/eval/mine/grades.jsonl").read_text().splitlines()
    assert score.interval("average").value == 1 and json.loads(grades[0])["answer"] == "P"
    shutil.copytree(tmp_path / "run", tmp_path / "before")
    scorer.write_text("def score(response, gold): return False\n")
    sys.modules.pop("scorer_here")
    (changed,) = run_eval(path, None, grader="scorer_here:score").scores
    assert changed.interval("average").value == 0
    with pytest.raises(RunError, match=r"run was graded by scorer_here:score .*, before by scorer_here:score "):
        compare(CompareSettings(runs=(tmp_path / "before", tmp_path / "run")))
