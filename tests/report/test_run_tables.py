"""write_analysis: all tables and figures from the files of runs, and what is left out is said."""

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.report.page.pages import make_eval
from tests.tokens.tiny import make_table
from trimsft.report import figures
from trimsft.report.run_tables import write_analysis
from trimsft.report.runs import read_runs
from trimsft.tokens.table import read_token_table

TEXTS = [["Thus", " $", "\\", "frac", "{", "1", "}{", "2", "}", "$", "."] * 3, [" so", " x", " =", " 2", "."] * 4]


@pytest.fixture(autouse=True)
def _only_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for tests that look at tables: of figures their numbers."""
    monkeypatch.setattr(figures, "PRINT_FORMATS", ())


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_tables_and_figures(tmp_path: Path) -> None:
    runs = {"Base": tmp_path / "base", "SFT": tmp_path / "sft", "TrimSFT": tmp_path / "trim"}
    for shift, folder in enumerate(runs.values()):
        make_table(folder / "tokens.parquet", TEXTS, shift=float(shift))
        make_eval(folder, "amc", [1, 4, 8])
    files = write_analysis(tmp_path / "out", read_runs(runs))
    assert sorted(files) == sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert {path.name for path in files if path.suffix == ".csv"} == {
        *("confidence.csv", "objectives.csv", "categories_by_run.csv"),
        *("gap_distribution.csv", "gradient_by_gap.csv", "effective_ratio.csv", "sampling.csv"),
    }
    gap = read_token_table(tmp_path / "base/tokens.parquet")["gap"].astype(np.float64)
    row = read(tmp_path / "out/tables/confidence.csv")[0]
    assert float(row["median gap"]) == pytest.approx(np.median(gap), abs=1e-4) and int(row["tokens"]) == 53
    drawn = read(tmp_path / "out/figures/sampling.csv")
    assert [row["value"] for row in drawn if row["metric"] == "average@8, %"] == ["54.1667"] * 3
