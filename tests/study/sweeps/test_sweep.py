"""Sweeps: cells, intervals over seeds, the choice on one benchmark and the report on others, files and the page."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests.study.made_up_scores import exact, folder_of, results, write_run
from trimsft.errors import RunError, UsageError
from trimsft.report.page.sweep import read_sweep as read_for_page
from trimsft.scoring.scores import over_runs
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running.execution import Outcome
from trimsft.study.scales import SCALES
from trimsft.study.sweeps.command import SweepSettings, run_sweep, show_sweep
from trimsft.study.sweeps.grid import points, read_axes
from trimsft.study.sweeps.sweep import select, sweep_cells, swept_of
from trimsft.study.sweeps.writing import conclusions, sweep_table, write_sweep
from trimsft.study.tables.summaries import load_results

GRID = ("margin=0,1.5", "bandwidth=0.5,1,3")


def cells_of(*grids, seeds=1, **options):
    return sweep_cells(points(read_axes(grids)), "lab", seeds, **options)


def band_of(cell):
    return (cell.get("margin"), cell.get("bandwidth"))


def trained(seeds=2, effect=lambda m, tau: -0.6 * tau):
    """A sweep in which the bandwidth alone matters, and SFT is below everything."""
    cells = cells_of(*GRID, seeds=seeds)
    shifts = {cell: -2.5 if cell.objective == "sft" else effect(*band_of(cell)) for cell in cells}
    return cells, results(shifts)


def by_benchmark(scores):
    """{(m, tau): (easy, hard)} in eighths, without noise."""
    cells = sweep_cells(points(read_axes(["margin=0,1", "bandwidth=1,2"])), "lab", 1, baseline=False)
    found = {
        cell: [
            *exact(scores[band_of(cell)][0] / 8, benchmarks=("easy",)),
            *exact(scores[band_of(cell)][1] / 8, benchmarks=("hard",)),
        ]
        for cell in cells
    }
    return swept_of(found, cells)


# ---- cells and means


def test_every_point_has_every_seed_and_sft_stands_beside_them():
    cells = cells_of(*GRID, seeds=3)
    assert len(cells) == (6 + 1) * 3
    assert [cell.objective for cell in cells].count("sft") == 3
    assert {cell.seed for cell in cells} == {0, 1, 2}
    assert not [cell for cell in cells_of(*GRID, baseline=False) if cell.objective == "sft"]


def test_sft_in_the_grid_is_not_made_twice():
    cells = sweep_cells(points(read_axes(["objective=sft,trim", "margin=1,2"])), "lab", 1)
    assert [cell.objective for cell in cells] == ["sft", "trim", "trim"]


def test_the_cells_are_those_of_the_studies():
    assert Cell(model="lab", objective="trim") in cells_of("margin=1.5", "bandwidth=0.8")


def test_a_point_is_the_mean_over_its_seeds_with_the_interval_of_over_runs():
    cells, found = trained(seeds=3)
    swept = swept_of(found, cells, resamples=500)
    point = swept.points[0]
    runs = [found[cell] for cell in cells if cell.objective == "trim" and band_of(cell) == point.setting.band]
    assert len(runs) == 3
    assert point.interval("average") == over_runs(runs, "average", resamples=500)
    (sft,) = swept.baselines
    assert sft.seeds == 3 and sft not in swept.points and swept.baseline_of(point) is sft


def test_what_is_not_finished_is_counted_and_nothing_finished_is_an_error():
    cells, found = trained()
    swept = swept_of({cell: found[cell] for cell in cells[:-2]}, cells, resamples=50)
    assert list(swept.missing) == cells[-2:]
    assert f"2 cells are not finished, such as {cells[-2].name}." in conclusions(swept, None)
    with pytest.raises(RunError, match="no point of the sweep is finished"):
        swept_of({}, cells)


# ---- choice


def test_the_choice_is_made_on_one_benchmark_and_reported_on_the_others():
    swept = by_benchmark({(0, 1): (7, 2), (1, 1): (3, 6), (0, 2): (4, 4), (1, 2): (5, 5)})
    chosen = select(swept, "easy")
    assert chosen.point.setting.band == (0, 1)
    assert list(chosen.by_benchmark) == ["hard"]
    assert chosen.interval.value == pytest.approx(2 / 8)
    assert chosen.development.value == pytest.approx(7 / 8)
    assert "Chosen on easy: TrimSFT (margin 0, bandwidth 1). On hard: 25.0 [" in chosen.sentence()
    assert "87.5" not in chosen.sentence(), "the score it was chosen by is no result"
    assert select(swept, "hard").point.setting.band == (1, 1)


def test_ties_go_to_the_smaller_bandwidth_then_to_the_smaller_margin():
    equal = by_benchmark(dict.fromkeys([(0, 1), (1, 1), (0, 2), (1, 2)], (4, 4)))
    assert select(equal, "easy").point.setting.band == (0, 1)
    tied = {(0, 1): (3, 4), (1, 1): (5, 4), (0, 2): (5, 4), (1, 2): (5, 4)}
    assert select(by_benchmark(tied), "easy").point.setting.band == (1, 1)


def test_a_benchmark_that_is_not_there_or_alone_cannot_choose():
    swept = by_benchmark(dict.fromkeys([(0, 1), (1, 1), (0, 2), (1, 2)], (4, 4)))
    with pytest.raises(UsageError, match=r"select_on: unknown name 'esay'; did you mean 'easy'\? known: easy, hard"):
        select(swept, "esay")
    cells = cells_of("margin=0,1", baseline=False)
    alone = swept_of({cell: exact(0.5, benchmarks=("easy",)) for cell in cells}, cells)
    with pytest.raises(UsageError, match="select_on: is the only benchmark, got 'easy'"):
        select(alone, "easy")


# ---- the best of many


def test_the_best_of_many_equal_points_is_too_good_and_the_estimate_says_about_how_much():
    """40 points that differ by chance alone: the best lies above the truth, which the mean of all is near."""
    cells = sweep_cells(points(read_axes(["margin=0:9:1", "bandwidth=1:4:1"])), "lab", 1, baseline=False)
    swept = swept_of(results(dict.fromkeys(cells, 0.3)), cells, resamples=20)
    means = np.array([point.interval("average").value for point in swept.points])
    excess = means.max() - means.mean()
    estimate = swept.optimism(resamples=400)
    assert 0.4 * excess < estimate < 1.6 * excess


def test_a_point_that_is_far_ahead_is_hardly_too_good():
    cells, found = trained(effect=lambda m, tau: 3.0 if (m, tau) == (0, 1) else -1.0)
    swept = swept_of(found, cells, resamples=20)
    assert swept.best.setting.band == (0, 1)
    assert abs(swept.optimism(resamples=400)) < 0.005


def test_without_a_choice_the_words_warn_and_with_one_they_do_not():
    cells, found = trained()
    swept = swept_of(found, cells, resamples=50)
    assert "As the best of 6 on the problems it was chosen by it is too high, by about" in conclusions(swept, None)[0]
    chosen = conclusions(swept, select(swept, "easy"))
    assert not any("too high" in sentence for sentence in chosen)
    assert any("tau explains" in sentence for sentence in chosen)


def test_the_sensitivity_is_that_of_the_bandwidth_which_alone_matters():
    cells, found = trained(seeds=3)
    swept = swept_of(found, cells, resamples=50)
    sensitivity = swept.sensitivity()
    assert sensitivity is not None and sensitivity.verdict == "holds"
    assert sensitivity.shares["bandwidth"].value > 0.8
    line = sweep_cells(points(read_axes(["margin=0,1"])), "lab", 1, baseline=False)
    assert swept_of(results(dict.fromkeys(line, 0.0)), line, resamples=20).sensitivity() is None


# ---- files


@pytest.fixture
def folder(tmp_path):
    cells, found = trained()
    place = StudyFolder(tmp_path / "sweep")
    for cell in cells:
        write_run(place, cell, found[cell])
    place.settle(replace(SCALES["lab"], benchmarks=("easy", "hard")))
    return place.out, cells


def test_a_sweep_leaves_tables_figures_and_a_page_behind(folder):
    out, cells = folder
    swept = swept_of(load_results(cells, out), cells, resamples=50)
    files = write_sweep(
        swept, out, selection=select(swept, "easy"), notes=["dft takes no margin."], command="trimsft sweep x"
    )
    names = [name for name in folder_of(out) if not name.startswith(("runs/", "config", "."))]
    drawn = [f"figures/{name}.{kind}" for name in ("curves", "plane") for kind in ("csv", "pdf", "png", "svg")]
    assert names == [*drawn, "report.html", "sweep.csv", "sweep.json", "sweep.md", "sweep.tex"]
    assert sorted(str(path.relative_to(out)) for path in files) == names
    text = (out / "sweep.md").read_text()
    assert "Chosen on easy" in text and "dft takes no margin." in text
    rows = list(csv.DictReader(io.StringIO((out / "sweep.csv").read_text())))
    assert [row["objective"] for row in rows] == ["sft", *["trim"] * 6]
    first = ["objective", "margin", "bandwidth", "value", "low", "high", "seeds", "run", "by_seed"]
    assert list(rows[0]) == [
        *first,
        *(f"{name}{end}" for name in ("against_sft", "easy", "hard") for end in ("", "_low", "_high")),
    ]
    page = (out / "report.html").read_text()
    assert "trimsft sweep x" in page


def test_sweep_json_is_what_the_page_reads(folder):
    out, cells = folder
    swept = swept_of(load_results(cells, out), cells, resamples=50)
    write_sweep(swept, out, selection=select(swept, "easy"), command="trimsft sweep x")
    read = read_for_page(out)
    assert (read.metric, read.benchmarks, read.selected_on) == ("average@8", ("hard",), "easy")
    sft = swept.baselines[0].interval("average", "hard")
    assert read.baseline == (sft.value, sft.low, sft.high)
    assert f"SFT: {100 * sft.value:.1f} [" in (out / "report.html").read_text()
    assert {(point.margin, point.bandwidth) for point in read.points} == {(m, t) for m in (0, 1.5) for t in (0.5, 1, 3)}
    assert all((out / "..").resolve() in (out / point.run).resolve().parents for point in read.points)
    hard = swept.points[0].interval("average", "hard")
    assert (read.points[0].value, read.points[0].low) == (hard.value, hard.low), "not the benchmark it was chosen on"


def test_of_other_objectives_and_fields_the_page_gets_what_it_can_show(tmp_path):
    """A third axis: the plane through the best point; dft is in `all`, and not in the plane."""
    grid = points(read_axes(["objective=trim,dft", "margin=0,1", "bandwidth=1,2", "learning_rate=1e-4,2e-4"]))
    cells = sweep_cells(grid, "lab", 1)
    best = {cell: 1.0 if cell.get("learning_rate") == 2e-4 and cell.objective == "trim" else 0.0 for cell in cells}
    found = results(best)
    for cell in cells:
        write_run(StudyFolder(tmp_path), cell, found[cell])
    swept = swept_of(found, cells, keep=grid, resamples=20)
    write_sweep(swept, tmp_path)
    content = json.loads((tmp_path / "sweep.json").read_text())
    assert len(content["all"]) == 12, "with SFT at both learning rates"
    assert len(content["points"]) == 4 and {point["learning_rate"] for point in content["points"]} == {2e-4}
    assert content["baseline"]["learning_rate"] == 2e-4
    assert len(read_for_page(tmp_path).points) == 4


def test_the_table_shows_the_difference_to_sft_on_the_benchmarks_that_count():
    cells, found = trained()
    swept = swept_of(found, cells, resamples=50)
    table = sweep_table(swept, select(swept, "easy"))
    assert table.header[:3] == ("", "margin", "bandwidth")
    assert table.header[3:] == ("easy (chosen on)", "hard", "average of the others", "against SFT")
    brief = sweep_table(swept, select(swept, "easy"), brief=True)
    assert brief.header[3:] == ("easy (chosen on)", "average of the others", "against SFT")
    first, *others = table.rows
    assert first[0].text == "SFT" and first[-1].text == ""
    bold = [row for row in table.rows if row[0].bold]
    assert len(bold) == 1
    assert (float(bold[0][1].text), float(bold[0][2].text)) == select(swept, "easy").point.setting.band
    sft, point = swept.baselines[0], swept.points[0]
    expected = 100 * (point.interval("average", "hard").value - sft.interval("average", "hard").value)
    assert float(others[0][-1].text) == pytest.approx(expected, abs=0.06)


# ---- the command


def run_command(monkeypatch, out, failing=(), **options):
    """`trimsft sweep` but for the training: cells get made-up scores, or fail."""
    data = out.parent / "data"
    data.mkdir(exist_ok=True)
    for name in ("easy", "hard"):
        (data / f"{name}.jsonl").write_text('{"id": "1", "problem": "1 + 1", "answer": "2"}\n')
    settings = SweepSettings(
        grid=("objective=trim,dft", "margin=1,2"),
        benchmarks=("easy", "hard"),
        benchmark_data=str(data),
        out=out,
        **options,
    )

    def pretend(cells, scale, folder, **how):
        folder.settle(scale)
        done = {cell: folder.run(cell) for cell in cells if cell.objective not in failing}
        for cell, scores in results(dict.fromkeys(done, 0.0)).items():
            write_run(folder, cell, scores)
        return Outcome(folder, done, {cell: "out of memory" for cell in cells if cell not in done})

    monkeypatch.setattr("trimsft.study.command.run_cells", pretend)
    console = Console(file=io.StringIO(), width=120)
    outcome = run_sweep(settings, command="trimsft sweep x")
    show_sweep(outcome, console)
    return outcome, console.file.getvalue()


def test_the_command_trains_chooses_writes_and_shows(monkeypatch, tmp_path):
    outcome, shown = run_command(monkeypatch, tmp_path / "sweep", select_on="easy")
    assert [point.setting.objective for point in outcome.swept.points] == ["trim", "trim", "dft"]
    assert outcome.failures() == []
    assert "Chosen on easy" in shown and "dft takes no margin" in shown and "report.html" in shown
    assert outcome.as_dict()["command"] == "trimsft sweep x" and outcome.as_dict()["failed"] == {}


def test_what_failed_is_named_and_the_others_are_shown(monkeypatch, tmp_path):
    outcome, shown = run_command(monkeypatch, tmp_path / "some", failing=("dft",))
    (failure,) = outcome.failures()
    assert failure.startswith("lab/dft/seed0: out of memory; see ")
    assert "1 cell is not finished, such as lab/dft/seed0." in shown
    outcome, shown = run_command(monkeypatch, tmp_path / "all", failing=("dft", "trim", "sft"))
    assert outcome.swept is None and len(outcome.failures()) == 4 and shown == ""
    assert list(outcome.as_dict()) == ["failed"]
