"""Categories, positions, examples and endings: exact on tables made by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.by_hand import hand_table, reordered
from trimsft.objectives import PAPER_OBJECTIVES, SFT, TrimSFT
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics import by_category, by_end, by_tenth, ending, objectives_of, per_example

BAND = {"margin": 1.0, "bandwidth": 1.0}
FAR = math.exp(-2)  # the weight at gaps -1 and 3


def test_categories_by_hand() -> None:
    table = hand_table(
        [1.0, 3.0, 1.0, -1.0],
        norm=[1.0, 1.0, 2.0, 4.0],
        nll=[0.1, 0.3, 0.5, 2.0],
        category=["numeric", "numeric", "symbol", "other"],
    )
    found = {row.name: row for row in by_category(table, **BAND)}
    assert list(found) == list(CATEGORIES)
    assert [found[name].tokens for name in CATEGORIES] == [2, 1, 0, 1]
    assert [found[name].ratio_percent for name in CATEGORIES] == [50, 25, 0, 25]
    assert found["numeric"].mean_weight == pytest.approx((1 + FAR) / 2)
    assert found["numeric"].mean_nll == pytest.approx(0.2)
    assert [found[name].middle_percent for name in ("numeric", "symbol", "other")] == [50, 100, 0]
    assert [found[name].sft_mass_percent for name in CATEGORIES] == pytest.approx([25, 25, 0, 50])
    total = 1 + FAR + 2 + 4 * FAR
    shares = [100 * (1 + FAR) / total, 200 / total, 0, 400 * FAR / total]
    assert [found[name].trim_mass_percent for name in CATEGORIES] == pytest.approx(shares, rel=1e-6)
    assert math.isnan(found["connector"].mean_weight) and found["connector"].trim_mass_percent == 0


def test_tenths_by_hand() -> None:
    twenty = hand_table([float(n) for n in range(20)], nll=[float(n) for n in range(20)])
    found = by_tenth(twenty, **BAND)
    assert [row.tokens for row in found] == [2] * 10
    assert [row.mean_nll for row in found] == [0.5 + 2 * tenth for tenth in range(10)]
    three = by_tenth(hand_table([1.0, 1.0, 1.0]), **BAND)  # tokens at 0, 1/3 and 2/3
    assert [row.tokens for row in three] == [1, 0, 0, 1, 0, 0, 1, 0, 0, 0]
    assert found[0].name == "0 to 10 %" and found[-1].name == "90 to 100 %"


def test_first_and_last_tokens_by_hand() -> None:
    table = hand_table(range(7), nll=[float(n) for n in range(7)])
    found = by_end(table, **BAND, ends=2)
    assert [row.name for row in found] == ["token 1", "token 2", "between", "last but 1", "last token"]
    assert [row.mean_nll for row in found] == [0, 1, 3, 5, 6]
    assert [row.tokens for row in found] == [1, 1, 3, 1, 1]
    short = by_end(hand_table([1.0, 2.0, 3.0]), **BAND, ends=2)
    assert [row.tokens for row in short] == [1, 1, 0, 0, 1]  # the second is counted from the front


@given(st.lists(st.tuples(st.floats(-9, 20, width=32), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=40))
def test_shares_of_a_grouping_sum_to_100(tokens) -> None:
    gaps, kinds, examples = zip(*tokens, strict=True)
    table = hand_table(gaps, category=[CATEGORIES[kind] for kind in kinds], example=examples)
    for rows in (by_category(table, **BAND), by_tenth(table, **BAND), by_end(table, **BAND)):
        assert sum(row.tokens for row in rows) == len(tokens)
        assert sum(row.ratio_percent for row in rows) == pytest.approx(100)
        assert sum(row.sft_mass_percent for row in rows) == pytest.approx(100)
        total = sum(row.trim_mass_percent for row in rows)
        assert math.isnan(total) or total == pytest.approx(100)


def test_examples_by_hand() -> None:
    table = hand_table([1.0, 3.0, -1.0, 1.0], norm=[1.0, 1.0, 3.0, 0.0], nll=[0.0, 1.0, 4.0, 2.0], example=[3, 3, 8, 8])
    found = per_example(table, TrimSFT(1, 1))
    assert found.example.tolist() == [3, 8] and found.tokens.tolist() == [2, 2]
    assert found.mean_nll.tolist() == [0.5, 3.0] and found.first_choice_percent.tolist() == [100, 50]
    assert found.mean_weight == pytest.approx([(1 + FAR) / 2, (1 + FAR) / 2])
    assert found.trimmed_mass_percent == pytest.approx([100 * (1 - (1 + FAR) / 2), 100 * (1 - FAR)])
    assert per_example(table, SFT()).trimmed_mass_percent.tolist() == [0, 0]


def test_endings_by_hand() -> None:
    table = hand_table(
        [5.0, 1.0, 5.0, -1.0, 5.0, 5.0],
        norm=[1.0, 1.0, 1.0, 3.0, 1.0, 1.0],
        nll=[0.0, 0.25, 0.0, 1.75, 0.0, 0.0],
        rank=[1, 1, 1, 4, 1, 1],
        example=[0, 0, 1, 1, 2, 2],
        token_id=[2, 2, 6, 2, 7, 8],  # one stands within, the third was cut
        eos_id=2,
    )
    found = ending(table, objectives_of(BAND))
    assert found is not None and found.known
    assert (found.examples, found.ended) == (3, 2)
    assert found.mean_nll == 1.0 and found.median_gap == 0 and found.median_rank == 2.5
    assert found.first_choice_percent == 50 and found.tokens_percent == pytest.approx(100 / 3)
    assert set(found.mass_percent) == set(found.mean_weight) == set(PAPER_OBJECTIVES)
    assert found.mean_weight["sft"] == 1 and found.mass_percent["sft"] == pytest.approx(50)
    assert found.mean_weight["trim"] == pytest.approx((1 + FAR) / 2)
    rest = 4 * math.exp(-8)
    assert found.mass_percent["trim"] == pytest.approx(100 * (1 + 3 * FAR) / (1 + 3 * FAR + rest), rel=1e-6)
    assert found.mean_weight["dft"] == pytest.approx((math.exp(-0.25) + math.exp(-1.75)) / 2)


def test_endings_of_tables_that_do_not_name_their_eos() -> None:
    table = hand_table([5.0, 1.0, 5.0, -1.0], example=[0, 0, 1, 1])
    found = ending(table)
    assert found is not None and not found.known and found.ended == 2 and found.median_gap == 0
    none = hand_table([5.0, 1.0], token_id=[3, 4], eos_id=2)
    assert ending(none) is None
    several = hand_table([5.0, 1.0], token_id=[3, 4], eos_id=[4, 9])
    assert ending(several) is not None


@given(st.lists(st.floats(-9, 20, width=32), min_size=2, max_size=20), st.randoms())
def test_the_order_of_lines_does_not_matter(gaps, random) -> None:
    table = hand_table(gaps, example=[n % 3 for n in range(len(gaps))])
    order = list(range(len(gaps)))
    random.shuffle(order)
    moved = reordered(table, order)
    one, other = per_example(table, TrimSFT()), per_example(moved, TrimSFT())
    assert np.allclose(one.trimmed_mass_percent, other.trimmed_mass_percent, equal_nan=True)
    assert [row.tokens for row in by_tenth(table, **BAND)] == [row.tokens for row in by_tenth(moved, **BAND)]
    first, second = ending(table), ending(moved)
    assert first is not None and second is not None and first.median_gap == second.median_gap
