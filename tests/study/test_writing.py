"""The files of a study: every format, figures, a page; what is not finished is said."""

import csv
import io
import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from tests.evaluate.graded import score_of
from tests.study.made_up_scores import cell, folder_of, main_results, results, write_run
from tests.tokens.tiny import make_table
from trimsft.errors import RunError
from trimsft.report import figures
from trimsft.study.folder import StudyFolder
from trimsft.study.results import summarise
from trimsft.study.scales import SCALES
from trimsft.study.score_tables import numbers_of, our_table, pattern_table, score_rows
from trimsft.study.studies import STUDIES
from trimsft.study.writing import write_study
from trimsft.tables import to_latex

TRIM = "lab/trim-margin1.5-bandwidth0.8/seed1"
LAB = replace(SCALES["lab"], benchmarks=("easy", "hard"))
WORDS = ("1", "2", " =", " so", " x")


@pytest.fixture(autouse=True)
def _quick(monkeypatch, request):
    """Figures without pictures and pages without content, which take longest; one test has the real ones."""

    def write_title(path, runs, *, title, objectives):
        path.write_text(title)
        return path

    if "for_real" not in request.fixturenames:
        monkeypatch.setattr(figures, "PRINT_FORMATS", ())
        monkeypatch.setattr("trimsft.report.page.build.write_report", write_title)


def write(tmp_path, name, found=None, *, tokens=(), cells=None, scale=LAB, settled=None, words=WORDS, resamples=20):
    """A study of made-up scores or token tables, written; returns the folder of its tables.

    `cells` are those that it should have, by default those that it has; `settled` the scale it was begun with.
    """
    found, folder = found or {}, StudyFolder(tmp_path / "study")
    folder.settle(settled or scale)
    folder.settle(scale)
    for each, scores in found.items():
        write_run(folder, each, scores)
        folder.remember([each], {"scores"})
    for number, each in enumerate(tokens):
        make_table(folder.tokens(each), [list(words) * 4] * 6, shift=0.5 * number)
        folder.remember([each], {"tokens"})
    write_study(STUDIES[name], scale, cells or [*found, *tokens], folder.out, resamples=resamples)
    return folder.out / "tables"


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text())))


@pytest.fixture
def for_real():
    """Figures and pages as they are."""


@pytest.mark.usefixtures("for_real")
def test_a_study_of_scores_leaves_every_format_behind(tmp_path):
    found = main_results(2)
    tables = write(tmp_path, "main", found, resamples=100)
    assert folder_of(tables) == [
        "claims.json",
        "claims.md",
        *(f"main/figures/scores.{kind}" for kind in ("csv", "pdf", "png", "svg")),
        *(f"main/main.{kind}" for kind in ("csv", "json", "md", "tex", "txt")),
        "main/report.html",
        "problems.csv",
    ]
    text = (tables / "main/main.md").read_text()
    assert "**holds**: TrimSFT is above SFT" in text and "The paper against itself" in text and "**greedy**" in text
    assert "![scores](figures/scores.png)" in text
    printed = (tables / "main/main.txt").read_text()
    assert "TrimSFT" in printed and "holds" in printed and "TrimSFT is above SFT" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert len(rows_of(tables / "main/main.csv")) == 5 * 3 * 2, "settings, benchmarks and average, average and greedy"
    content = json.loads((tables / "main/main.json").read_text())
    trim = next(row for row in content["rows"] if row["objective"] == "trim" and row["benchmark"] == "average")
    assert trim["seeds"] == [0, 1] and trim["value"] == pytest.approx(sum(trim["by_seed"]) / 2)
    counts = rows_of(tables / "problems.csv")
    assert len(counts) == 2 * len(found)
    hard = next(row for row in counts if (row["cell"], row["benchmark"]) == (TRIM, "hard"))
    score = next(each for each in found[cell("trim", 1)] if each.benchmark == "hard")
    assert [int(n) / 8 for n in hard["correct"].split()] == score.values("average").tolist()
    assert [float(n) for n in hard["greedy"].split()] == score.values("greedy").tolist()
    assert "(seed 0 of 2: intervals over seeds are in main.md)" in (tables / "main/report.html").read_text()


def test_missing_cells_are_named_and_no_cell_is_refused(tmp_path):
    """A method without scores, and a benchmark that was added to the folder later."""
    found = main_results(1)
    there = {key: value for key, value in found.items() if key.objective != "dft"}
    more = replace(LAB, benchmarks=("easy", "hard", "new"))
    text = (write(tmp_path, "main", there, cells=list(found), scale=more, settled=LAB) / "main/main.md").read_text()
    assert "Not finished, and so left out: lab/dft/seed0." in text
    assert "|  | easy | hard | average |" in text and "Not finished on new: lab/base/seed0" in text
    assert "**holds**: TrimSFT is above SFT" in text
    with pytest.raises(RunError, match="no cell of 'gaps' is finished; run it with trimsft study run gaps --out"):
        write_study(STUDIES["gaps"], LAB, list(found), tmp_path / "study")


def test_the_ablation_draws_figure_3_and_the_plane(tmp_path):
    settings = [(1.0, 0.5), (1.0, 1.0), (1.0, 6.0), (6.0, 1.0), (6.0, 6.0), (2.5, 1.0), (1.0, 2.5)]
    shifts = {cell("trim", margin=m, bandwidth=tau): 1.0 - 0.3 * tau for m, tau in settings}
    found = results({cell("base"): 0.0, cell("sft"): -1.0, **shifts})
    own = [each for each in found if 2.5 not in dict(each.fields).values()]
    tables = write(tmp_path, "ablation", found, cells=own)
    drawn = {"ablation.csv", "plane.csv"}
    assert set(folder_of(tables / "ablation/figures")) == drawn
    sources = [row["source"] for row in rows_of(tables / "ablation/figures/ablation.csv")]
    assert sources == ["ours"] * (5 + 1) + ["paper"] * (28 + 1)  # settings and SFT
    for name in ("ablation/ablation.md", "claims.md"):
        assert "Over 5 settings, tau explains" in (tables / name).read_text()


def test_passes_show_both_metrics_and_the_bars(tmp_path):
    tables = write(tmp_path, "passes", main_results(1))
    text = (tables / "passes/passes.md").read_text()
    assert "**pass@8**" in text and "**best-of-8 by majority vote**" in text
    assert "figures/sampling.csv" in folder_of(tables / "passes")


@pytest.mark.parametrize("name", ["gaps", "weights", "gradient-mass", "categories"])
def test_studies_of_tokens_are_made_from_token_tables(tmp_path, name):
    tables = write(tmp_path, name, tokens=STUDIES[name].cells(LAB, 1))
    names = folder_of(tables / name)
    assert {f"{name}.{kind}" for kind in ("csv", "json", "md", "tex")} | {"report.html"} <= set(names)
    content = json.loads((tables / f"{name}/{name}.json").read_text())
    assert content["rows"] and content["claims"]
    text = (tables / f"{name}/{name}.md").read_text()
    assert ("In round brackets: the paper's, of Qwen2.5-Math-1.5B, another model" in text) == (name != "gaps")
    assert ("One training (seed 0)" in text) == (name == "gaps")
    assert "r eff" not in text and "| trim |" not in text
    assert str(tmp_path) not in text


def test_an_empty_category_is_null_and_a_dash(tmp_path):
    tables = write(tmp_path, "categories", tokens=STUDIES["categories"].cells(LAB, 1), words=("1", "2", " =", " x"))

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    content = json.loads((tables / "categories/categories.json").read_text(), parse_constant=refuse)
    empty = next(row for row in content["rows"] if row["tokens"] == 0)
    assert empty["mean_weight_ours"] is None
    text = (tables / "categories/categories.md").read_text()
    assert "nan" not in text and f"| {empty['category']} | 0 | 0.00" in text


def two_methods(benchmark, model="lab"):
    """Two problems of two samples each: SFT solves none, TrimSFT one of two."""
    return {
        cell(name, model=model): [score_of(benchmark, [correct] * 2, samples=2, resamples=20)]
        for name, correct in (("sft", 0), ("trim", 1))
    }


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_the_latex_compiles_and_fits_the_page(tmp_path):
    summaries = summarise(main_results(1), resamples=20)
    rows = score_rows(summaries, ["average"], numbers_of("main"))
    tables = [our_table("average@8 & more", summaries, rows, ["100 %"]), pattern_table(summaries, rows)]
    body = "\n".join(to_latex(table) for table in tables)
    packages = r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx,textcomp}"
    (tmp_path / "t.tex").write_text(rf"{packages}\begin{{document}}{body}\end{{document}}")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull \\hbox" not in done.stdout
