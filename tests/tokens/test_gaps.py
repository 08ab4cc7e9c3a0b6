"""The density of gaps, and which tokens moved from where to where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.by_hand import hand_table
from trimsft.errors import RunError
from trimsft.tokens.statistics import density, movement, range_of, silverman

GRID = np.linspace(-12, 30, 421)
BAND = {"margin": 1.0, "bandwidth": 1.0}  # low below 0, middle to 2, high above
gaps_strategy = st.lists(st.floats(-5, 9, width=32), min_size=8, max_size=8)


@pytest.mark.parametrize("count", [50, 20_000])
def test_density_is_the_gaussian_kernel_estimate(count) -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(2, 1, count // 2), rng.normal(12, 4, count // 2)])
    width = silverman(values)
    exact = stats.gaussian_kde(values, bw_method=width / values.std(ddof=1))(GRID)
    assert np.abs(density(values, GRID) - exact).max() < 1e-3 * exact.max()


def test_density_has_area_one_and_a_far_value_takes_its_share() -> None:
    values = np.random.default_rng(1).normal(5, 2, 999)
    step = GRID[1] - GRID[0]
    assert density(values, GRID).sum() * step == pytest.approx(1, abs=1e-3)
    far = density(np.append(values, np.full(333, 1e9)), GRID, bandwidth=0.5)
    assert far.sum() * step == pytest.approx(0.75, abs=1e-3)


def test_silverman_by_hand() -> None:
    values = np.arange(101.0)  # quartiles 25 and 75; the spread is 29.3, less than 50 / 1.34
    assert silverman(values) == pytest.approx(0.9 * values.std(ddof=1) * 101**-0.2)
    values[-1] = 1e6
    assert silverman(values) == pytest.approx(0.9 * 50 / 1.34 * 101**-0.2)


@pytest.mark.parametrize("values", [np.array([]), np.array([3.0]), np.full(9, 3.0), np.array([900.0])])
def test_few_or_equal_values_make_no_trouble(values) -> None:
    found = density(values, GRID)
    assert np.isfinite(found).all() and (found >= 0).all()


def test_range_holds_nearly_all() -> None:
    low, high = range_of([np.linspace(-2, 5, 1000), np.linspace(0, 9.5, 1000)])
    assert (low, high) == (-3, 11)
    assert range_of([]) == (-4, 8)
    assert range_of([np.array([-1e9, 1e9])]) == (-12, 40)


def test_gaps_that_all_lie_beyond_the_usual_ends_have_a_range() -> None:
    assert range_of([np.array([-20.5])]) == (-22, -19)
    assert range_of([np.array([80.0, 81.0])]) == (79, 82)
    assert range_of([np.array([-20.0]), np.array([80.0])]) == (-12, 40)


def test_movement_by_hand() -> None:
    before = hand_table([-1.0, -1.0, 0.0, 2.0, 3.0], nll=[2.0, 2.0, 1.0, 0.5, 0.0], rank=[2, 2, 1, 1, 1])
    after = hand_table([-2.0, 1.0, 5.0, 2.0, -3.0], nll=[3.0, 0.5, 0.0, 0.5, 4.0], rank=[3, 1, 1, 1, 2])
    found = movement(before, after, **BAND)
    assert found.moved_percent.tolist() == [[20, 20, 0], [0, 20, 20], [20, 0, 0]]
    assert found.became_first_percent == 20 and found.ceased_first_percent == 20 and found.tokens == 5
    assert found.mean_gap_change == pytest.approx((-1 + 2 + 5 + 0 - 6) / 5)
    assert found.gap_change[50] == 0 and found.gap_change[75] == 2 and found.gap_change[25] == -1
    assert found.mean_nll_change == pytest.approx((1 - 1.5 - 1 + 0 + 4) / 5)
    with pytest.raises(RunError, match="not about the same tokens"):
        movement(before, hand_table([1.0, 2.0]), **BAND)


@given(gaps_strategy, gaps_strategy)
def test_shares_sum_to_100_and_going_back_is_the_transpose(first, second) -> None:
    there = movement(hand_table(first), hand_table(second), **BAND)
    back = movement(hand_table(second), hand_table(first), **BAND)
    assert there.moved_percent.sum() == pytest.approx(100)
    assert np.array_equal(there.moved_percent, back.moved_percent.T)
    assert there.became_first_percent == back.ceased_first_percent
    assert there.mean_gap_change == pytest.approx(-back.mean_gap_change)
