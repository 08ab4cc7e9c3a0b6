"""Cells keep what the sliders need; tests/analyze/test_viewer.py compares the page's figures with `diagnose`."""

import numpy as np
import pytest

from tests.report.unpacking import unpack
from tests.tokens.tiny import make_table
from trimsft.objectives import PARAMETERS
from trimsft.report.page.cells import cells_each, corpus_cells
from trimsft.tokens import read_token_table
from trimsft.tokens.statistics.weighting import objective_of, weights_of


@pytest.fixture
def table(tmp_path):
    gap = np.random.default_rng(0).normal(3, 6, 4000)
    return read_token_table(make_table(tmp_path / "tokens.parquet", [["12", " so", "$", " a"] * 1000], gap=gap))


def test_a_small_corpus_is_kept_token_by_token(table) -> None:
    packed = corpus_cells(table, PARAMETERS)
    cells = {name: unpack(column) for name, column in packed["columns"].items()}
    assert packed["tokens"] == 4000 and packed["width"] == 0
    assert (cells["count"] == 1).all() and (cells["spread"] == 0).all()
    order = np.lexsort((table["gap"], table["category"]))
    np.testing.assert_array_equal(cells["mean"], table["gap"][order])
    np.testing.assert_array_equal(cells["category"], table["category"][order])
    np.testing.assert_array_equal(cells["norm"], table["gradient_norm"][order])


@pytest.mark.parametrize("most", [50, 500, 3999])
def test_a_large_corpus_is_put_into_cells_that_keep_sums(table, most) -> None:
    packed = corpus_cells(table, PARAMETERS, most)
    cells = {name: unpack(column) for name, column in packed["columns"].items()}
    assert len(cells["count"]) <= most and cells["count"].sum() == 4000
    assert packed["width"] in [2.0**power for power in range(-8, 3)]
    assert (np.sqrt(12) * cells["spread"] <= 2 * packed["width"]).all()
    for kind in range(4):
        of_kind, there = cells["category"] == kind, table["category"] == kind
        assert cells["count"][of_kind].sum() == there.sum()
        assert (cells["count"] * cells["mean"])[of_kind].sum() == pytest.approx(table["gap"][there].sum(), rel=1e-5)
        squares = (cells["count"] * (cells["mean"] ** 2 + cells["spread"] ** 2))[of_kind].sum()
        assert squares == pytest.approx(np.square(table["gap"][there].astype(float)).sum(), rel=1e-5)
        assert cells["norm"][of_kind].sum() == pytest.approx(table["gradient_norm"][there].sum(), rel=1e-5)
    for name in ("dft", "fsft"):
        weights = weights_of(objective_of(name), table)
        assert cells[f"{name}.w"].sum() == pytest.approx(weights.sum(), rel=1e-5)
        assert cells[f"{name}.mass"].sum() == pytest.approx((weights * table["gradient_norm"]).sum(), rel=1e-5)
        assert packed["totals"][name]["high"] == (weights > 0.5).sum()
        assert packed["totals"][name]["squares"] == pytest.approx(np.square(weights).sum())


def test_many_runs_share_the_cells() -> None:
    assert cells_each(1) == cells_each(3) == 32_768 and cells_each(10) == 10_000
