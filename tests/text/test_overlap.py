"""Overlap with benchmarks: what counts as equal, and how it is counted."""

import logging
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import DataError
from trimsft.text.overlap import OverlapReport, find_overlap, read_benchmarks
from trimsft.text.readers import read_file
from trimsft.text.training_data import load_training_data

from .toys import CHAT, ROWS, SHARED, local, make_tokenizer, needs_shared, split, write


def test_equal_but_for_case_spaces_and_punctuation() -> None:
    report = find_overlap(
        ["What is $1 + 1$?", "Find \\(X_1\\).", "Ärger, 3²", "find x2", "WHAT is 1+1"],
        {"one": ["what is 1+1", "unused"], "two": ["Find $x{1}$", "ärger 3²", "What is 1+1!"]},
    )
    assert report == OverlapReport(checked=5, per_benchmark={"one": 2, "two": 4}, rows=(0, 1, 2, 4))


def test_text_without_letters_or_digits_equals_nothing() -> None:
    assert find_overlap(["???", "+"], {"one": ["!!!", "+"]}).rows == ()


@pytest.mark.parametrize(
    ("problems", "says"),
    [
        (["a"], "none of 1 training problems is also a benchmark problem (one 0)"),
        (["a", "x"], "1 of 2 training problems is also a benchmark problem (one 1): row 1"),
        (
            ["x"] * 1500,
            "1,500 of 1,500 training problems are also benchmark problems (one 1,500): rows 0, 1, 2, 3, 4, ...",
        ),
    ],
)
def test_says_how_many_and_which(problems: list[str], says: str) -> None:
    assert str(find_overlap(problems, {"one": ["x"]})) == says


def test_reads_every_benchmark_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"problem": "x", "answer": "1"}\n')
    (tmp_path / "a.jsonl").write_text('{"problem": "y"}\n{"problem": "z"}\n')
    (tmp_path / "README.md").write_text("not a benchmark")
    assert read_benchmarks(tmp_path) == {"a": ["y", "z"], "b": ["x"]}


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"benchmarks_dir: no such folder, got '.*gone'"):
        read_benchmarks(tmp_path / "gone")
    with pytest.raises(DataError, match=r"holds no \.jsonl file"):
        read_benchmarks(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"problem": "y"}\n{"question": "z"}\n')
    with pytest.raises(DataError, match=r'a\.jsonl, line 2: no text in the field "problem"'):
        read_benchmarks(tmp_path)


def test_overlap_is_counted_and_dropped_on_request(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "benchmarks").mkdir()
    write(tmp_path / "benchmarks/toy.jsonl", [{"problem": "WHAT is 2 + 1"}, {"problem": "what is 5+1"}])
    options = {"benchmarks_dir": str(tmp_path / "benchmarks")}
    with caplog.at_level(logging.WARNING, logger="trimsft"):
        train, _ = load_training_data(local(tmp_path, **options), make_tokenizer(), with_eval=False)
    assert train.overlap is not None
    assert (train.overlap.rows, train.overlap.per_benchmark, len(train.dataset)) == ((2, 5), {"toy": 2}, 8)
    assert "2 of 8 training problems are also benchmark problems (toy 2): rows 2, 5" in caplog.text
    tokenizer = make_tokenizer(chat=CHAT)
    train, _ = load_training_data(local(tmp_path, drop_overlap=True, **options), tokenizer, with_eval=False)
    answers = [split(tokenizer, row)[1] for row in train.dataset]
    assert answers == [f"It is \\boxed{{{n + 1}}}.<eos>" for n in (0, 1, 3, 4, 6, 7)]
    with pytest.raises(DataError, match="drop_overlap: every row is a benchmark problem"):
        load_training_data(local(tmp_path, ROWS[2:3], drop_overlap=True, **options), tokenizer, with_eval=False)


@needs_shared
def test_of_the_real_mix_one_row_is_left() -> None:
    """It was made without duplicates; this one differs from a benchmark in spaces within a formula."""
    benchmarks = read_benchmarks(SHARED / "data/benchmarks")
    assert {"math500": 500, "gsm8k": 1319}.items() <= {n: len(p) for n, p in benchmarks.items()}.items()
    problems = read_file(SHARED / "data/train/numina_style_mix_20k.jsonl.gz").column("problem")
    report = find_overlap(problems, benchmarks)
    assert report.rows == (2200,)
    assert report.per_benchmark == {**dict.fromkeys(benchmarks, 0), "olympiadbench": 1}
    injected = [*problems, benchmarks["math500"][3].upper(), benchmarks["aime24"][0] + " ."]
    report = find_overlap(injected, benchmarks)
    assert report.rows == (2200, 20000, 20001)
    assert (report.per_benchmark["math500"], report.per_benchmark["aime24"]) == (1, 1)
