"""Sweeps: cells, the choice on one benchmark and the report on others, SFT at the same settings, files and the page."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from tests.study.made_up_scores import exact, folder_of, results, write_run
from trimsft.cli.study import sweep_output
from trimsft.errors import RunError
from trimsft.report import figures
from trimsft.report.sweep import read_sweep as read_for_page
from trimsft.study.folder import StudyFolder
from trimsft.study.results import load_results
from trimsft.study.run import Outcome
from trimsft.study.scales import SCALES
from trimsft.study.sweep import (
    SweepSettings,
    best_of,
    candidates,
    points,
    read_axes,
    run_sweep,
    select,
    sweep_cells,
    swept_of,
)
from trimsft.study.sweep_tables import conclusions, sweep_record, sweep_table, write_sweep

GRID = ("margin=0,1.5", "bandwidth=0.5,1,3")
SLOW, FAST = 2e-4, 1e-3
RATES = points(read_axes([f"learning_rate={SLOW},{FAST}"]), "lab")
TUNED = {("sft", SLOW): (2, 2), ("sft", FAST): (5, 4), ("trim", SLOW): (3, 4), ("trim", FAST): (6, 5)}


@pytest.fixture(autouse=True)
def only_numbers(monkeypatch):
    """What is drawn is in the CSV beside it; pictures take longer."""
    monkeypatch.setattr(figures, "PRINT_FORMATS", ())


def cells_of(*grids, seeds=1, **options):
    return sweep_cells(points(read_axes(grids), "lab"), seeds, **options)


def band_of(cell):
    return (cell.get("margin"), cell.get("bandwidth"))


def rate_of(summary):
    return summary.setting.get("learning_rate")


def trained(seeds=2, effect=lambda m, tau: -0.6 * tau):
    """A sweep in which the bandwidth alone matters, and SFT is below everything."""
    cells = cells_of(*GRID, seeds=seeds)
    shifts = {cell: -2.5 if cell.objective == "sft" else effect(*band_of(cell)) for cell in cells}
    return cells, results(shifts)


@pytest.fixture(scope="module")
def swept():
    cells, found = trained()
    return swept_of(found, cells, resamples=50)


def eighths(cells, scores, key, keep=None):
    """{key of a cell: (easy, hard)} in eighths, without noise."""
    found = {
        cell: [
            each
            for name, eighth in zip(("easy", "hard"), scores[key(cell)], strict=True)
            for each in exact(eighth / 8, benchmarks=(name,))
        ]
        for cell in cells
    }
    return swept_of(found, cells, keep=keep, resamples=20)


def by_band(scores):
    return eighths(cells_of("margin=0,1", "bandwidth=1,2", baseline=False), scores, band_of)


def by_rate(scores, grid=RATES):
    return eighths(sweep_cells(grid, 1), scores, lambda cell: (cell.objective, cell.get("learning_rate")), grid)


def write_runs(out, found):
    for cell, scores in found.items():
        write_run(StudyFolder(out), cell, scores)


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


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
    assert not [cell for cell in cells_of(*grid, baseline=False) if cell.objective == "sft"]
    assert [cell.objective for cell in cells_of("objective=sft,trim", "margin=1,2")] == ["sft", "trim", "trim"]


def test_missing_points_are_counted_and_none_is_an_error():
    cells, found = trained()
    swept = swept_of({cell: found[cell] for cell in cells[:-2]}, cells, resamples=50)
    assert list(swept.missing) == cells[-2:]
    assert f"2 cells are not finished, such as {cells[-2].name}." in conclusions(swept)
    with pytest.raises(RunError, match="no point of the sweep is finished"):
        swept_of({}, cells)


# ---- choice


def test_one_benchmark_chooses_and_the_others_report():
    swept = by_band({(0, 1): (7, 2), (1, 1): (3, 6), (0, 2): (4, 4), (1, 2): (5, 5)})
    chosen = select(swept, "easy")
    assert chosen.best.setting.band == (0, 1) and chosen.reported == ["hard"]
    assert (chosen.interval(chosen.best).value, chosen.best.interval("average", "easy").value) == pytest.approx(
        (2 / 8, 7 / 8)
    )
    assert "Chosen on easy: TrimSFT (margin 0, bandwidth 1). On hard: 25.0 [" in conclusions(chosen)[0]
    assert "87.5" not in conclusions(chosen)[0], "the score it was chosen by is no result"
    assert select(swept, "hard").best.setting.band == (1, 1)


def test_best_point_and_best_sft_are_chosen_alike():
    chosen = select(by_rate(TUNED | {("trim", SLOW): (7, 4)}), "easy")
    assert rate_of(chosen.best) == SLOW and rate_of(chosen.rival) == FAST
    assert chosen.above(chosen.best, chosen.rival).value == pytest.approx(0)
    assert ", against SFT (learning_rate 0.001), chosen on easy likewise: +0.0 [" in conclusions(chosen)[0]


def test_optimism_estimates_the_luck_of_the_best():
    """40 points that differ by chance alone: the best lies above the truth, which the mean of all is near."""
    cells = cells_of("margin=0:9:1", "bandwidth=1:4:1", baseline=False)
    swept = swept_of(results(dict.fromkeys(cells, 0.3)), cells, resamples=20)
    means = np.array([point.interval("average").value for point in swept.points])
    excess = means.max() - means.mean()
    assert 0.4 * excess < swept.optimism(resamples=400) < 1.6 * excess
    cells, found = trained(effect=lambda m, tau: 3.0 if (m, tau) == (0, 1) else -1.0)
    far_ahead = swept_of(found, cells, resamples=20)
    assert far_ahead.best.setting.band == (0, 1) and abs(far_ahead.optimism(resamples=400)) < 0.005


def test_words_warn_where_nothing_chose(swept):
    assert "As the best of 6 on the problems it was chosen by it is too high, by about" in conclusions(swept)[0]
    chosen = conclusions(select(swept, "easy"))
    assert not any("too high" in sentence for sentence in chosen)
    assert ", against SFT +" in chosen[0], "the only one, and so not chosen"
    assert any("tau explains" in sentence for sentence in chosen)


def test_points_with_fewer_seeds_are_not_chosen():
    """The best of three points has one seed of three."""
    grid = points(read_axes(["margin=0,1,2"]), "lab")
    cells = sweep_cells(grid, 3)
    share = {0.0: 0.25, 1.0: 0.5, 2.0: 1.0, None: 0.25}
    kept = [cell for cell in cells if cell.get("margin") != 2 or cell.seed == 0]
    read = swept_of({cell: exact(share[cell.get("margin")]) for cell in kept}, cells, keep=grid, resamples=20)
    assert [point.seeds for point in read.points] == [3, 3, 1] and len(candidates(read.points)) == 2
    chosen = (read.best, select(read, "easy").best, best_of(read.points[2:], "average", ["easy"]))
    assert [point.setting.get("margin") for point in chosen] == [1, 1, 2]
    told = "1 of 3 points had no part in the choice: fewer than 3 trainings are finished."
    for either in (read, select(read, "easy")):
        assert told in conclusions(either)
    assert "The highest of 2 points is TrimSFT (margin 1, " in conclusions(read)[0]
    found = results(dict.fromkeys(cells, 0.0))
    whole = [cell for cell in kept if cell.get("margin") != 2]
    with_it, without = (swept_of({c: found[c] for c in some}, cells, keep=grid, resamples=20) for some in (kept, whole))
    assert with_it.optimism(resamples=50) == without.optimism(resamples=50) != 0


# ---- the table


def test_table_shows_differences_where_they_count(swept):
    table = sweep_table(select(swept, "easy"))
    assert table.header[:3] == ("", "margin", "bandwidth")
    assert table.header[3:] == ("easy (chosen on)", "hard", "average of the others", "against SFT")
    brief = sweep_table(select(swept, "easy"), brief=True)
    assert brief.header[3:] == ("easy (chosen on)", "average of the others", "against SFT")
    first, *others = table.rows
    assert first[0].text == "SFT" and first[-1].text == ""
    (bold,) = [row for row in table.rows if row[0].bold]
    assert (float(bold[1].text), float(bold[2].text)) == select(swept, "easy").best.setting.band
    ours, sft = (each.interval("average", "hard").value for each in (swept.points[0], swept.baselines[0]))
    assert float(others[0][-1].text) == pytest.approx(100 * (ours - sft), abs=0.06)
    assert not any("with the same" in note for note in table.notes)


def test_sft_has_the_same_learning_rate_as_the_point():
    table = sweep_table(by_rate(TUNED))
    assert [(row[0].text, row[3].text) for row in table.rows] == [
        (name, rate) for name in ("SFT", "TrimSFT") for rate in ("0.0002", "0.001")
    ]
    # (3 - 2 + 4 - 2) / 16 and (6 - 5 + 5 - 4) / 16
    assert [row[-1].text for row in table.rows] == ["", "", "+18.8", "+12.5"]
    assert "Against SFT with the same learning_rate." in table.notes
    cells = sweep_cells(RATES, 1)
    found = {cell: exact(0.5) for cell in cells if cell.name != "lab/sft-learning_rate0.001/seed0"}
    rows = sweep_table(swept_of(found, cells, keep=RATES, resamples=20)).rows
    assert [row[-1].text for row in rows] == ["", "+0.0", ""]


# ---- files


def test_a_sweep_leaves_tables_figures_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "PRINT_FORMATS", (".svg", ".pdf", ".png"))
    cells, found = trained()
    out = tmp_path / "sweep"
    write_runs(out, found)
    StudyFolder(out).settle(replace(SCALES["lab"], benchmarks=("easy", "hard")))
    swept = swept_of(load_results(cells, out), cells, resamples=50)
    notes = ["dft takes no margin."]
    files = write_sweep(select(swept, "easy"), out, notes=notes, command="trimsft sweep x")
    names = [name for name in folder_of(out) if not name.startswith(("runs/", "config", "."))]
    drawn = [f"figures/{name}.{kind}" for name in ("curves", "plane") for kind in ("csv", "pdf", "png", "svg")]
    assert names == [*drawn, "report.html", "sweep.csv", "sweep.json", "sweep.md", "sweep.tex"]
    assert sorted(str(path.relative_to(out)) for path in files) == names
    text = (out / "sweep.md").read_text()
    assert "Chosen on easy" in text and "dft takes no margin." in text and "![curves](figures/curves.png)" in text
    rows = rows_of(out / "sweep.csv")
    assert [row["objective"] for row in rows] == ["sft", *["trim"] * 6]
    first = ["objective", "margin", "bandwidth", "value", "low", "high", "seeds", "run", "by_seed"]
    parts = [f"{name}{end}" for name in ("against_sft", "easy", "hard") for end in ("", "_low", "_high")]
    assert list(rows[0]) == [*first, *parts]
    read, page = read_for_page(out), (out / "report.html").read_text()
    assert (read.metric, read.benchmarks, read.selected_on) == ("average@8", ("hard",), "easy")
    sft = swept.baselines[0].interval("average", "hard")
    assert (read.baseline.value, read.baseline.low, read.baseline.high) == (sft.value, sft.low, sft.high)
    assert "trimsft sweep x" in page and f"SFT: {100 * sft.value:.1f} [" in page
    assert {(point.margin, point.bandwidth) for point in read.points} == {(m, t) for m in (0, 1.5) for t in (0.5, 1, 3)}
    assert all((out / "..").resolve() in (out / point.run).resolve().parents for point in read.points)
    hard = swept.points[0].interval("average", "hard")
    assert (read.points[0].value, read.points[0].low) == (hard.value, hard.low), "not the benchmark it was chosen on"


def test_csv_has_sft_differences_seeds_and_intervals(tmp_path):
    cells = sweep_cells(RATES, 2)
    found = results({cell: -1.0 if cell.objective == "sft" else 1.0 for cell in cells})
    write_runs(tmp_path, found)
    read = swept_of(found, cells, keep=RATES, resamples=50)
    write_sweep(read, tmp_path)
    _, sft, _, trim = rows_of(tmp_path / "sweep.csv")
    assert [(row["objective"], row["learning_rate"]) for row in (sft, trim)] == [("sft", "0.001"), ("trim", "0.001")]
    assert sft["against_sft"] == sft["against_sft_low"] == ""
    difference = float(trim["value"]) - float(sft["value"])
    assert float(trim["against_sft"]) == pytest.approx(difference, abs=1e-5)
    assert float(trim["against_sft_low"]) < difference < float(trim["against_sft_high"])
    seeds = [float(score) for score in trim["by_seed"].split()]
    assert len(seeds) == 2 and np.mean(seeds) == pytest.approx(float(trim["value"]), abs=1e-5)
    hard = read.points[1].interval("average", "hard")
    ends = [float(trim[f"hard{end}"]) for end in ("", "_low", "_high")]
    assert ends == pytest.approx([hard.value, hard.low, hard.high], abs=1e-5)
    assert json.loads((tmp_path / "sweep.json").read_text())["all"][3]["by_seed"] == pytest.approx(seeds, abs=1e-5)


def test_equal_scores_have_no_shares_of_variance(tmp_path):
    cells = cells_of("margin=1,2", "bandwidth=1,2")
    read = swept_of({cell: exact(0.5) for cell in cells}, cells, resamples=20)
    sentences = conclusions(read)
    assert "All 4 settings score the same: there is no variance to explain." in sentences
    assert sweep_record(read, tmp_path, sentences, "")["sensitivity"] is None


# ---- the command


def run_command(monkeypatch, out, failing=(), **options):
    """`trimsft sweep` but for the training: cells get made-up scores, or fail."""
    data = out.parent / "data"
    data.mkdir(exist_ok=True)
    for name in ("easy", "hard"):
        (data / f"{name}.jsonl").write_text('{"id": "1", "problem": "1 + 1", "answer": "2"}\n')

    def pretend(cells, scale, folder, **how):
        folder.settle(scale)
        done = {cell: folder.run(cell) for cell in cells if cell.objective not in failing}
        write_runs(folder.out, results(dict.fromkeys(done, 0.0)))
        return Outcome(folder, done, {cell: "out of memory" for cell in cells if cell not in done})

    monkeypatch.setattr("trimsft.study.run.run_cells", pretend)
    options |= {"benchmarks": ("easy", "hard"), "benchmark_data": str(data), "out": out}
    outcome = run_sweep(SweepSettings(grid=("objective=trim,dft", "margin=1,2"), **options), command="trimsft sweep x")
    return outcome, "\n".join(sweep_output(outcome).lines)


def test_the_command_trains_chooses_writes_and_shows(monkeypatch, tmp_path):
    outcome, shown = run_command(monkeypatch, tmp_path / "sweep", select_on="easy")
    assert [point.setting.objective for point in outcome.swept.points] == ["trim", "trim", "dft"]
    assert "Chosen on easy" in shown and "dft takes no margin" in shown and "report.html" in shown
    assert outcome.failures() == [] == list(outcome.as_dict()["failed"])
    assert outcome.as_dict()["command"] == "trimsft sweep x"
    outcome, shown = run_command(monkeypatch, tmp_path / "some", failing=("dft",))
    (failure,) = outcome.failures()
    assert failure.startswith("lab/dft/seed0: out of memory; see ")
    assert "1 cell is not finished, such as lab/dft/seed0." in shown
    outcome, shown = run_command(monkeypatch, tmp_path / "all", failing=("dft", "trim", "sft"))
    assert outcome.swept is None and len(outcome.failures()) == 4 and shown == ""
    assert list(outcome.as_dict()) == ["failed"]
