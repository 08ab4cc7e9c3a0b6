"""Sweeps: grids, the choice on one benchmark and the report on others, SFT beside, files."""

import csv
import io
import json

import numpy as np
import pytest

from tests.study.made_up_scores import exact, results, write_run
from trimsft.cli.study import outcomes_output
from trimsft.errors import UsageError
from trimsft.study.cell import Cell
from trimsft.study.results import summarise
from trimsft.study.run import Outcome, run_study
from trimsft.study.scales import SCALES
from trimsft.study.sweep import SweepSettings, Swept, conclusions, points, read_axes, sweep_of, sweep_table

SLOW, FAST = 2e-4, 1e-3
RATES = points(read_axes([f"learning_rate={SLOW},{FAST}"]), "lab")
TUNED = {("sft", SLOW): (2, 2), ("sft", FAST): (5, 4), ("trim", SLOW): (3, 4), ("trim", FAST): (6, 5)}


def sweep_cells(grid, seeds=1):
    return sweep_of(grid).cells(SCALES["lab"], seeds)


def cells_of(*grids, seeds=1):
    return sweep_cells(points(read_axes(grids), "lab"), seeds)


def band_of(cell):
    return (cell.get("margin"), cell.get("bandwidth"))


def rate_of(cell):
    return cell.get("learning_rate")


def read(found, cells, keep=None, on=None, resamples=20):
    keep = keep or [cell for cell in cells if cell.objective != "sft"]
    grid = dict.fromkeys(cell.setting for cell in keep)
    return Swept(summarise(found, resamples=resamples), tuple(grid), on)


def eighths(cells, scores, key, keep=None, on=None):
    """{key of a cell: (easy, hard)} in eighths, without noise."""
    found = {
        cell: [
            each
            for name, eighth in zip(("easy", "hard"), scores[key(cell)], strict=True)
            for each in exact(eighth / 8, benchmarks=(name,))
        ]
        for cell in cells
    }
    return read(found, cells, keep, on)


def by_rate(scores, on=None):
    return eighths(sweep_cells(RATES, 1), scores, lambda cell: (cell.objective, rate_of(cell)), RATES, on)


def test_an_objective_that_does_not_take_a_field_is_made_once():
    axes = read_axes(["objective=trim,dft,fsft", "margin=1,2", "gamma=1,3", "learning_rate=1e-4,2e-4"])
    found = points(axes, "lab")
    assert [point.objective for point in found].count("trim") == 4
    assert [point.objective for point in found].count("dft") == 2
    assert Cell(model="lab", objective="dft", fields=(("learning_rate", 1e-4),)) in found
    assert Cell(model="lab", objective="fsft", fields=(("gamma", 3.0), ("learning_rate", 2e-4))) in found


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("margn=1", "no such field; did you mean margin?"),
        ("margin", "grid: must be FIELD=VALUES, such as bandwidth=0.5,1,2, got 'margin'"),
        ("margin=0:6:1", "margin: must be a finite number, got '0:6:1'"),
        ("seed=0,1", "seed: has no effect with objective 'trim'"),
        ("hub-token=hf_x", "'hub_token' is a secret, which a study writes down"),
        ("gamma=1,2", "grid: 'gamma' has no effect with objective trim"),
        ("objective=trim,dtf", "objective: unknown name 'dtf'; did you mean 'dft'?"),
        ("bandwidth=0,1", "bandwidth: must be a finite number > 0, got 0"),
    ],
)
def test_what_could_not_be_trained_is_refused_before_anything_runs(grid, message, tmp_path):
    with pytest.raises(UsageError) as caught:
        run_study(SweepSettings(grid=(grid,), out=tmp_path / "out"))
    assert message in str(caught.value) and list(tmp_path.iterdir()) == []


# ---- cells and means


def test_sft_stands_beside_points_at_each_value_it_takes_too():
    grid = ("objective=trim,dft", "margin=1,2", "learning_rate=2e-4,1e-3")
    sft = [cell for cell in cells_of(*grid, seeds=2) if cell.objective == "sft"]
    assert [(cell.fields, cell.seed) for cell in sft] == [
        ((("learning_rate", rate),), seed) for seed in (0, 1) for rate in (SLOW, FAST)
    ]
    assert [cell.objective for cell in cells_of("objective=sft,trim", "margin=1,2")] == ["sft", "trim", "trim"]


# ---- choice


def test_one_benchmark_chooses_and_the_others_report():
    scores = {(0, 1): (7, 2), (1, 1): (3, 6), (0, 2): (4, 4), (1, 2): (5, 5)}
    cells = [cell for cell in cells_of("margin=0,1", "bandwidth=1,2") if cell.objective != "sft"]
    chosen = eighths(cells, scores, band_of, on="easy")
    assert chosen.best.setting.band == (0, 1) and chosen.reported == ["hard"]
    assert [chosen.best.interval("average", name).value for name in ("hard", "easy")] == pytest.approx([2 / 8, 7 / 8])
    assert "Chosen on easy: TrimSFT (margin 0, bandwidth 1). On hard: 25.0 [" in conclusions(chosen)[0]
    assert "87.5" not in conclusions(chosen)[0], "the score it was chosen by is no result"
    assert eighths(cells, scores, band_of, on="hard").best.setting.band == (1, 1)
    assert "--select-on BENCHMARK chooses on one" in conclusions(eighths(cells, scores, band_of))[0]


def test_best_point_and_best_sft_are_chosen_alike():
    chosen = by_rate(TUNED | {("trim", SLOW): (7, 4)}, on="easy")
    assert rate_of(chosen.best.setting) == SLOW and rate_of(chosen.rival.setting) == FAST
    assert ", against SFT (learning_rate 0.001), chosen likewise: +0.0 [" in conclusions(chosen)[0]


def test_points_with_fewer_seeds_are_not_chosen():
    """The best of three points has one seed of three."""
    grid = points(read_axes(["margin=0,1,2"]), "lab")
    cells = sweep_cells(grid, 3)
    share = {0.0: 0.25, 1.0: 0.5, 2.0: 1.0, None: 0.25}
    kept = [cell for cell in cells if cell.get("margin") != 2 or cell.seed == 0]
    for on in (None, "easy"):
        found = read({cell: exact(share[cell.get("margin")]) for cell in kept}, cells, grid, on)
        assert [point.seeds for point in found.points] == [3, 3, 1]
        assert found.best.setting.get("margin") == 1


# ---- the table


def test_sft_has_the_same_learning_rate_as_the_point():
    table = sweep_table(by_rate(TUNED))
    assert [row[0].text for row in table.rows][::2] == [
        "SFT (learning_rate 0.0002)",
        "TrimSFT (margin 1.5, bandwidth 0.8, learning_rate 0.0002)",
    ]
    # (3 - 2 + 4 - 2) / 16 and (6 - 5 + 5 - 4) / 16
    assert [row[-1].text for row in table.rows] == ["", "", "+18.8", "+12.5"]
    cells = sweep_cells(RATES, 1)
    found = {cell: exact(0.5) for cell in cells if cell.name != "lab/sft-learning_rate0.001/seed0"}
    assert [row[-1].text for row in sweep_table(read(found, cells, RATES)).rows] == ["", "+0.0", ""]


# ---- files


def run_command(monkeypatch, out):
    """`trimsft sweep` but for the training: cells get made-up scores, TrimSFT the best, or fail."""
    data, shifts = out / "data", {"sft": -2.5, "dft": -1.0, "trim": 0.5}
    data.mkdir(parents=True)
    for name in ("easy", "hard"):
        (data / f"{name}.jsonl").write_text('{"id": "1", "problem": "1 + 1", "answer": "2"}\n')

    def pretend(cells, scale, folder, **how):
        folder.settle(scale, cells)
        *done, failed = cells
        for cell, scores in results({cell: shifts[cell.objective] for cell in done}).items():
            write_run(folder, cell, scores)
        return Outcome(folder, {cell: folder.run(cell) for cell in done}, {failed: "out of memory"})

    monkeypatch.setattr("trimsft.study.run.run_cells", pretend)
    names = tuple(str(data / f"{name}.jsonl") for name in ("easy", "hard"))
    options = {"benchmarks": names, "select_on": "easy", "seeds": 2}
    (outcome,) = run_study(SweepSettings(grid=("objective=trim,dft", "margin=1,2"), out=out, **options))
    return outcome, "\n".join(outcomes_output([outcome]).lines)


def test_a_sweep_leaves_tables_and_a_page(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["trimsft", "sweep", "--out", str(tmp_path)])
    outcome, shown = run_command(monkeypatch, tmp_path)
    names = ["report.html", "sweep.csv", "sweep.json", "sweep.md", "sweep.txt"]
    assert sorted(str(path.relative_to(tmp_path)) for path in outcome.files) == names
    assert "Chosen on easy" in shown and "report.html" in shown
    assert outcome.failures()[0].startswith("lab/dft/seed1: out of memory; see ")
    assert "Not finished: 1, such as lab/dft/seed1." in shown
    rows = list(csv.DictReader(io.StringIO((tmp_path / "sweep.csv").read_text())))
    assert [row["benchmark"] for row in rows] == ["easy", "hard", "average"] * 4
    assert [row["objective"] for row in rows][::3] == ["sft", "trim", "trim", "dft"]
    seen, page = json.loads((tmp_path / "sweep.json").read_text()), (tmp_path / "report.html").read_text()
    assert (seen["metric"], seen["benchmarks"], seen["selected_on"]) == ("average@8", ["hard"], "easy")
    assert (tmp_path / seen["best"]).is_dir() and seen["notes"][0] in page
    assert seen["command"] == f"trimsft sweep --out {tmp_path.name}" and str(tmp_path) not in page
    sft, trim = rows[2], rows[5]
    seeds = [float(score) for score in trim["by_seed"].split()]
    assert len(seeds) == 2 and np.mean(seeds) == pytest.approx(float(trim["value"]), abs=1e-5)
    difference = float(trim["value"]) - float(sft["value"])
    assert sft["against_sft"] == "" and float(trim["against_sft"]) == pytest.approx(difference, abs=1e-5)
    assert float(trim["against_sft_low"]) < difference < float(trim["against_sft_high"])
