"""Benchmarks: files of one's own, what a bad file is told, and those of the hub.

No hub is reached: `datasets.load_dataset` is replaced by one that checks what it is asked and gives a real `Dataset`.
Names of columns are as published; types of columns and forms of answers are assumed.
"""

import gzip
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, Features, List, Value

from trimsft.data import files
from trimsft.errors import DataError, UsageError
from trimsft.evaluate.benchmarks import (
    BENCHMARKS,
    Problem,
    benchmark_name,
    fingerprint,
    load_benchmark,
    read_problems,
    write_problems,
)

SHARED = Path(__file__).parents[3] / "shared" / "data" / "benchmarks"
ROW = {"id": "a", "problem": "What is 1+1?", "answer": "2"}


CHOICE = {"problem": "2+2?", "answer": 1, "choices": ["3", "4"]}
MATH = {"problem": "1+1?", "answer": "2", "choices": "no list", "grading": "os:system"}  # no file names code


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_published_sets_are_whole(name: str) -> None:
    if not (SHARED / f"{name}.jsonl").is_file():
        pytest.skip("the shared data is not here")
    problems = load_benchmark(SHARED / f"{name}.jsonl")
    assert len(problems) == BENCHMARKS[name].count
    assert len({problem.id for problem in problems}) == len(problems)
    if name == "olympiadbench":
        assert sum(problem.is_multiple_answer for problem in problems) == 94
        assert [problem.error for problem in problems if problem.error] == [0.1]
        assert sum(problem.unit is not None for problem in problems) == 8


def test_a_file_is_a_benchmark(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", ROW, "", {"problem": "And 2+2?", "answer": 4})
    assert load_benchmark(path) == [Problem("a", "What is 1+1?", "2"), Problem("mine-3", "And 2+2?", "4")]
    assert load_benchmark(path, limit=1) == [Problem("a", "What is 1+1?", "2")]
    assert benchmark_name(path) == "mine" and benchmark_name("math500") == "math500"
    twice = write(tmp_path / "twice.jsonl", ROW, ROW | {"problem": "And 2+2?"})
    assert [problem.id for problem in read_problems(twice)] == ["a", "a#2"]
    minerva = write(tmp_path / "minerva.jsonl", ROW, ROW | {"id": "b", "tolerance": 0.01})
    assert [problem.tolerance for problem in load_benchmark(minerva)] == [1e-4, 0.01]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "line 2: not usable JSON"),
        ({"question": "?", "answer": "1"}, "line 2: problem: field required, .*; the row has 'question'"),
        ({"problem": "?", "answer": []}, "line 2: answer: field required"),
        ({"problem": "?", "answer": ["1", " "]}, "line 2: an answer is blank"),
        ({"problem": "?", "answer": True}, "line 2: answer.*: input should be a valid"),
        ({"problem": "?", "answer": "1", "tolerance": 1.5}, "line 2: tolerance=1.5: expected a number in"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: Any, says: str) -> None:
    path = write(tmp_path / "mine.jsonl", ROW, row)
    with pytest.raises(DataError, match=says) as error:
        load_benchmark(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown name 'maths500'; did you mean 'math500'\?"):
        load_benchmark("maths500")
    with pytest.raises(DataError, match=r"no such file: 'gone\.jsonl'"):
        load_benchmark("gone.jsonl")
    with pytest.raises(DataError, match="holds no rows"):
        load_benchmark(write(tmp_path / "empty.jsonl"))


def test_a_file_that_unpacks_without_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 2**26))
    monkeypatch.setattr(files, "LONGEST_LINE", 2**20)
    for read in (load_benchmark, lambda file: list(files.read_records(file))):
        tracemalloc.start()
        with pytest.raises(DataError, match=r"mine\.jsonl\.gz, line 1: longer than 1,048,576 bytes"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
        tracemalloc.stop()


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


TEXT, INTEGER = Value("string"), Value("int64")
OTHERS = "question context modality difficulty unit answer_type error question_type subfield subject language image_1"
OLYMPIAD = {
    **dict.fromkeys(OTHERS.split(), TEXT), **dict.fromkeys(("solution", "final_answer"), List(TEXT)),
    "id": INTEGER, "is_multiple_answer": Value("bool"),
}  # fmt: skip
HUB: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[dict[str, Any]], list[Problem]]] = {
    "olympiadbench": (
        ("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"),
        OLYMPIAD,
        [
            {"id": 1606, "question": "1+1?", "final_answer": ["$2$"], "is_multiple_answer": False},
            {"id": 1607, "question": "x?", "final_answer": ["$1$ or $2$"], "is_multiple_answer": True, "error": ""},
            {"id": 1608, "question": "y?", "final_answer": ["3.1"], "is_multiple_answer": False, "error": "1e-1"},
        ],
        [
            Problem("1606", "1+1?", "2"),
            Problem("1607", "x?", "$1$ or $2$", is_multiple_answer=True),
            Problem("1608", "y?", "3.1", error=0.1),
        ],
    ),
    "amc": (
        ("AI-MO/aimo-validation-amc", None, "train"),
        {"id": INTEGER, "problem": TEXT, "answer": Value("float64"), "url": TEXT},
        [{"id": 0, "problem": "1+1?", "answer": 142.0, "url": "..."}],
        [Problem("0", "1+1?", "142")],
    ),
    "gsm8k": (
        ("openai/gsm8k", "main", "test"),
        {"question": TEXT, "answer": TEXT},
        [{"question": "1+1?", "answer": "It is\n#### 1,002"}],
        [Problem("gsm8k-0", "1+1?", "1002")],
    ),
}


@pytest.mark.parametrize("name", HUB)
def test_what_is_asked_and_how_it_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (dataset, config, split), features, rows, expected = HUB[name]

    def load(path: str, name: str | None = None, *, split: str, revision: str) -> Dataset:
        asked.append((path, name, split, revision))
        return Dataset.from_list([dict.fromkeys(features) | row for row in rows], features=Features(features))

    asked: list[Any] = []
    monkeypatch.setattr("datasets.load_dataset", load)
    assert load_benchmark(name) == expected
    assert asked == [(dataset, config, split, BENCHMARKS[name].revision)]
    assert load_benchmark(name, limit=1) == expected[:1]
