"""write_analysis: all tables and figures from the files of runs, and what is left out is said."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.evaluate.graded import score_of
from tests.report.page.pages import make_eval
from tests.tokens.tiny import make_table
from trimsft.report import figures
from trimsft.report.run_tables import write_analysis
from trimsft.study import paper
from trimsft.study.paper_tables import write_paper_tables
from trimsft.tokens.table import SCHEMA, read_token_table, write_table

TEXTS = [["Thus", " $", "\\", "frac", "{", "1", "}{", "2", "}", "$", "."] * 3, [" so", " x", " =", " 2", "."] * 4]

GRADER = {"kind": "strict", "version": "3"}


def read(out: Path, name: str) -> list[dict[str, str]]:
    with (out / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analysed")
    for name, shift in (("base", 0.0), ("sft", 1.0), ("trim", 2.0)):
        make_table(folder / name / "tokens.parquet", TEXTS, shift=shift)
        for benchmark in ("math500", "olympiadbench", "minerva", "amc", "aime24"):
            where = folder / name / "eval" / benchmark
            where.mkdir(parents=True)
            (where / "scores.json").write_text(
                json.dumps({**score_of(benchmark, [1, 4, 8]).as_dict(), "grader": GRADER})
            )
    (folder / "trim" / "manifest.json").write_text(json.dumps({"model": "models/Qwen2.5-Math-1.5B"}))
    runs = {"Base": folder / "base", "SFT": folder / "sft", "TrimSFT": folder / "trim"}
    files = write_analysis(folder / "out", runs, write_more=write_paper_tables).files
    assert len(files) == len(set(files)) and all(path.is_file() for path in files)
    assert set(files) == {path for path in (folder / "out").rglob("*") if path.is_file()}
    return folder / "out"


def test_every_table_and_figure_is_there(analysed: Path) -> None:
    tables = {path.stem for path in (analysed / "tables").glob("*.csv")}
    assert tables == {
        *("weight_diagnostics", "gradient_mass", "token_categories", "confidence", "objectives"),
        *("categories_by_run", "movement"),
    }
    drawn = {path.stem for path in (analysed / "figures").glob("*.csv")}
    assert drawn == {*("gap_distribution", "gradient_by_gap", "effective_ratio", "sampling")}
    suffixes = {".svg", ".pdf", ".png", ".csv"}
    assert all({path.suffix for path in (analysed / "figures").glob(f"{name}.*")} == suffixes for name in drawn)


def test_the_papers_numbers_stand_beside_ours(analysed: Path) -> None:
    weights = read(analysed, "weight_diagnostics")
    printed = [row.effective_ratio for row in paper.rows("weight_diagnostics")]
    assert [float(row["effective_ratio_paper"]) for row in weights] == printed[: len(weights)]
    for name, columns in (
        ("weight_diagnostics", ("high_weight_percent", "effective_ratio")),
        ("gradient_mass", ("low", "middle", "high")),
        ("token_categories", ("ratio", "mean_weight", "middle", "sft_mass", "trim_mass")),
    ):
        for row in read(analysed, name):
            for column in columns:
                ours, theirs = (row[f"{column}_{whose}"] for whose in ("ours", "paper"))
                assert float(theirs) >= 0 and (ours == "" or float(ours) >= 0)


def test_numbers_are_those_of_the_token_table(analysed: Path) -> None:
    gap = read_token_table(analysed.parent / "base" / "tokens.parquet")["gap"].astype(np.float64)
    row = read(analysed, "confidence")[0]
    assert float(row["median_gap"]) == pytest.approx(np.median(gap), abs=1e-4) and int(row["tokens"]) == 53
    assert float(read(analysed, "movement")[1]["mean_gap_change"]) == pytest.approx(2, abs=1e-4)


@pytest.fixture
def _only_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for tests that look at tables: of figures their numbers."""
    monkeypatch.setattr(figures, "PRINT_FORMATS", ())


@pytest.mark.usefixtures("_only_numbers")
def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    table = make_table(tmp_path / "one.parquet", TEXTS)
    other = make_table(tmp_path / "other" / "tokens.parquet", TEXTS[:1])
    make_eval(tmp_path / "scored", "amc", [3])
    write_table(tmp_path / "empty.parquet", SCHEMA.empty_table(), {})
    runs = {"Base": table, "Other|data": other.parent, "Scored": tmp_path / "scored"}
    runs["Empty"] = tmp_path / "empty.parquet"
    done = write_analysis(tmp_path / "out", runs, parameters={"margin": 3.0}, write_more=write_paper_tables)
    (reason,) = done.incomparable.values()
    assert "'Base' and 'Other|data' are not about the same tokens" in reason
    assert not (tmp_path / "out" / "tables" / "movement.md").exists()
    beside = "not to be compared with it: Other\\|data."
    for name in ("confidence", "objectives", "categories_by_run"):
        assert beside in (tmp_path / "out" / "tables" / f"{name}.md").read_text(encoding="utf-8")
    assert "margin 3 " in (tmp_path / "out" / "tables" / "confidence.md").read_text(encoding="utf-8")
    categories = (tmp_path / "out" / "tables" / "token_categories.md").read_text(encoding="utf-8")
    assert "margin 1, bandwidth 1, as in the paper's table, whatever the report's are" in categories


@pytest.mark.usefixtures("_only_numbers")
def test_scores_alone_with_benchmarks_from_easy_to_hard(tmp_path: Path) -> None:
    for run, names in (("one", ["amc", "lab-hard", "zzz", "aaa"]), ("two", ["lab-medium", "lab-easy"])):
        for name in names:
            make_eval(tmp_path / run, name, [3])
    write_analysis(tmp_path / "out", {run: tmp_path / run for run in ("one", "two")}, write_more=write_paper_tables)
    with (tmp_path / "out" / "figures" / "sampling.csv").open(encoding="utf-8", newline="") as file:
        drawn = [row["benchmark"] for row in csv.DictReader(file) if row["metric"] == "pass@8, %"]
    assert drawn == ["amc", "lab-easy", "lab-medium", "lab-hard", "aaa", "zzz"]
