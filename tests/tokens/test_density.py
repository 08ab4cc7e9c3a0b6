import numpy as np
import pytest

from trimsft.tokens.statistics.gaps import density, range_of, silverman

GRID = np.linspace(-12, 30, 421)


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
