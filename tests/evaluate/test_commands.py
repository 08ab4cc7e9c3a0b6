"""`trimsft eval` and `trimsft compare` as typed: what they print, and what they refuse in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimsft.cli import app
from trimsft.evaluate import run

from .scripted import ScriptedEngine
from .test_run import able, benchmark

__all__ = ["benchmark"]


def test_tables_json_and_comparisons(benchmark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = {"hopeless": lambda request: "I do not know.", "able": able}
    for name, script in runs.items():
        monkeypatch.setattr(run, "make_engine", lambda settings, script=script: ScriptedEngine(script))
        words = ["eval", "m", "-b", str(benchmark), "--out", str(tmp_path / name), "--template", "plain"]
        shown = CliRunner().invoke(app, words)
        assert shown.exit_code == 0, shown.output
        assert shown.stderr.startswith("trimsft: loading m, to be evaluated on sums\n")
        assert "What is 1+1?" in shown.stderr and "recorded in" in shown.stderr
        first, *_, last = (line for line in shown.stderr.splitlines() if " of 54 samples" in line)
        note = "sums: 100% of the answers have no box and count as wrong; --pattern finds them elsewhere, --grader qwen"
        assert (note in " ".join(shown.stdout.split())) == (name == "hopeless")
        assert "0 of 54 samples, at most 110,592 tokens" in first and "54 of 54 samples, " in last
    (scores,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert scores["metrics"]["greedy"]["value"] == 1.0
    both = ["compare", *(str(tmp_path / name) for name in runs)]
    assert "Difference to hopeless" in CliRunner().invoke(app, both).stdout
    found, greedy = json.loads(CliRunner().invoke(app, [*both, "--format", "json"]).stdout)
    assert found["candidate"] == "able" and len(found["better"]) == 6 and greedy["metric"] == "greedy"
    hot = "--temperatures 0.6 --temperatures 0.3 --temperature-samples 2"
    grown = CliRunner().invoke(app, [*words, *hot.split()])
    assert grown.exit_code == 0 and "T=0.3" in grown.stdout and "78 of 78 samples" in grown.stderr
    assert "\\toprule" in CliRunner().invoke(app, [*both, "--format", "latex"]).stdout
