"""The length report: against a plain loop over rows, and worked examples of what truncation takes."""

import statistics

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import DataError
from trimsft.text.lengths import LengthReport, measure_lengths

ROWS = st.lists(st.lists(st.sampled_from([-100, 0, 7]), max_size=9), min_size=1, max_size=8)


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


@given(ROWS, st.none() | st.integers(1, 10), st.sampled_from(["start", "end"]))
def test_equals_a_plain_loop(rows: list[list[int]], max_length: int | None, keep: str) -> None:
    assert measure_lengths(dataset_of(rows), max_length, keep=keep) == by_hand(rows, max_length, keep)


@given(ROWS, st.data())
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


def test_refusals() -> None:
    with pytest.raises(DataError, match="max_length: must be at least 1 or None, got 0"):
        measure_lengths(dataset_of([[1]]), 0)
    with pytest.raises(DataError, match="keep: must be 'start' or 'end', got 'keep_end'"):
        measure_lengths(dataset_of([[1]]), 1, keep="keep_end")
    with pytest.raises(DataError, match="no column input_ids and labels among text"):
        measure_lengths(Dataset.from_dict({"text": ["a"]}), None)
    with pytest.raises(DataError, match="differ in length"):
        measure_lengths(Dataset.from_dict({"input_ids": [[1, 2]], "labels": [[1]]}), None)
