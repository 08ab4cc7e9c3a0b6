"""Cost against size: exponents are right, and every series can be measured."""

from importlib import import_module

import pytest

from benchmarks.growth.__main__ import SERIES, fitted
from benchmarks.growth.measuring import slope


def test_exponents_of_known_laws() -> None:
    sizes = [10, 100, 1000]
    assert slope(sizes, [0.3 * size for size in sizes]) == pytest.approx(1)
    assert slope(sizes, [size**2 for size in sizes]) == pytest.approx(2)
    assert slope(sizes, [7.0] * 3) == pytest.approx(0, abs=1e-3)
    assert slope(sizes, [0.0, 0.0, 4.0]) is None  # nothing to fit
    points = [{"size": size, "seconds": 5 + size, "peak_mb": 40.0} for size in reversed(sizes)]
    entry = fitted({"points": points})
    assert [point["size"] for point in entry["points"]] == sizes
    assert entry["time"]["slope"] < entry["time"]["slope_at_the_end"] < 1
    assert entry["memory"]["slope"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("name", SERIES)
def test_every_series_names_functions_that_exist(name: str) -> None:
    series = SERIES[name]
    module = import_module(f"benchmarks.growth.{series.module}")
    assert all(callable(getattr(module, function)) for function in (series.work, series.make) if function)
    assert series.sizes or series.cuda_sizes
