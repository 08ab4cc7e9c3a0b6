"""The notebook of the examples runs from its first cell to its last on the lab's model."""

import json
from pathlib import Path

import pytest

from tools.notebook import run

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tour.ipynb"


@pytest.mark.usefixtures("one_thread")
def test_every_cell_runs_and_shows_what_its_text_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = run(NOTEBOOK)["table"]
    # "Far below zero are the wrong steps": the lowest gap is a digit that its row calls a slip
    worst = table["gap"].argmin()
    rows = (tmp_path / "runs" / "notebook" / "train.jsonl").read_text().splitlines()
    row = json.loads(rows[table["example"][worst]])
    assert row["slips"] > 0 and table["gap"][worst] < -5
