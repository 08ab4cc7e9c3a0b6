"""Large tables: read in parts of whole examples, and every statistic comes out as from the table in memory."""

from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import RunError
from trimsft.objectives import TrimSFT
from trimsft.report.page.packing import corpus_cells
from trimsft.tokens import stored
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics import groups, intervals
from trimsft.tokens.statistics.calibration import calibration
from trimsft.tokens.statistics.gaps import density, movement
from trimsft.tokens.statistics.quantiles import Column, median, quantiles
from trimsft.tokens.statistics.weighting import confidence, diagnose, objectives_of, weights_of
from trimsft.tokens.stored import StoredTable, open_token_table
from trimsft.tokens.table import TokenTable, incomparable, read_token_table, writing
from trimsft.tokens.verdict import judge_table

BAND = {"margin": 1.5, "bandwidth": 0.8}
ROUNDING = 1e-12
"""Sums of 600 doubles in another order: 600 * 2^-53 of the sum of what is added, all of it 0 or more, is 7e-14."""


def write(path: Path, lengths: list[int], cuts: list[int], *, seed: int = 0, **changed: Any) -> Path:
    """Examples of these lengths; a row group ends before each of these tokens."""
    rng, count = np.random.default_rng(seed), sum(lengths)
    gap = rng.normal(2, 3, count).astype(np.float32)
    ids = np.arange(count) % 40
    columns: dict[str, Any] = {
        "example": np.repeat(np.arange(len(lengths)), lengths).astype(np.int32),
        "position": np.concatenate([np.arange(length) for length in lengths]).astype(np.int32),
        "token_id": ids.astype(np.int32),
        "text": np.array([f"t{number}" for number in ids], dtype=object),
        "category": (ids % len(CATEGORIES)).astype(np.int8),
        "nll": np.logaddexp(0, -gap).astype(np.float32),
        "gap": gap,
        "competitor_id": (ids + 1).astype(np.int32),
        "competitor_text": np.array(["so"] * count, dtype=object),
        "entropy": rng.uniform(0, 2, count).astype(np.float32),
        "rank": np.where(gap > 0, 1, 2).astype(np.int32),
        "gradient_norm": rng.uniform(0, 1.4, count).astype(np.float32),
    } | changed
    with writing(path, {"model": "m"}) as append:
        for start, end in zip([0, *cuts], [*cuts, count], strict=True):
            append({name: values[start:end] for name, values in columns.items()})
    return path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """20 examples of 30 tokens in row groups of 60, 90, 30, 270, 15, 15 and 120 tokens."""
    monkeypatch.setattr(stored, "PART", 100)
    return write(tmp_path / "t.parquet", [30] * 20, [60, 150, 180, 450, 465, 480])


def test_parts_hold_whole_examples_and_no_more_than_they_must(path: Path) -> None:
    table = open_token_table(path)
    assert isinstance(table, StoredTable) and len(table) == 600 and table.example_count == 20
    assert [len(part) for part in table.parts()] == [60, 90, 30, 270, 30, 120]  # 15 and 15 are one example
    assert table.first_examples(4) == [0, 1, 2, 3]
    assert np.array_equal(table["gap"], read_token_table(path)["gap"])
    part = next(table.parts())
    assert "text" not in part.columns and len(part.columns) == 10


def test_a_part_reads_its_own_row_groups_when_it_is_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, read, inner = open_token_table(path), [], pq.ParquetFile.read_row_groups
    monkeypatch.setattr(
        pq.ParquetFile,
        "read_row_groups",
        lambda file, some, columns: read.append((some, columns)) or inner(file, some, columns=columns),
    )
    for part in table.parts():
        part["gap"], part["gap"]
    assert read == [([group], ["gap"]) for group in range(4)] + [([4, 5], ["gap"]), ([6], ["gap"])]


def test_what_is_small_or_in_no_order_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = write(tmp_path / "small.parquet", [30] * 3, [30, 60])
    assert type(open_token_table(small)) is TokenTable
    monkeypatch.setattr(stored, "PART", 10)
    backwards = np.repeat([2, 1, 0], 30).astype(np.int32)
    odd = write(tmp_path / "odd.parquet", [30] * 3, [30, 60], example=backwards)
    table = open_token_table(odd)
    assert type(table) is TokenTable and table["example"].tolist() == backwards.tolist()


def test_a_damaged_number_is_refused_before_anything_is_computed(tmp_path: Path, path: Path) -> None:
    gap = np.zeros(600, dtype=np.float32)
    gap[599] = np.nan
    with pytest.raises(RunError, match="column 'gap' holds what is no finite number"):
        open_token_table(write(tmp_path / "nan.parquet", [30] * 20, [60, 480], gap=gap))


def test_statistics_are_those_of_the_table_in_memory(path: Path) -> None:
    large, small = open_token_table(path), read_token_table(path)
    same = lambda value: pytest.approx(value, rel=ROUNDING, nan_ok=True)  # noqa: E731
    for of in (
        lambda table: astuple(confidence(table, **BAND))[:-1],
        lambda table: astuple(diagnose(table, TrimSFT(), **BAND))[:-1],
        lambda table: astuple(judge_table(table))[:2],
        lambda table: astuple(groups.by_tenth(table, **BAND)[0])[1:],
        lambda table: astuple(groups.by_end(table, **BAND)[-1])[1:],
        lambda table: groups.per_example(table, TrimSFT()).trimmed_mass_percent,
        lambda table: groups.ending(table, objectives_of()).mass_percent,
        lambda table: astuple(calibration(table))[:-1],
        lambda table: astuple(calibration(table, by="mass"))[:-1],
        lambda table: astuple(next(iter(intervals.weight_intervals(table).values()))["r_eff"]),
        lambda table: density(Column(table, "gap"), np.linspace(-4, 8, 30)),
        lambda table: weights_of(TrimSFT(), table),
    ):
        assert of(large) == same(of(small))
    assert asdict(diagnose(large, TrimSFT(), **BAND))["mass_percent"] == same(
        asdict(diagnose(small, TrimSFT(), **BAND))["mass_percent"]
    )


def test_cells_of_the_page_are_those_of_the_table_in_memory(path: Path) -> None:
    """Widths and counts exactly; the rest is kept as float32, whose rounding may fall either way."""
    for most in (40, 200):
        large, small = (corpus_cells(read(path), {}, most) for read in (open_token_table, read_token_table))
        for same in ("tokens", "width"):
            assert large[same] == small[same]
        assert large["columns"]["count"] == small["columns"]["count"]
        assert large["columns"]["category"] == small["columns"]["category"]
        assert large["totals"]["dft"] == pytest.approx(small["totals"]["dft"], rel=ROUNDING)


def test_two_tables_are_compared_whatever_their_row_groups(tmp_path: Path, path: Path) -> None:
    after = write(tmp_path / "after.parquet", [30] * 20, [300], seed=1)
    tables = open_token_table(path), open_token_table(after)
    moved = movement(*tables, **BAND)
    whole = movement(read_token_table(path), read_token_table(after), **BAND)
    assert moved.gap_change == whole.gap_change
    assert np.array_equal(moved.moved_percent, whole.moved_percent)
    assert moved.mean_nll_change == pytest.approx(whole.mean_nll_change, abs=ROUNDING)
    other = open_token_table(write(tmp_path / "o.parquet", [30] * 20, [300], token_id=np.arange(600, dtype=np.int32)))
    assert "their tokenizers differ" in str(incomparable({"a": tables[0], "b": other})["b"])


def nll_columns(part):
    return [("tokens", np.ones(len(part))), ("nll", part["nll"])]


def test_many_examples_are_resampled_in_groups(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = intervals.ByExample(open_token_table(path), nll_columns)
    monkeypatch.setattr(intervals, "MOST_ROWS", 8)
    grouped = intervals.ByExample(open_token_table(path), nll_columns)
    mean = intervals.ratio("nll", "tokens")
    assert grouped._sums_EK.shape == (8, 2) and sorted(set(grouped._sums_EK[:, 0])) == [60, 90]  # of 20: 2 or 3 each
    assert grouped.value(mean) == pytest.approx(each.value(mean), rel=ROUNDING)
    assert grouped.interval(mean).low < each.value(mean) < grouped.interval(mean).high


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=40),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
    st.sampled_from([np.float32, np.float64]),
)
def test_quantiles_of_pieces_are_numpys(values: list[float], shares: list[float], kind: Any) -> None:
    array = np.array(values, dtype=kind)
    cut = len(array) // 2
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.array_equal(
            quantiles([array[:cut], array[cut:]], shares), np.quantile(array.astype(np.float64), shares)
        )
        assert median([array]) == np.median(array.astype(np.float64))
