import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.tokens.tiny import make_table
from trimsft.objectives import OBJECTIVES, TrimSFT
from trimsft.tokens import read_token_table
from trimsft.tokens.statistics.weighting import (
    Regions,
    confidence,
    diagnose,
    effective_ratio,
    gradient_mass,
    high_weight_percent,
    objective_of,
    region_percents,
    weights_of,
)

BAND = {"margin": 1.5, "bandwidth": 0.8}
weights_strategy = arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1, allow_subnormal=False))


def test_effective_ratio_by_hand() -> None:
    assert effective_ratio(np.array([1.0, 0.5])) == pytest.approx(1.5**2 / (2 * 1.25))
    assert effective_ratio(np.array([0.0, 0.0, 0.0, 3.0])) == pytest.approx(1 / 4)
    assert effective_ratio(np.full(7, 1e-200)) == pytest.approx(1)  # its squares are 0
    assert math.isnan(effective_ratio(np.zeros(3)))


def test_high_weight_is_above_one_half() -> None:
    assert high_weight_percent(np.array([0.5, 0.51, 1.0, 0.0])) == 50
    assert math.isnan(high_weight_percent(np.array([])))


def test_borders_belong_to_the_middle() -> None:
    gap = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    assert region_percents(gap, np.ones(5), margin=1.0, bandwidth=0.5) == Regions(20, 60, 20)
    assert region_percents(gap, np.array([4, 1, 1, 1, 1.0]), margin=1.0, bandwidth=0.5) == Regions(50, 37.5, 12.5)
    assert math.isnan(region_percents(gap, np.zeros(5), margin=1.0, bandwidth=0.5).low)


def test_gradient_mass_is_weight_times_norm() -> None:
    assert gradient_mass(np.array([1.0, 0.5]), np.array([0.2, 0.4])).tolist() == [0.2, 0.2]


@given(weights_strategy, st.floats(1e-3, 1e3))
def test_effective_ratio_lies_between_one_token_and_all(weights, factor) -> None:
    if weights.max() < 1e-100:
        return
    ratio = effective_ratio(weights)
    assert 1 / len(weights) - 1e-9 <= ratio <= 1 + 1e-9
    assert effective_ratio(weights * factor) == pytest.approx(ratio)


@given(weights_strategy, st.data())
def test_shares_sum_to_100(mass, data) -> None:
    gap = data.draw(arrays(np.float64, len(mass), elements=st.floats(-50, 50)))
    found = region_percents(gap, mass, **BAND)
    if mass.sum() > 0:
        assert found.low + found.middle + found.high == pytest.approx(100)


def test_a_table_under_every_objective(tmp_path) -> None:
    table = read_token_table(make_table(tmp_path / "t.parquet", [["a"] * 16, ["b"] * 15]))
    gap = table["gap"].astype(np.float64)
    found = {name: diagnose(table, objective_of(name), **BAND) for name in OBJECTIVES}
    assert found["sft"].effective_ratio == 1 and found["sft"].high_weight == 100
    assert found["sft"].mean_weight == 1 and found["sft"].tokens == 31
    band = np.exp(-((gap - 1.5) ** 2) / (2 * 0.8**2))
    assert found["trim"].mean_weight == pytest.approx(band.mean(), rel=1e-5)
    assert found["trim"].effective_ratio == pytest.approx(band.sum() ** 2 / (31 * (band**2).sum()), rel=1e-5)
    mass = band * table["gradient_norm"]
    inside = (gap >= 0.7) & (gap <= 2.3)
    assert found["trim"].mass.middle == pytest.approx(100 * mass[inside].sum() / mass.sum(), rel=1e-5)
    assert found["trim-h"].mass.low > found["trim"].mass.low > found["trim-e"].mass.low  # as in the paper
    assert found["trim-e"].mass.high > found["trim"].mass.high
    for one in found.values():
        assert one.mass.low + one.mass.middle + one.mass.high == pytest.approx(100)


def test_parameters_reach_the_objectives_that_take_them(tmp_path) -> None:
    assert objective_of("trim", {"margin": 3, "bandwidth": 2, "gamma": 5, "rows": 9}) == TrimSFT(3, 2)
    assert objective_of("sft", {"margin": 3}).weights is not None
    table = read_token_table(make_table(tmp_path / "t.parquet", [["a"] * 16]))
    two, four = (weights_of(objective_of("fsft", {"gamma": gamma}), table) for gamma in (2, 4))
    assert np.allclose(two**2, four, rtol=1e-5)


def test_confidence_of_a_table(tmp_path) -> None:
    table = read_token_table(make_table(tmp_path / "t.parquet", [["a"] * 16]))  # gaps -3, -2, ..., 12
    found = confidence(table, margin=1.5, bandwidth=0.5)
    assert found.median_gap == 4.5 and found.top == 75
    assert found.regions == Regions(25, 12.5, 62.5)  # -3 to 0; 1 and 2; 3 to 12
    assert found.mean_nll == pytest.approx(np.log1p(np.exp(-np.arange(-3.0, 13))).mean(), rel=1e-5)
