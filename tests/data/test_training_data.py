"""Beside the data that the trainer is given: overlap with benchmarks, and lengths against a plain loop over rows."""

import logging
import statistics
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from trimsft.data.encode import LengthReport, load_training_data, measure_lengths
from trimsft.data.load import OverlapReport, find_overlap, read_benchmarks, read_file
from trimsft.errors import DataError

from .toys import CHAT, ROWS, SHARED, local, make_tokenizer, needs_shared, split, write

LABELS = st.lists(st.lists(st.sampled_from([-100, 0, 7]), max_size=9), min_size=1, max_size=8)


def test_equal_but_for_case_spaces_and_punctuation() -> None:
    report = find_overlap(
        ["What is $1 + 1$?", "Find \\(X_1\\).", "Ärger, 3²", "find x2", "WHAT is 1+1", "???"],
        {"one": ["what is 1+1", "unused", "!!!"], "two": ["Find $x{1}$", "ärger 3²", "What is 1+1!"]},
    )
    assert report == OverlapReport(checked=6, per_benchmark={"one": 2, "two": 4}, rows=(0, 1, 2, 4))


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
    with pytest.raises(DataError, match=r"benchmarks_dir: no such file or folder, got '.*gone'"):
        read_benchmarks(tmp_path / "gone")
    with pytest.raises(DataError, match="benchmarks_dir: the folder holds no file"):
        read_benchmarks(tmp_path)
    write(tmp_path / "b.jsonl", [{"problem": "x", "answer": "1"}])
    write(tmp_path / "a.jsonl", [{"problem": "y"}, {"problem": "z"}])
    (tmp_path / "README.md").write_text("not a benchmark")
    assert read_benchmarks(tmp_path) == {"a": ["y", "z"], "b": ["x"]}
    write(tmp_path / "a.jsonl", [{"problem": "y"}, {"question": "z"}])
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
    problems = [*read_file(SHARED / "data/train/numina_style_mix_20k.jsonl.gz").column("problem")]
    report = find_overlap(problems, benchmarks)
    assert report.rows == (2200,)
    assert report.per_benchmark == {**dict.fromkeys(benchmarks, 0), "olympiadbench": 1}
    injected = [*problems, benchmarks["math500"][3].upper(), benchmarks["aime24"][0] + " ."]
    report = find_overlap(injected, benchmarks)
    assert report.rows == (2200, 20000, 20001)
    assert (report.per_benchmark["math500"], report.per_benchmark["aime24"]) == (1, 1)


def dataset_of(rows: list[list[int]]) -> Dataset:
    return Dataset.from_dict({"input_ids": [[1] * len(row) for row in rows], "labels": rows})


def by_hand(rows: list[list[int]], max_length: int | None, keep: str) -> LengthReport:
    limit = max(map(len, rows)) + 1 if max_length is None else max_length
    kept = [row[:limit] if keep == "start" else row[max(0, len(row) - limit) :] for row in rows]
    trained = [sum(label != -100 for label in row[1:]) for row in kept]
    return LengthReport(
        rows=len(rows),
        tokens=sum(map(len, rows)),
        trained_tokens=sum(trained),
        longest=max(map(len, rows)),
        median=statistics.median(map(len, rows)),
        truncated=sum(len(row) > limit for row in rows),
        truncated_tokens=sum(map(len, rows)) - sum(map(len, kept)),
        dropped=trained.count(0),
        max_length=max_length,
    )


@given(LABELS, st.none() | st.integers(1, 10), st.sampled_from(["start", "end"]))
def test_equals_a_plain_loop(rows: list[list[int]], max_length: int | None, keep: str) -> None:
    assert measure_lengths(dataset_of(rows), max_length, keep=keep) == by_hand(rows, max_length, keep)


@given(LABELS, st.data())
def test_rows_that_were_selected(rows: list[list[int]], data: st.DataObject) -> None:
    """A dataset may be a view on a table, in another order and with gaps."""
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    view = dataset_of(rows).select(chosen)
    assert measure_lengths(view, 4) == by_hand([rows[row] for row in chosen], 4, "start")


def test_a_label_that_nothing_predicts_no_rows_and_more_rows_than_one_batch() -> None:
    assert measure_lengths(dataset_of([[5, -100, -100], [5, 6]]), None).dropped == 1
    assert measure_lengths(dataset_of([[1]]).select([]), 4) == LengthReport(0, 0, 0, 0, 0.0, 0, 0, 0, 4)
    report = measure_lengths(dataset_of([[-100, 1, 2]] * 25_000), 2)
    assert (report.rows, report.trained_tokens, report.truncated) == (25_000, 25_000, 25_000)


@pytest.mark.parametrize(
    ("rows", "max_length", "says"),
    [
        ([[-100, 1, 2], [-100, -100, 3, 4]], None, "2 rows, 7 tokens (median 3.5, longest 4), of which 4 are trained."),
        (
            [[-100, 1]],
            9,
            "1 row, 2 tokens (median 2, longest 2), of which 1 are trained. None is longer than max_length=9.",
        ),
        (
            [[-100, 1, 2], [-100, -100, 3, 4]],
            2,
            "2 rows, 7 tokens (median 3.5, longest 4), of which 1 are trained. max_length=2 cuts 2 rows by 3 tokens. "
            "1 row keeps no trained token and adds nothing.",
        ),
    ],
)
def test_says_what_is_lost(rows: list[list[int]], max_length: int | None, says: str) -> None:
    assert str(measure_lengths(dataset_of(rows), max_length)) == says


def test_lengths_that_cannot_be_measured() -> None:
    with pytest.raises(DataError, match="max_length: must be at least 1 or None, got 0"):
        measure_lengths(dataset_of([[1]]), 0)
    with pytest.raises(DataError, match="keep: must be 'start' or 'end', got 'keep_end'"):
        measure_lengths(dataset_of([[1]]), 1, keep="keep_end")
    with pytest.raises(DataError, match="no column input_ids and labels among text"):
        measure_lengths(Dataset.from_dict({"text": ["a"]}), None)
    with pytest.raises(DataError, match="differ in length"):
        measure_lengths(Dataset.from_dict({"input_ids": [[1, 2]], "labels": [[1]]}), None)


def test_lists_of_every_kind_are_measured_and_anything_else_is_refused() -> None:
    rows = [[-100, 1, 2], [5, 6, 7]]
    for kind in (pa.list_(pa.int64(), 3), pa.large_list(pa.int64()), pa.list_(pa.int32())):
        table = pa.table({name: pa.array(rows, kind) for name in ("input_ids", "labels")})
        assert measure_lengths(Dataset(table), 2) == by_hand(rows, 2, "start")
    with pytest.raises(DataError, match="must be lists of whole numbers"):
        measure_lengths(Dataset.from_dict({"input_ids": ["a"], "labels": ["a"]}), 2)
