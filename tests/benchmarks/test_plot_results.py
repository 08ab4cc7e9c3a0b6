"""Figures of the documentation are drawn again from their CSV, which stays as it was measured."""

from pathlib import Path

import pytest

from benchmarks.plot_results import DRAWN, read_rows
from trimsft.report.records import csv_of

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = {path.stem: path for path in sorted(DOCS.rglob("*.csv")) if path.parent.name == "figures"}


@pytest.mark.parametrize("name", [name for name in DRAWN if name != "weighting_functions"])  # that one is computed
def test_numbers_stay_as_they_were(name: str) -> None:
    path = FIGURES[name]
    drawing = DRAWN[name](read_rows(path), path)
    assert csv_of(drawing.header, drawing.rows) == path.read_bytes()
    assert path.with_suffix(".png").is_file() and path.with_suffix(".svg").is_file()
