"""Weights over margin and bandwidth, by hand and by their laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokens.by_hand import hand_table, reordered
from trimsft.paper import Setting
from trimsft.tokens.statistics.grids import (
    PAPER_MASS,
    PAPER_SETTINGS,
    effective_ratio_grid,
    mass_by_region,
    weight_diagnostics,
)
from trimsft.tokens.statistics.weighting import effective_ratio

gaps_strategy = st.lists(st.floats(-15, 25, width=32), min_size=1, max_size=30)


def test_the_papers_settings() -> None:
    assert PAPER_SETTINGS == ((1, 1), (3, 1), (6, 1), (1, 3), (1, 6), (6, 3), (6, 6))
    assert PAPER_MASS == ((1, 1), (3, 1), (5, 1))


def test_weights_by_hand() -> None:
    table = hand_table([1.0, 1.0, 2.0, 3.0])  # weights 1, 1, e^-1/2, e^-2 at (1, 1)
    (found,) = weight_diagnostics(table, [Setting(1, 1)])
    one, two = math.exp(-0.5), math.exp(-2)
    assert found.high_weight == 75
    assert found.mean_weight == pytest.approx((2 + one + two) / 4)
    assert found.effective_ratio == pytest.approx((2 + one + two) ** 2 / (4 * (2 + one**2 + two**2)))
    assert found.setting == (1, 1)


def test_mass_by_region_by_hand() -> None:
    table = hand_table([-1.0, 1.0, 3.0], norm=[1.0, 0.5, 0.25])  # at (1, 1) all but the middle have weight e^-2
    found = {row.objective: row.mass for row in mass_by_region(table, [Setting(1, 1)])}
    far = math.exp(-2)
    trim = np.array([far, 0.5, 0.25 * far])
    easy, hard = np.array([far, 0.5, 0.25]), np.array([1, 0.5, 0.25 * far])
    for name, mass in (("trim", trim), ("trim-e", easy), ("trim-h", hard)):
        shares = (found[name].low, found[name].middle, found[name].high)
        assert shares == pytest.approx(tuple(100 * mass / mass.sum()), rel=1e-6)


@given(gaps_strategy, st.floats(-3, 8), st.floats(0.1, 8))
def test_shares_sum_to_100_and_ratios_are_ratios(gaps, margin, bandwidth) -> None:
    table = hand_table(gaps)
    setting = Setting(margin, bandwidth)
    for row in mass_by_region(table, [setting]):
        total = row.mass.low + row.mass.middle + row.mass.high
        assert math.isnan(total) or total == pytest.approx(100)
    (found,) = weight_diagnostics(table, [setting])
    assert math.isnan(found.effective_ratio) or 0 < found.effective_ratio <= 1 + 1e-9
    assert 0 <= found.high_weight <= 100


@given(gaps_strategy, st.randoms())
def test_the_order_of_tokens_does_not_matter(gaps, random) -> None:
    table = hand_table(gaps)
    order = list(range(len(gaps)))
    random.shuffle(order)
    moved = reordered(table, order)
    for one, other in zip(weight_diagnostics(table), weight_diagnostics(moved), strict=True):
        assert one.effective_ratio == pytest.approx(other.effective_ratio, rel=1e-12, nan_ok=True)
        assert one.high_weight == other.high_weight


@given(gaps_strategy)
def test_a_very_wide_band_is_sft(gaps) -> None:
    (found,) = weight_diagnostics(hand_table(gaps), [Setting(1.5, 1e4)])
    assert found.effective_ratio == pytest.approx(1, abs=1e-4) and found.high_weight == 100


def test_the_plane_agrees_with_the_formula() -> None:
    gap = np.random.default_rng(0).gamma(2.0, 4.0, 5000) - 3
    margins, bandwidths = [-2.0, 0.0, 1.5, 9.0], [0.1, 0.8, 6.0]
    found = effective_ratio_grid(gap, margins, bandwidths)
    for row, bandwidth in enumerate(bandwidths):
        for column, margin in enumerate(margins):
            exact = effective_ratio(np.exp(-((gap - margin) ** 2) / (2 * bandwidth**2)))
            assert found[row, column] == pytest.approx(exact, rel=2e-3)
    assert effective_ratio_grid(np.full(9, 3.3), [100.0], [0.1])[0, 0] == pytest.approx(1)  # no weight, alike
