"""The notebook of the examples runs from its first cell to its last on the lab's model."""

import json
from pathlib import Path

import pytest
import torch

from tools.notebook import run

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tour.ipynb"


def test_every_cell_runs_and_shows_what_its_text_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    try:
        names = run(NOTEBOOK)
    finally:
        torch.set_num_threads(threads)
    assert (tmp_path / "runs" / "notebook" / "model" / "model.safetensors").is_file()
    # "Far below zero are the wrong steps": the lowest gap of the eight rows is a digit that its row calls a slip
    table, printed = names["table"], capsys.readouterr().out
    worst = table["gap"].argmin()
    row = json.loads((tmp_path / "runs" / "notebook" / "train.jsonl").read_text().splitlines()[table["example"][worst]])
    assert row["slips"] > 0 and table["gap"][worst] < -5
    assert "average" in printed and "auto-trim" in printed
