"""`trimsft sweep` as a command: what it refuses, in one line and before anything is written."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimsft.cli import app

RUNNER = CliRunner()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "trimsft: --grid: there is none; name a field and its values, such as --grid margin=0:6:1"),
        (
            ["--grid", "margin=1", "--model", "a=lab", "--model", "b=lab"],
            "trimsft: --model: a sweep takes one, got a=lab and b=lab; sweep once for each",
        ),
        (["--grid", "objective=trim,tirm"], "trimsft: objective: unknown name 'tirm'; did you mean 'trim'?"),
        (
            ["--grid", "margin=1", "-b", "lab-esay"],
            "trimsft: benchmark: unknown name 'lab-esay'; did you mean",
        ),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_bad_usage_is_one_line_and_exit_code_2(
    words: list[str], message: str, dry: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = RUNNER.invoke(app, ["sweep", *words, *(["--dry-run"] if dry else [])])
    assert done.exit_code == 2 and done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_counts_sft_at_every_learning_rate(tmp_path: Path) -> None:
    words = ["--grid", "objective=trim,dft", "--grid", "learning_rate=2e-4,1e-3", "--dry-run", "--json"]
    done = RUNNER.invoke(app, ["sweep", *words, "--model", "mine=lab", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    names = [cell["name"] for cell in json.loads(done.stdout)["cells"]]
    assert len(names) == 6 and "mine/sft-learning_rate0.001/seed0" in names
