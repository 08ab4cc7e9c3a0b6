"""Which tokens moved from where to where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.by_hand import hand_table
from trimsft.errors import RunError
from trimsft.tokens.statistics.gaps import movement

BAND = {"margin": 1.0, "bandwidth": 1.0}  # low below 0, middle to 2, high above
gaps_strategy = st.lists(st.floats(-5, 9, width=32), min_size=8, max_size=8)


def test_by_hand() -> None:
    before = hand_table([-1.0, -1.0, 0.0, 2.0, 3.0], nll=[2.0, 2.0, 1.0, 0.5, 0.0], rank=[2, 2, 1, 1, 1])
    after = hand_table([-2.0, 1.0, 5.0, 2.0, -3.0], nll=[3.0, 0.5, 0.0, 0.5, 4.0], rank=[3, 1, 1, 1, 2])
    found = movement(before, after, **BAND)
    assert found.shares.tolist() == [[20, 20, 0], [0, 20, 20], [20, 0, 0]]
    assert found.became_first == 20 and found.ceased_first == 20 and found.tokens == 5
    assert found.mean_gap_change == pytest.approx((-1 + 2 + 5 + 0 - 6) / 5)
    assert found.gap_change[50] == 0 and found.gap_change[75] == 2 and found.gap_change[25] == -1
    assert found.mean_nll_change == pytest.approx((1 - 1.5 - 1 + 0 + 4) / 5)


def test_nothing_moved() -> None:
    table = hand_table([-1.0, 1.0, 3.0, 3.0])
    found = movement(table, table, **BAND)
    assert found.shares.tolist() == [[25, 0, 0], [0, 25, 0], [0, 0, 50]]
    assert found.became_first == found.ceased_first == found.mean_gap_change == 0


@pytest.mark.parametrize(
    "other",
    [
        hand_table([1.0, 2.0, 3.0]),
        hand_table([1.0, 2.0], token_id=[0, 5]),
        hand_table([1.0, 2.0], example=[0, 1]),
    ],
)
def test_other_tokens_are_refused(other) -> None:
    with pytest.raises(RunError, match="not about the same tokens"):
        movement(hand_table([1.0, 2.0]), other, **BAND)


@given(gaps_strategy, gaps_strategy)
def test_shares_sum_to_100_and_going_back_is_the_transpose(first, second) -> None:
    there = movement(hand_table(first), hand_table(second), **BAND)
    back = movement(hand_table(second), hand_table(first), **BAND)
    assert there.shares.sum() == pytest.approx(100)
    assert np.array_equal(there.shares, back.shares.T)
    assert there.became_first == back.ceased_first
    assert there.mean_gap_change == pytest.approx(-back.mean_gap_change)
