"""SFT beside a sweep: trained at every setting of the fields it takes too, so that tuning is not the method's gain."""

import csv
import io
import json

import numpy as np
import pytest

from tests.study.made_up_scores import exact, results, write_run
from trimsft.study.folder import StudyFolder
from trimsft.study.sweeps.grid import points, read_axes
from trimsft.study.sweeps.sweep import best_of, candidates, select, sweep_cells, swept_of
from trimsft.study.sweeps.writing import conclusions, sweep_record, sweep_table, write_sweep

SLOW, FAST = 2e-4, 1e-3
GRID = points(read_axes([f"learning_rate={SLOW},{FAST}"]))


def swept(scores, grid=GRID, seeds=1):
    """{(objective, learning rate): (easy, hard)} in eighths, without noise."""
    cells = sweep_cells(grid, "lab", seeds)
    found = {
        cell: [
            *exact(scores[cell.objective, cell.get("learning_rate")][0] / 8, benchmarks=("easy",)),
            *exact(scores[cell.objective, cell.get("learning_rate")][1] / 8, benchmarks=("hard",)),
        ]
        for cell in cells
    }
    return swept_of(found, cells, keep=grid, resamples=20)


TUNED = {("sft", SLOW): (2, 2), ("sft", FAST): (5, 4), ("trim", SLOW): (3, 4), ("trim", FAST): (6, 5)}


def test_sft_is_trained_at_every_value_of_the_fields_it_takes_and_once_without():
    grid = points(read_axes(["objective=trim,dft", "margin=1,2", "learning_rate=2e-4,1e-3"]))
    sft = [cell for cell in sweep_cells(grid, "lab", 2) if cell.objective == "sft"]
    assert [(cell.fields, cell.seed) for cell in sft] == [
        ((("learning_rate", rate),), seed) for seed in (0, 1) for rate in (SLOW, FAST)
    ]
    own = sweep_cells(points(read_axes(["objective=trim,fsft", "margin=1,2", "gamma=1,2"])), "lab", 1)
    assert [cell.fields for cell in own if cell.objective == "sft"] == [()]
    assert not [cell for cell in sweep_cells(grid, "lab", 2, baseline=False) if cell.objective == "sft"]


def test_a_point_is_held_against_sft_at_the_same_learning_rate():
    table = sweep_table(swept(TUNED))
    assert [(row[0].text, row[3].text) for row in table.rows] == [
        ("SFT", "0.0002"),
        ("SFT", "0.001"),
        ("TrimSFT", "0.0002"),
        ("TrimSFT", "0.001"),
    ]
    # (3 - 2 + 4 - 2) / 16 and (6 - 5 + 5 - 4) / 16
    assert [row[-1].text for row in table.rows] == ["", "", "+18.8", "+12.5"]
    assert "Against SFT with the same learning_rate." in table.notes
    assert not any("with the same" in note for note in sweep_table(plain()).notes)


def plain():
    cells = sweep_cells(points(read_axes(["margin=0,1"])), "lab", 1)
    return swept_of(results(dict.fromkeys(cells, 0.0)), cells, resamples=20)


def test_the_best_point_is_held_against_the_best_sft_both_chosen_on_one_benchmark():
    chosen = select(swept(TUNED | {("trim", SLOW): (7, 4)}), "easy")
    assert chosen.point.setting.get("learning_rate") == SLOW
    assert chosen.baseline.setting.get("learning_rate") == FAST
    assert chosen.against_sft.value == pytest.approx(0)
    assert ", against SFT (learning_rate 0.001), chosen on easy likewise: +0.0 [" in chosen.sentence()
    alone = select(plain(), "easy").sentence()
    assert ", against SFT +" in alone or ", against SFT -" in alone


def test_where_sft_is_not_finished_there_is_no_difference():
    cells = sweep_cells(GRID, "lab", 1)
    found = {cell: exact(0.5) for cell in cells if cell.name != "lab/sft-learning_rate0.001/seed0"}
    rows = sweep_table(swept_of(found, cells, keep=GRID, resamples=20)).rows
    assert [row[-1].text for row in rows] == ["", "+0.0", ""]


def test_sft_that_is_a_point_stands_in_the_table_once():
    grid = points(read_axes(["objective=sft,trim", f"learning_rate={SLOW},{FAST}"]))
    found = swept(TUNED, grid)
    assert [row[0].text for row in sweep_table(found).rows] == ["SFT", "SFT", "TrimSFT", "TrimSFT"]
    best = select(swept(TUNED | {("sft", FAST): (7, 7)}, grid), "easy")
    assert best.point.setting.objective == "sft" and best.against_sft is None


# ---- files


def test_the_table_for_programs_has_sft_differences_seeds_and_intervals(tmp_path):
    cells = sweep_cells(GRID, "lab", 2)
    found = results({cell: -1.0 if cell.objective == "sft" else 1.0 for cell in cells})
    for cell in cells:
        write_run(StudyFolder(tmp_path), cell, found[cell])
    read = swept_of(found, cells, keep=GRID, resamples=50)
    write_sweep(read, tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "sweep.csv").read_text())))
    assert [(row["objective"], row["learning_rate"]) for row in rows] == [
        (name, rate) for name in ("sft", "trim") for rate in ("0.0002", "0.001")
    ]
    sft, trim = rows[1], rows[3]
    assert sft["against_sft"] == sft["against_sft_low"] == ""
    difference = float(trim["value"]) - float(sft["value"])
    assert float(trim["against_sft"]) == pytest.approx(difference, abs=1e-5)
    assert float(trim["against_sft_low"]) < difference < float(trim["against_sft_high"])
    seeds = [float(score) for score in trim["by_seed"].split()]
    assert len(seeds) == 2 and np.mean(seeds) == pytest.approx(float(trim["value"]), abs=1e-5)
    hard = read.points[1].interval("average", "hard")
    assert [float(trim[f"hard{end}"]) for end in ("", "_low", "_high")] == pytest.approx(
        [hard.value, hard.low, hard.high], abs=1e-5
    )
    assert json.loads((tmp_path / "sweep.json").read_text())["all"][3]["by_seed"] == pytest.approx(seeds, abs=1e-5)


def test_the_slice_and_its_sft_are_those_of_the_chosen_point(tmp_path):
    read = swept(TUNED | {("trim", SLOW): (7, 0)})
    for selection, rate in ((None, FAST), (select(read, "easy"), SLOW)):
        record = sweep_record(read, tmp_path, selection, [], "")
        assert {point["learning_rate"] for point in record["points"]} == {rate}
        assert record["baseline"]["objective"] == "sft" and record["baseline"]["learning_rate"] == rate
    assert record["selection"]["sft"] == {"learning_rate": FAST}


# ---- points that are not finished


def unfinished():
    """The best of three points has one seed of three."""
    grid = points(read_axes(["margin=0,1,2"]))
    cells = sweep_cells(grid, "lab", 3)
    share = {0.0: 0.25, 1.0: 0.5, 2.0: 1.0, None: 0.25}
    kept = [cell for cell in cells if cell.get("margin") != 2 or cell.seed == 0]
    return swept_of({cell: exact(share[cell.get("margin")]) for cell in kept}, cells, keep=grid, resamples=20)


def test_only_points_with_the_most_seeds_are_chosen_among_and_it_is_said():
    read = unfinished()
    assert [point.seeds for point in read.points] == [3, 3, 1]
    assert len(candidates(read.points)) == 2
    assert read.best.setting.get("margin") == 1
    assert best_of(read.points[2:], "average", ["easy"]).setting.get("margin") == 2
    assert select(read, "easy").point.setting.get("margin") == 1
    told = "1 of 3 points had no part in the choice: fewer than 3 trainings are finished."
    for selection in (None, select(read, "easy")):
        assert told in conclusions(read, selection)
    assert "The highest of 2 points is TrimSFT (margin 1, " in conclusions(read, None)[0]


def test_what_is_left_out_has_no_part_in_how_much_too_good_the_best_is():
    grid = points(read_axes(["margin=0,1,2"]))
    cells = sweep_cells(grid, "lab", 2)
    found = results(dict.fromkeys(cells, 0.0))
    kept = {cell: found[cell] for cell in cells if cell.get("margin") != 2}
    one = {cell: found[cell] for cell in cells if cell.get("margin") == 2 and cell.seed == 0}
    with_it, without = (swept_of(some, cells, keep=grid, resamples=20) for some in (kept | one, kept))
    assert len(with_it.points) == 3 and len(without.points) == 2
    assert with_it.optimism(resamples=50) == without.optimism(resamples=50) != 0
