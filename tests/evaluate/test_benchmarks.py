"""Benchmarks: the declared ones, files of one's own, and what a bad file is told."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from trimsft.evaluate.benchmarks import (
    BENCHMARKS,
    BenchmarkError,
    Problem,
    benchmark_name,
    describe_source,
    from_hub,
    load_benchmark,
)
from trimsft.evaluate.problem_files import fingerprint, read_problems, write_problems

SHARED = Path(__file__).parents[3] / "shared" / "data" / "benchmarks"
ROW = {"id": "a", "problem": "What is 1+1?", "answer": "2"}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_published_sets_are_whole(name: str) -> None:
    problems = load_benchmark(name, SHARED)
    assert len(problems) == BENCHMARKS[name].count
    assert len({problem.id for problem in problems}) == len(problems)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not here")
def test_what_olympiadbench_says_about_grading() -> None:
    problems = load_benchmark("olympiadbench", SHARED)
    assert sum(problem.multiple for problem in problems) == 94
    assert [problem.absolute for problem in problems if problem.absolute] == [0.1]
    assert sum(problem.unit is not None for problem in problems) == 8


def test_a_file_is_a_benchmark(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", ROW, "", {"problem": "And 2+2?", "answer": 4})
    assert load_benchmark(path) == [Problem("a", "What is 1+1?", "2"), Problem("mine-3", "And 2+2?", "4")]
    assert load_benchmark("mine", tmp_path) == load_benchmark(str(path))
    assert load_benchmark(path, limit=1) == [Problem("a", "What is 1+1?", "2")]
    assert benchmark_name(path) == "mine" and benchmark_name("math500") == "math500"
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [problem.answer for problem in load_benchmark(packed)] == ["2", "4"]


def test_a_benchmark_may_declare_a_tolerance(tmp_path: Path) -> None:
    path = write(tmp_path / "minerva.jsonl", ROW, ROW | {"id": "b", "tolerance": 0.01})
    assert [problem.tolerance for problem in load_benchmark("minerva", tmp_path)] == [1e-4, 0.01]
    assert load_benchmark(path) == load_benchmark("minerva", tmp_path)  # both are recorded as minerva
    assert load_benchmark(path.rename(tmp_path / "mine.jsonl"))[0].tolerance is None


def test_an_id_may_be_used_again_for_another_problem_only(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", ROW, ROW | {"problem": "And 2+2?"})
    assert [problem.id for problem in read_problems(path)] == ["a", "a#2"]
    with pytest.raises(BenchmarkError, match=r"mine\.jsonl, line 2: the problem with id 'a' occurs twice"):
        read_problems(write(path, ROW, ROW))


def test_problems_survive_being_written(tmp_path: Path) -> None:
    problems = [
        Problem("a", "What\u2028is {0}?", "2", True, 1e-3, 0.1, "%"),
        Problem("b", "\U0001f600", "\\frac{1}{2}"),
    ]
    path = tmp_path / "problems.jsonl"
    path.write_bytes(write_problems(problems))
    assert read_problems(path) == problems
    assert fingerprint(problems) != fingerprint(problems[::-1])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: must be an object with named fields, got list"),
        ({"question": "?", "answer": "1"}, "line 2: no field 'problem'; it has 'question', 'answer'"),
        ({"problem": "?"}, "line 2: no field 'answer'; it has 'problem'"),
        ({"problem": " ", "answer": "1"}, "line 2: 'problem' must be a text, got ' '"),
        ({"problem": "?", "answer": ["1"]}, r"line 2: 'answer' must be a text or a number, got \['1'\]"),
        ({"problem": "?", "answer": ""}, "line 2: 'answer' must be a text or a number"),
        ({"problem": "?", "answer": "1", "id": 1.5}, "line 2: 'id' must be a text or an integer, got 1.5"),
        ({"problem": "?", "answer": "1", "error": "-1"}, "line 2: 'error' must be a number between 0 and 1"),
        ({"problem": "?", "answer": "1", "tolerance": "x"}, "line 2: 'tolerance' must be a number between"),
        (
            {"problem": "?", "answer": "1", "is_multiple_answer": "no"},
            "line 2: 'is_multiple_answer' must be true",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: Any, says: str) -> None:
    path = write(tmp_path / "mine.jsonl", ROW, row)
    with pytest.raises(BenchmarkError, match=says) as error:
        load_benchmark(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"unknown name 'maths500'; did you mean 'math500'\? known: math500, "):
        load_benchmark("maths500")
    with pytest.raises(BenchmarkError, match=r"no such file: 'gone\.jsonl'"):
        load_benchmark("gone.jsonl")
    with pytest.raises(BenchmarkError, match="data_dir: no such folder"):
        load_benchmark("math500", tmp_path / "gone")
    write(tmp_path / "mine.jsonl", ROW)
    with pytest.raises(BenchmarkError, match=r"has no math500\.jsonl; it holds mine"):
        load_benchmark("math500", tmp_path)
    with pytest.raises(BenchmarkError, match=r"unknown name 'main'; did you mean 'mine'\?"):
        load_benchmark("main", tmp_path)
    with pytest.raises(BenchmarkError, match="limit: must be at least 1, got 0"):
        load_benchmark("math500", limit=0)
    with pytest.raises(BenchmarkError, match="holds no problems"):
        load_benchmark(write(tmp_path / "empty.jsonl"))


@pytest.mark.parametrize(
    ("name", "row", "problem"),
    [
        (
            "math500",
            {"unique_id": "t/1.json", "problem": "?", "answer": "\\pi"},
            Problem("t/1.json", "?", "\\pi"),
        ),
        (
            "olympiadbench",
            {"id": 7, "question": "?", "final_answer": ["$2,3$"], "is_multiple_answer": True, "error": None},
            Problem("7", "?", "2,3", multiple=True),
        ),
        (
            "olympiadbench",
            {"id": 8, "question": "?", "final_answer": ["$1$ or $2$"]},
            Problem("8", "?", "$1$ or $2$"),
        ),
        ("minerva", {"question": "?", "answer": "1.6"}, Problem("minerva-5", "?", "1.6")),
        ("amc", {"id": 3, "problem": "?", "answer": 142.0}, Problem("3", "?", "142")),
        ("aime24", {"id": 60, "problem": "?", "answer": "073"}, Problem("60", "?", "73")),
        ("gsm8k", {"question": "?", "answer": "so\n#### 1,234"}, Problem("gsm8k-5", "?", "1234")),
    ],
)
def test_rows_of_the_hub(name: str, row: dict[str, Any], problem: Problem) -> None:
    assert from_hub(BENCHMARKS[name], row, 5) == problem


def test_a_changed_dataset_is_noticed() -> None:
    with pytest.raises(BenchmarkError, match="AI-MO/aimo-validation-amc, row 5: no answer in it"):
        from_hub(BENCHMARKS["amc"], {"id": 3, "problem": "?", "answer": "(C)"}, 5)
    for name, answer in (("amc", 7.5), ("amc", float("inf")), ("minerva", None), ("gsm8k", "so it is 5")):
        with pytest.raises(BenchmarkError, match="row 5: no answer in it"):
            from_hub(BENCHMARKS[name], {"id": 3, "problem": "?", "question": "?", "answer": answer}, 5)
    with pytest.raises(BenchmarkError, match="row 5: no field 'problem'"):
        from_hub(BENCHMARKS["gsm8k"], {"answer": "#### 1"}, 5)


def test_the_lab_needs_neither_hub_nor_file(tmp_path: Path) -> None:
    problems = load_benchmark("lab-medium", tmp_path, limit=7)  # whatever a folder of other benchmarks holds
    assert [problem.id for problem in problems] == [f"lab-medium-{number}" for number in range(7)]
    assert describe_source("lab-medium") == "the lab"
    with pytest.raises(BenchmarkError, match="did you mean 'lab-hard'"):
        load_benchmark("lab-hrd")
