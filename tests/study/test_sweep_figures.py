"""What a sweep draws: curves of one field, maps of two, the plane of margin and bandwidth, by objective."""

import csv

import pytest

from tests.study.made_up_scores import results
from trimsft.report import figures
from trimsft.study.sweep import points, read_axes, select, sweep_cells, swept_of
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


def test_two_fields_are_a_map_and_one_is_a_curve(tmp_path):
    found = drawn(tmp_path, "objective=trim,dft", "margin=1,2", "learning_rate=1e-4,1e-3")
    assert list(found) == ["map-margin-learning_rate-trim", "curve-learning_rate"]
    pairs = [(row["margin"], row["learning_rate"]) for row in found["map-margin-learning_rate-trim"]]
    assert pairs == [(m, rate) for m in "12" for rate in ("0.0001", "0.001")]
    assert {row["method"] for row in found["curve-learning_rate"]} == {"DFT", "SFT"}
    words = drawn(tmp_path, "lr_scheduler_type=linear,cosine", "packing=true,false")
    assert [row["packing"] for row in words["map-lr_scheduler_type-packing"]] == ["False", "True"] * 2


def test_of_three_fields_two_are_drawn_through_the_chosen_point(tmp_path):
    grid = ("max_steps=10,20", "learning_rate=1e-4,1e-3", "weight_decay=0,0.1")
    (rows,) = drawn(tmp_path, *grid).values()
    assert len(rows) == 4 and {"learning_rate", "max_steps"} < rows[0].keys()
    read = swept(*grid)
    for on in ("easy", "hard"):
        chosen = select(read, on)
        sweep_figures(chosen, tmp_path)
        decay = chosen.best.setting.get("weight_decay")
        rows = list(csv.DictReader((tmp_path / "map-learning_rate-max_steps.csv").read_text().splitlines()))
        other = "hard" if on == "easy" else "easy"
        expected = [
            100 * point.interval("average", other).value
            for point in read.points
            if point.setting.get("weight_decay") == decay
        ]
        assert sorted(float(row["value"]) for row in rows) == pytest.approx(sorted(expected), abs=1e-3)


def test_margin_and_bandwidth_are_plane_and_curves(tmp_path):
    assert list(drawn(tmp_path, "margin=1,2")) == ["plane", "curves"]
    third = drawn(tmp_path, "margin=1,2", "bandwidth=1,2", "learning_rate=1e-4,1e-3")
    assert list(third) == ["plane", "curves"] and len(third["plane"]) == 4
    assert drawn(tmp_path, "objective=trim,dft") == {}
