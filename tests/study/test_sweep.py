"""Sweeps: grids, the choice on one benchmark and the report on others, SFT at the same settings, files."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from tests.study.made_up_scores import exact, folder_of, results, write_run
from trimsft.cli.study import outcomes_output
from trimsft.errors import UsageError
from trimsft.report import figures
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.results import load_results, summarise
from trimsft.study.run import Outcome, run_study
from trimsft.study.scales import SCALES
from trimsft.study.sweep import SweepSettings, Swept, conclusions, points, read_axes, sweep_of, sweep_table, write_sweep

GRID = ("margin=0,1.5", "bandwidth=0.5,1,3")
SLOW, FAST = 2e-4, 1e-3
RATES = points(read_axes([f"learning_rate={SLOW},{FAST}"]), "lab")
TUNED = {("sft", SLOW): (2, 2), ("sft", FAST): (5, 4), ("trim", SLOW): (3, 4), ("trim", FAST): (6, 5)}


@pytest.fixture(autouse=True)
def only_numbers(monkeypatch):
    """What is drawn is in the CSV beside it; pictures take longer."""
    monkeypatch.setattr(figures, "PRINT_FORMATS", ())


def sweep_cells(grid, seeds=1):
    return sweep_of(grid).cells(SCALES["lab"], seeds)


def cells_of(*grids, seeds=1):
    return sweep_cells(points(read_axes(grids), "lab"), seeds)


def band_of(cell):
    return (cell.get("margin"), cell.get("bandwidth"))


def rate_of(cell):
    return cell.get("learning_rate")


def trained(seeds=2, effect=lambda m, tau: -0.6 * tau):
    """A sweep in which the bandwidth alone matters, and SFT is below everything."""
    cells = cells_of(*GRID, seeds=seeds)
    shifts = {cell: -2.5 if cell.objective == "sft" else effect(*band_of(cell)) for cell in cells}
    return cells, results(shifts)


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


def write_runs(out, found):
    for cell, scores in found.items():
        write_run(StudyFolder(out), cell, scores)


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


# ---- grids


def values(text):
    (of_field,) = read_axes([text]).values()
    return of_field


def test_words_become_values():
    assert values("bandwidth=0.5,1, 2") == (0.5, 1, 2)
    assert [type(value) for value in values("max_steps=10,20")] == [int, int]
    assert values("packing=true,false") == (True, False)
    assert values("lr_scheduler_type=cosine,linear") == ("cosine", "linear")
    assert values("learning-rate=1e-4") == (1e-4,)


def test_an_objective_that_does_not_take_a_field_is_made_once():
    axes = read_axes(["objective=trim,dft,fsft", "margin=1,2", "gamma=1,3", "learning_rate=1e-4,2e-4"])
    found = points(axes, "lab")
    assert [point.objective for point in found].count("trim") == 4
    assert [point.objective for point in found].count("dft") == 2
    assert Cell(model="lab", objective="dft", fields=(("learning_rate", 1e-4),)) in found
    assert Cell(model="lab", objective="fsft", fields=(("gamma", 3.0), ("learning_rate", 2e-4))) in found


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        (["margn=1"], "no such field; did you mean margin?"),
        (["margin"], "must be FIELD=VALUES, such as bandwidth=0.5,1,2, got 'margin'"),
        (["margin=1,1.0"], "margin or a value of it is there twice"),
        (["margin=0:6:1"], "--margin: invalid float value: '0:6:1'"),
        (["lr_scheduler_type=cosin"], "cosin is not a valid SchedulerType"),
        (["seed=0,1"], "'seed' is not for a grid; --seeds, --model,"),
        (["hub-token=hf_x"], "'hub_token' is a secret, which a study writes down; set HF_TOKEN in the environment"),
        (["gamma=1,2"], "'gamma' has no effect with objective trim"),
        (["objective=sft,dft", "margin=1"], "has no effect with objective sft or dft"),
        (["objective=trim,dtf"], "grid: objective: unknown name 'dtf'; did you mean 'dft'?"),
        (["bandwidth=0,1"], "bandwidth: must be a finite number > 0, got 0"),
    ],
)
def test_what_could_not_be_trained_is_refused_before_anything_runs(grids, message):
    with pytest.raises(UsageError, match="grid: ") as caught:
        points(read_axes(grids), "lab")
    assert message in str(caught.value) and "\n" not in str(caught.value)


# ---- cells and means


def test_sft_stands_beside_points_at_each_value_it_takes_too():
    cells = cells_of(*GRID, seeds=3)
    assert len(cells) == (6 + 1) * 3 and {cell.seed for cell in cells} == {0, 1, 2}
    assert [cell.objective for cell in cells].count("sft") == 3
    grid = ("objective=trim,dft", "margin=1,2", "learning_rate=2e-4,1e-3")
    sft = [cell for cell in cells_of(*grid, seeds=2) if cell.objective == "sft"]
    assert [(cell.fields, cell.seed) for cell in sft] == [
        ((("learning_rate", rate),), seed) for seed in (0, 1) for rate in (SLOW, FAST)
    ]
    own = cells_of("objective=trim,fsft", "margin=1,2", "gamma=1,2")
    assert [cell.fields for cell in own if cell.objective == "sft"] == [()]
    assert [cell.objective for cell in cells_of("objective=sft,trim", "margin=1,2")] == ["sft", "trim", "trim"]


def test_missing_points_are_counted():
    cells, found = trained()
    swept = read({cell: found[cell] for cell in cells[:-2]}, cells)
    assert "Not finished: 2, such as a." in conclusions(swept, missing=["a", "b"])
    assert read({}, cells).points == []


# ---- choice


def test_one_benchmark_chooses_and_the_others_report():
    scores = {(0, 1): (7, 2), (1, 1): (3, 6), (0, 2): (4, 4), (1, 2): (5, 5)}
    cells = [cell for cell in cells_of("margin=0,1", "bandwidth=1,2") if cell.objective != "sft"]
    chosen = eighths(cells, scores, band_of, on="easy")
    assert chosen.best.setting.band == (0, 1) and chosen.reported == ["hard"]
    assert (chosen.interval(chosen.best).value, chosen.best.interval("average", "easy").value) == pytest.approx(
        (2 / 8, 7 / 8)
    )
    assert "Chosen on easy: TrimSFT (margin 0, bandwidth 1). On hard: 25.0 [" in conclusions(chosen)[0]
    assert "87.5" not in conclusions(chosen)[0], "the score it was chosen by is no result"
    assert eighths(cells, scores, band_of, on="hard").best.setting.band == (1, 1)
    (said, *_) = conclusions(eighths(cells, scores, band_of))
    assert said.startswith("The highest of 4 points is TrimSFT (margin 1, bandwidth 2): 62.5. As the best of several")
    assert "--select-on BENCHMARK chooses on one" in said


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


def test_a_sweep_leaves_tables_figures_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "PRINT_FORMATS", (".svg", ".pdf", ".png"))
    cells, found = trained()
    out = tmp_path / "sweep"
    monkeypatch.setattr("sys.argv", ["trimsft", "sweep", "--out", str(out)])
    write_runs(out, found)
    StudyFolder(out).settle(replace(SCALES["lab"], benchmarks=("easy", "hard")), [])
    swept = read(load_results(cells, out), cells, on="easy", resamples=10_000)
    files = write_sweep(swept.grid, "easy", cells, out)
    names = [name for name in folder_of(out) if not name.startswith(("runs/", "config", "cells", "."))]
    drawn = [f"figures/{name}.{kind}" for name in ("curves",) for kind in ("csv", "pdf", "png", "svg")]
    assert names == [*drawn, "report.html", "sweep.csv", "sweep.json", "sweep.md", "sweep.txt"]
    assert sorted(str(path.relative_to(out)) for path in files) == names
    text = (out / "sweep.md").read_text()
    assert "Chosen on easy" in text and "![curves](figures/curves.png)" in text
    rows = rows_of(out / "sweep.csv")
    assert [row["benchmark"] for row in rows] == ["easy", "hard", "average"] * 7
    assert [row["objective"] for row in rows][::3] == ["sft", *["trim"] * 6]
    seen, page = json.loads((out / "sweep.json").read_text()), (out / "report.html").read_text()
    assert (seen["metric"], seen["benchmarks"], seen["selected_on"]) == ("average@8", ["hard"], "easy")
    assert (out / seen["best"]).is_dir() and seen["notes"][0] in page
    assert seen["command"] == "trimsft sweep --out sweep" and str(tmp_path) not in page
    assert f">{100 * swept.rival.interval('average', 'hard').value:.1f}" in page


def test_files_have_sft_differences_seeds_and_intervals(tmp_path):
    cells = sweep_cells(RATES, 2)
    found = results({cell: -1.0 if cell.objective == "sft" else 1.0 for cell in cells})
    write_runs(tmp_path, found)
    StudyFolder(tmp_path).settle(replace(SCALES["lab"], benchmarks=("easy", "hard")), cells)
    write_sweep(RATES, None, cells, tmp_path)
    rows = {(row["objective"], row["learning_rate"], row["benchmark"]): row for row in rows_of(tmp_path / "sweep.csv")}
    trim, sft = (rows[name, "0.001", "average"] for name in ("trim", "sft"))
    seeds = [float(score) for score in trim["by_seed"].split()]
    assert len(seeds) == 2 and np.mean(seeds) == pytest.approx(float(trim["value"]), abs=1e-5)
    difference = float(trim["value"]) - float(sft["value"])
    assert sft["against_sft"] == "" and float(trim["against_sft"]) == pytest.approx(difference, abs=1e-5)
    assert float(trim["against_sft_low"]) < difference < float(trim["against_sft_high"])


# ---- the command


def run_command(monkeypatch, out, failing=(), **options):
    """`trimsft sweep` but for the training: cells get made-up scores, or fail."""
    data = out.parent / "data"
    data.mkdir(exist_ok=True)
    for name in ("easy", "hard"):
        (data / f"{name}.jsonl").write_text('{"id": "1", "problem": "1 + 1", "answer": "2"}\n')

    def pretend(cells, scale, folder, **how):
        folder.settle(scale, cells)
        done = {cell: folder.run(cell) for cell in cells if cell.objective not in failing}
        write_runs(folder.out, results(dict.fromkeys(done, 0.0)))
        return Outcome(folder, done, {cell: "out of memory" for cell in cells if cell not in done})

    monkeypatch.setattr("trimsft.study.run.run_cells", pretend)
    options |= {"benchmarks": (str(data / "easy.jsonl"), str(data / "hard.jsonl")), "out": out}
    (outcome,) = run_study(SweepSettings(grid=("objective=trim,dft", "margin=1,2"), **options))
    return outcome, "\n".join(outcomes_output([outcome]).lines)


def test_the_command_trains_chooses_writes_and_shows(monkeypatch, tmp_path):
    outcome, shown = run_command(monkeypatch, tmp_path / "sweep", select_on="easy")
    record = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [row["objective"] for row in record["rows"]][::3] == ["sft", "trim", "trim", "dft"]
    assert "Chosen on easy" in shown and "report.html" in shown and record["command"]
    assert outcome.failures() == [] == list(outcome.as_dict()["failed"])
    outcome, shown = run_command(monkeypatch, tmp_path / "some", failing=("dft",))
    (failure,) = outcome.failures()
    assert failure.startswith("lab/dft/seed0: out of memory; see ")
    assert "Not finished: 1, such as lab/dft/seed0." in shown
    outcome, shown = run_command(monkeypatch, tmp_path / "all", failing=("dft", "trim", "sft"))
    assert outcome.files == [] and len(outcome.failures()) == 4
