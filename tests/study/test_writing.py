"""The files of a study: every format, figures, a page; what is not finished is said."""

import csv
import io
import json
from dataclasses import replace

import pytest

from tests.evaluate.graded import same, samples_of, score
from tests.study.made_up_scores import cell, folder_of, main_results, results, write_run
from tests.tokens.tiny import make_table
from trimsft.report import figures
from trimsft.study.folder import StudyFolder
from trimsft.study.paper_tables import write_study
from trimsft.study.scales import SCALES
from trimsft.study.studies import STUDIES

LAB = replace(SCALES["lab"], benchmarks=("easy", "hard"))
WORDS = ("1", "2", " =", " so", " x")


@pytest.fixture(autouse=True)
def _only_numbers(monkeypatch):
    """Write what is drawn as CSV; pictures take longest."""
    monkeypatch.setattr(figures, "PRINT_FORMATS", ())


def write(tmp_path, name, found=None, *, tokens=(), cells=None, scale=LAB, words=WORDS, resamples=20):
    """A study of made-up scores or token tables, written; returns the folder of its tables.

    `cells` are those that it should have, by default those that it has.
    """
    found, folder = found or {}, StudyFolder(tmp_path / "study")
    folder.settle(scale, [*found, *tokens])
    for each, scores in found.items():
        write_run(folder, each, scores)
    for number, each in enumerate(tokens):
        make_table(folder.tokens(each), [list(words) * 4] * 6, shift=0.5 * number)
    write_study(STUDIES[name], scale, cells or [*found, *tokens], folder.out, resamples=resamples)
    return folder.out / "tables"


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_a_study_of_scores_leaves_every_format_behind(tmp_path):
    found = main_results(2)
    tables = write(tmp_path, "main", found, resamples=100)
    assert folder_of(tables) == [*(f"main/main.{kind}" for kind in ("csv", "json", "md", "txt"))]
    text = (tables / "main/main.md").read_text()
    assert "**holds**: TrimSFT is above SFT" in text and "**greedy**" in text
    printed = (tables / "main/main.txt").read_text()
    assert "TrimSFT" in printed and "holds" in printed and "TrimSFT is above SFT" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert len(rows_of(tables / "main/main.csv")) == 5 * 3 * 2, "settings, benchmarks and average, average and greedy"
    content = json.loads((tables / "main/main.json").read_text())
    trim = next(row for row in content["rows"] if row["objective"] == "trim" and row["benchmark"] == "average")
    by_seed = [float(score) for score in trim["by_seed"].split()]
    assert trim["seeds"] == 2 and trim["value"] == pytest.approx(sum(by_seed) / 2, abs=1e-5)


def test_missing_cells_are_named(tmp_path):
    found = main_results(1)
    there = {key: value for key, value in found.items() if key.objective != "dft"}
    text = (write(tmp_path, "main", there, cells=list(found)) / "main/main.md").read_text()
    assert (
        "Not finished, and so left out: 1, such as lab/dft/seed0." in text and "**holds**: TrimSFT is above SFT" in text
    )


def test_the_ablation_draws_figure_3(tmp_path):
    settings = [(1.0, 0.5), (1.0, 1.0), (1.0, 6.0), (6.0, 1.0), (6.0, 6.0), (2.5, 1.0), (1.0, 2.5)]
    shifts = {cell("trim", margin=m, bandwidth=tau): 1.0 - 0.3 * tau for m, tau in settings}
    found = results({cell("base"): 0.0, cell("sft"): -1.0, **shifts})
    own = [each for each in found if 2.5 not in dict(each.fields).values()]
    tables = write(tmp_path, "ablation", found, cells=own)
    assert set(folder_of(tables / "ablation/figures")) == {"ablation.csv"}
    assert len(rows_of(tables / "ablation/figures/ablation.csv")) == 5 + 1  # settings and SFT
    assert "standard deviation of the score over tau minus that over m" in (tables / "ablation/ablation.md").read_text()


def test_passes_show_both_metrics_and_the_bars(tmp_path):
    tables = write(tmp_path, "passes", main_results(1))
    text = (tables / "passes/passes.md").read_text()
    assert "**pass@8**" in text and "**best-of-8 by majority vote**" in text
    assert "figures/sampling-lab.csv" in folder_of(tables / "passes")


@pytest.mark.parametrize("name", ["gaps", "weights", "gradient-mass", "categories"])
def test_studies_of_tokens_are_made_from_token_tables(tmp_path, name):
    tables = write(tmp_path, name, tokens=STUDIES[name].cells(LAB, 1))
    names = folder_of(tables / name)
    assert {f"{name}.{kind}" for kind in ("csv", "json", "md", "txt")} <= set(names)
    content = json.loads((tables / f"{name}/{name}.json").read_text())
    assert content["rows"] and content["claims"]
    text = (tables / f"{name}/{name}.md").read_text()
    assert ("In round brackets: the paper's, of " in text) == (name != "gaps")
    assert ("One training (seed 0)" in text) == (name == "gaps")
    assert str(tmp_path) not in text


def test_further_temperatures_have_tables_of_their_own(tmp_path):
    samples = [one for n in range(4) for one in samples_of(f"p{n}", "1 0", greedy="1")]
    samples += [replace(one, temperature=0.3, status="correct", answer="1") for one in samples if one.votes]
    found = {cell(name): [score("easy", samples, same, resamples=20)] for name in ("base", "sft")}
    scale = replace(LAB, benchmarks=("easy",), temperatures=(0.3,), temperature_samples=2)
    text = (write(tmp_path, "main", found, scale=scale) / "main/main.md").read_text()
    assert "**average at temperature 0.3**" in text and "| SFT | 100.0 " in text
