"""What weights do to tokens, for one objective and over margins and bandwidths: by hand and by their laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.tokens.by_hand import hand_table, reordered
from trimsft.objectives import TrimSFT, make_objective
from trimsft.tokens.statistics import (
    Regions,
    confidence,
    diagnose,
    effective_ratio,
    effective_ratio_grid,
    objective_of,
    region_percents,
    weights_of,
)

BAND = {"margin": 1.5, "bandwidth": 0.8}
weights_strategy = arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1, allow_subnormal=False))
gaps_strategy = st.lists(st.floats(-15, 25, width=32), min_size=1, max_size=30)


def test_effective_ratio_by_hand() -> None:
    assert effective_ratio(np.array([1.0, 0.5])) == pytest.approx(1.5**2 / (2 * 1.25))
    assert effective_ratio(np.array([0.0, 0.0, 0.0, 3.0])) == pytest.approx(1 / 4)
    assert effective_ratio(np.full(7, 1e-200)) == pytest.approx(1)  # its squares are 0
    assert math.isnan(effective_ratio(np.zeros(3)))


def test_borders_belong_to_the_middle() -> None:
    gap = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    assert region_percents(gap, np.ones(5), margin=1.0, bandwidth=0.5) == Regions(20, 60, 20)
    assert region_percents(gap, np.array([4, 1, 1, 1, 1.0]), margin=1.0, bandwidth=0.5) == Regions(50, 37.5, 12.5)
    assert math.isnan(region_percents(gap, np.zeros(5), margin=1.0, bandwidth=0.5).low)


@given(weights_strategy, st.floats(1e-3, 1e3))
def test_effective_ratio_lies_between_one_token_and_all(weights, factor) -> None:
    if weights.max() < 1e-100:
        return
    ratio = effective_ratio(weights)
    assert 1 / len(weights) - 1e-9 <= ratio <= 1 + 1e-9
    assert effective_ratio(weights * factor) == pytest.approx(ratio)


def test_parameters_reach_the_objectives_that_take_them() -> None:
    assert objective_of("trim", {"margin": 3, "bandwidth": 2, "gamma": 5, "rows": 9}) == TrimSFT(3, 2)
    assert weights_of(objective_of("sft", {"margin": 3}), hand_table([1.0, 9.0])).tolist() == [1, 1]
    two, four = (weights_of(objective_of("fsft", {"gamma": gamma}), hand_table([1.0, 2.0])) for gamma in (2, 4))
    assert np.allclose(two**2, four, rtol=1e-5)


def test_confidence_by_hand() -> None:
    found = confidence(hand_table(np.arange(-3.0, 13)), margin=1.5, bandwidth=0.5)
    assert found.median_gap == 4.5 and found.first_choice_percent == 100 * 13 / 16  # at 0 it is a tie
    assert found.regions_percent == Regions(25, 12.5, 62.5)  # -3 to 0; 1 and 2; 3 to 12
    assert found.mean_nll == pytest.approx(np.log1p(np.exp(-np.arange(-3.0, 13))).mean(), rel=1e-5)


def test_weights_by_hand() -> None:
    table = hand_table([1.0, 1.0, 2.0, 3.0])  # weights 1, 1, e^-1/2, e^-2 at (1, 1)
    found = diagnose(table, TrimSFT(1, 1), margin=1, bandwidth=1)
    one, two = math.exp(-0.5), math.exp(-2)
    assert found.high_weight_percent == 75
    assert found.mean_weight == pytest.approx((2 + one + two) / 4)
    assert found.effective_ratio == pytest.approx((2 + one + two) ** 2 / (4 * (2 + one**2 + two**2)))


def test_mass_by_region_by_hand() -> None:
    table = hand_table([-1.0, 1.0, 3.0], norm=[1.0, 0.5, 0.25])  # at (1, 1) all but the middle have weight e^-2
    far = math.exp(-2)
    masses = {"trim": [far, 0.5, 0.25 * far], "trim-e": [far, 0.5, 0.25], "trim-h": [1, 0.5, 0.25 * far]}
    for name, mass in masses.items():
        found = diagnose(table, make_objective(name, margin=1, bandwidth=1), margin=1, bandwidth=1).mass_percent
        expected = tuple(100 * one / sum(mass) for one in mass)
        assert (found.low, found.middle, found.high) == pytest.approx(expected, rel=1e-6)


@given(gaps_strategy, st.floats(-3, 8), st.floats(0.1, 8), st.randoms())
def test_laws_of_diagnoses(gaps, margin, bandwidth, random) -> None:
    table, order = hand_table(gaps), list(range(len(gaps)))
    random.shuffle(order)
    for name in ("trim", "trim-e", "trim-h"):
        objective, band = make_objective(name, margin=margin, bandwidth=bandwidth), (margin, bandwidth)
        one, other = (
            diagnose(t, objective, margin=band[0], bandwidth=band[1]) for t in (table, reordered(table, order))
        )
        total = one.mass_percent.low + one.mass_percent.middle + one.mass_percent.high
        assert math.isnan(total) or total == pytest.approx(100)
        assert math.isnan(one.effective_ratio) or 0 < one.effective_ratio <= 1 + 1e-9
        assert 0 <= one.high_weight_percent <= 100
        assert one.effective_ratio == pytest.approx(other.effective_ratio, rel=1e-12, nan_ok=True)
        assert one.high_weight_percent == other.high_weight_percent


@given(gaps_strategy)
def test_a_very_wide_band_is_sft(gaps) -> None:
    found = diagnose(hand_table(gaps), TrimSFT(1.5, 1e4), margin=1.5, bandwidth=1e4)
    assert found.effective_ratio == pytest.approx(1, abs=1e-4) and found.high_weight_percent == 100


def test_the_plane_agrees_with_the_formula() -> None:
    gap = np.random.default_rng(0).gamma(2.0, 4.0, 5000) - 3
    margins, bandwidths = [-2.0, 0.0, 1.5, 9.0], [0.1, 0.8, 6.0]
    found = effective_ratio_grid(gap, margins, bandwidths)
    for row, bandwidth in enumerate(bandwidths):
        for column, margin in enumerate(margins):
            exact = effective_ratio(np.exp(-((gap - margin) ** 2) / (2 * bandwidth**2)))
            assert found[row, column] == pytest.approx(exact, rel=2e-3)
    assert effective_ratio_grid(np.full(9, 3.3), [100.0], [0.1])[0, 0] == pytest.approx(1)  # no weight, alike
