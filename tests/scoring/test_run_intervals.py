"""Intervals over several trainings: against Student's t, wide for two runs, and their coverage."""

import numpy as np
import pytest
from scipy import stats

from trimsft.scoring.intervals import interval_over_runs, mean_interval, student_t


def runs_of(rng: np.random.Generator, problems: int, runs: int, spread: float) -> np.ndarray:
    """average@8 of runs whose log-odds differ by `spread` (sd) on the same problems."""
    odds = rng.normal(0, 1.5, size=(problems, 1)) + rng.normal(0, spread, size=(1, runs))
    return rng.binomial(8, 1 / (1 + np.exp(-odds))) / 8


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30, 500])
def test_student_t_agrees_with_scipy(degrees):
    assert student_t(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-12)


def test_runs_that_differ_alone_have_the_interval_of_student():
    """All problems alike within a run and far from the bounds of lengths: only the trainings vary."""
    means = np.array([300.0, 310.0, 335.0])
    found = interval_over_runs([np.tile(means, (40, 1))], None, resamples=50)
    low, high = stats.t.interval(0.95, 2, means.mean(), stats.sem(means))
    assert (found.value, found.low, found.high) == pytest.approx((315.0, low, high))


def test_one_run_and_equal_runs_have_the_interval_over_problems():
    scores = runs_of(np.random.default_rng(0), 60, 1, 0.0)
    alone = mean_interval([scores], (0, 1), resamples=500)
    assert interval_over_runs([scores], (0, 1), resamples=500) == alone
    assert interval_over_runs([np.repeat(scores, 3, axis=1)], (0, 1), resamples=500) == alone


def test_both_sources_add_in_quadrature_over_benchmarks_too():
    rng = np.random.default_rng(1)
    strata = [runs_of(rng, 80, 4, 0.0) * 0.5 + 0.25 + np.array([0, 0.01, 0.02, 0.05]) for _ in range(2)]
    found = interval_over_runs(strata, (0, 1), resamples=500)
    problems = mean_interval([s.mean(axis=1, keepdims=True) for s in strata], (0, 1), resamples=500)
    runs = np.mean([s.mean(axis=0) for s in strata], axis=0)
    half = stats.t.ppf(0.975, 3) * stats.sem(runs)
    assert found.value == pytest.approx(runs.mean())
    assert (found.high - found.value) ** 2 == pytest.approx((problems.high - found.value) ** 2 + half**2)
    assert (found.value - found.low) ** 2 == pytest.approx((found.value - problems.low) ** 2 + half**2)


def test_it_stays_within_what_the_metric_can_be():
    found = interval_over_runs([np.array([[0.9, 0.1]] * 20)], (0, 1), resamples=50)
    assert (found.low, found.high) == (0, 1)


def test_two_runs_that_differ_are_covered():
    """500 problems, where the training is most of the noise: resampling the two runs covers 79 %."""
    rng = np.random.default_rng(3)
    spread, hits = 0.3, 0
    truth = float((1 / (1 + np.exp(-rng.normal(0, np.hypot(1.5, spread), size=10**6)))).mean())
    for seed in range(200):
        found = interval_over_runs([runs_of(rng, 500, 2, spread)], (0, 1), resamples=100, seed=seed)
        hits += found.low <= truth <= found.high
    assert hits / 200 >= 0.91  # 0.95 less three standard errors


def test_unequal_runs_are_refused():
    with pytest.raises(ValueError, match="equal runs, got"):
        interval_over_runs([np.zeros((3, 1)), np.zeros((3, 2))], (0, 1))
    with pytest.raises(ValueError, match="one or more"):
        interval_over_runs([], (0, 1))
