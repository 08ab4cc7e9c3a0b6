"""What a sweep draws: curves of one field, and of margin and bandwidth, by objective."""

import csv

import pytest

from tests.study.made_up_scores import results
from trimsft.report import figures
from trimsft.study.sweep import points, read_axes, sweep_cells, swept_of
from trimsft.study.sweep_tables import sweep_figures


@pytest.fixture(autouse=True)
def only_numbers(monkeypatch):
    """What is drawn is in the CSV beside it; pictures take longer."""
    monkeypatch.setattr(figures, "PRINT_FORMATS", ())


def swept(*grids, objective="trim", **options):
    grid = points(read_axes(grids), "lab", objective)
    cells = sweep_cells(grid, 1, **options)
    return swept_of(results(dict.fromkeys(cells, 0.0)), cells, keep=grid, resamples=20)


def drawn(folder, *grids, **options):
    """{name: rows of its CSV}."""
    files = sweep_figures(swept(*grids, **options), folder)
    return {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in files if path.suffix == ".csv"}


def test_one_field_is_a_curve_for_each_objective_and_for_sft(tmp_path):
    found = drawn(tmp_path, "objective=trim,dft", "learning_rate=1e-4,1e-3,2e-3")
    assert list(found) == ["curve-learning_rate"]
    rows = found["curve-learning_rate"]
    assert [(row["method"], row["learning_rate"]) for row in rows] == [
        (name, rate) for name in ("TrimSFT", "DFT", "SFT") for rate in ("0.0001", "0.001", "0.002")
    ]
    assert all(float(row["low"]) < float(row["value"]) < float(row["high"]) for row in rows)


def test_a_field_that_sft_does_not_take_has_sft_as_a_line(tmp_path):
    found = drawn(tmp_path, "gamma=1,2", objective="fsft")
    assert [row["method"] for row in found["curve-gamma"]] == ["FSFT", "FSFT", "SFT"]
    assert found["curve-gamma"][-1]["gamma"] == ""
    assert len(drawn(tmp_path, "gamma=1,2", objective="fsft", baseline=False)["curve-gamma"]) == 2


def test_margin_and_bandwidth_are_curves_and_two_other_fields_are_not_drawn(tmp_path):
    assert list(drawn(tmp_path, "margin=1,2")) == ["curves"]
    third = drawn(tmp_path, "margin=1,2", "bandwidth=1,2", "learning_rate=1e-4,1e-3")
    assert list(third) == ["curves"] and len(third["curves"]) == 5
    assert drawn(tmp_path, "objective=trim,dft") == {}
    found = drawn(tmp_path, "objective=trim,dft", "margin=1,2", "learning_rate=1e-4,1e-3")
    assert {row["method"] for row in found["curve-learning_rate"]} == {"DFT", "SFT"} and len(found) == 1
