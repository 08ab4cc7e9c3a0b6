"""Intervals: against Clopper and Pearson and Student's t, at the edges, over runs; coverage."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from trimsft.evaluate.metrics import majority_at_k, pass_at_k
from trimsft.intervals import interval_over_runs, mean_intervals, student_t


@pytest.mark.parametrize(("right", "problems"), [(0, 30), (1, 40), (20, 40), (198, 200), (200, 200)])
def test_one_answer_a_problem_has_clopper_pearson_limits(right, problems):
    values = np.repeat([1.0, 0.0], [right, problems - right])[:, None]
    ours = interval_over_runs([values], (0, 1), resamples=20_000)
    theirs = stats.binomtest(right, problems).proportion_ci(0.95, method="exact")
    width = theirs.high - theirs.low
    assert ours.value == pytest.approx(right / problems)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.04 * width)


@pytest.mark.parametrize(
    ("value", "bounds", "low", "high"),
    [
        (0.0, (0, 1), 0, 0.1157),  # 1 - 0.025^(1/30)
        (1.0, (0, 1), 0.8843, 1),
        (0.0, (-1, 1), -0.1157, 0.1157),  # no difference at all among 30 problems
        (312.0, (0, math.inf), 312, 312),
    ],
)
def test_equal_problems_leave_room_for_an_exception(value, bounds, low, high):
    found = interval_over_runs([np.full((30, 1), value)], bounds, resamples=20_000)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.006)


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=3), st.integers(0, 3))
@example([[4, 4, 4, 2]], 0)  # pass@3 is 1 for all four problems
def test_no_interval_leaves_the_bounds_of_its_values(strata, seed):
    curves = [np.array([[pass_at_k(4, c, k) for k in range(1, 5)] for c in counts]) for counts in strata]
    for sign, bounds in ((1, (0, 1)), (1, (-1, 1)), (-1, (-1, 1))):
        found = mean_intervals([sign * curve for curve in curves], [bounds] * 4, resamples=300, seed=seed)
        assert all(bounds[0] <= one.low <= one.value <= one.high <= bounds[1] for one in found)


def test_scores_near_1_are_covered():
    """average@8, pass@4 and majority@4 of 200 problems, mostly easy ones; BCa covers 72 %."""
    rng = np.random.default_rng(2)
    right = {0: True, 1: False}
    votes = np.array([majority_at_k([0] * c + [1] * (8 - c), 4, correct=right) for c in range(9)])
    curves = np.stack([np.arange(9) / 8, np.array([pass_at_k(8, c, 4) for c in range(9)]), votes], axis=1)
    truth = stats.binom.pmf(np.arange(9), 8, rng.beta(4.85, 0.15, size=20_000)[:, None]).mean(axis=0) @ curves
    hits = np.zeros(3)
    for seed in range(150):
        counts = rng.binomial(8, rng.beta(4.85, 0.15, size=200))
        found = mean_intervals([curves[counts]], [(0, 1)] * 3, resamples=300, seed=seed)
        hits += [one.low <= true <= one.high for one, true in zip(found, truth, strict=True)]
    assert hits.min() / 150 >= 0.93


@pytest.mark.parametrize("values", [np.zeros((0, 1)), np.full((2, 1), np.nan)])
def test_no_problem_and_no_number_are_refused(values):
    with pytest.raises(ValueError, match="must be finite, of one problem or more"):
        interval_over_runs([values], (0, 1), resamples=10)


def runs_of(rng: np.random.Generator, problems: int, runs: int, spread: float) -> np.ndarray:
    """average@8 of runs whose log-odds differ by `spread` (sd) on the same problems."""
    odds = rng.normal(0, 1.5, size=(problems, 1)) + rng.normal(0, spread, size=(1, runs))
    return rng.binomial(8, 1 / (1 + np.exp(-odds))) / 8


def test_both_sources_add_in_quadrature_over_benchmarks_too():
    rng = np.random.default_rng(1)
    strata = [runs_of(rng, 80, 4, 0.0) * 0.5 + 0.25 + np.array([0, 0.01, 0.02, 0.05]) for _ in range(2)]
    found = interval_over_runs(strata, (0, 1), resamples=500)
    problems = interval_over_runs([s.mean(axis=1, keepdims=True) for s in strata], (0, 1), resamples=500)
    runs = np.mean([s.mean(axis=0) for s in strata], axis=0)
    half = stats.t.ppf(0.975, 3) * stats.sem(runs)
    assert student_t(3) == pytest.approx(stats.t.ppf(0.975, 3), rel=1e-12)
    assert found.value == pytest.approx(runs.mean())
    assert (found.high - found.value) ** 2 == pytest.approx((problems.high - found.value) ** 2 + half**2)
    assert (found.value - found.low) ** 2 == pytest.approx((found.value - problems.low) ** 2 + half**2)


def test_two_runs_that_differ_are_covered():
    """500 problems, where most of the noise is the training's; resampling two runs covers 79 %."""
    rng = np.random.default_rng(3)
    spread, hits = 0.3, 0
    truth = float((1 / (1 + np.exp(-rng.normal(0, np.hypot(1.5, spread), size=10**6)))).mean())
    for seed in range(200):
        found = interval_over_runs([runs_of(rng, 500, 2, spread)], (0, 1), resamples=100, seed=seed)
        hits += found.low <= truth <= found.high
    assert hits / 200 >= 0.91  # 0.95 less three standard errors
