"""The quickstart on a tiny scale: what it leaves and says, and that it continues."""

import json
import re
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import processes
from tests.evaluate.graded import same, samples_of, score
from tests.processes import finish
from tests.study.conftest import inline, stubs  # noqa: F401 - fixtures
from trimsft import lab
from trimsft.cli import app
from trimsft.evaluate.scores import BenchmarkScore, load_run
from trimsft.objectives import PAPER_OBJECTIVES
from trimsft.quickstart import QuickstartOutcome, QuickstartSettings, describe, tables_of
from trimsft.runs import RunDirectory

RUNS = ("base", "sft", "trim", "auto-trim")
SIZES: dict[str, Any] = {"rows": 24, "batch": 12, "problems": 2, "samples": 2, "max_tokens": 12, "table_rows": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A quickstart as a process: folder, stdout, stderr."""
    out = tmp_path_factory.mktemp("quickstart") / "out"
    words = ("quickstart", "--fast", "--out", str(out))
    code, said, err = finish(processes.start("tests.study.study_process", *words, columns=80))
    assert code == 0, err
    return out, said, err


def written(out: Path) -> dict[str, int]:
    """Return when each result was written."""
    files = [*out.glob("*/model/model.safetensors"), *out.glob("*/eval/*/samples.jsonl"), *out.glob("*/*.parquet")]
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in files}


def test_it_leaves_runs_and_shows_results(finished: tuple[Path, str, str]) -> None:
    out, said, err = finished
    for name in RUNS:
        assert {(score.problems, score.samples) for score in load_run(out / name, tuple(lab.TIERS))} == {(2, 2)}
        assert (out / name / "tokens.parquet").stat().st_size > 0 and (out / "logs" / f"{name}.log").exists()
    for name in RUNS[1:]:
        run = RunDirectory(out / name)
        assert run.is_finished() and run.read_manifest()["seed"] == 0
        assert (run.read_config() or {})["learning_rate"] == 0.0005
    assert "TrimSFT" in (out / "report.html").read_text()
    assert "trimsft: SFT: training" in err and re.search("trimsft: Base: done, average@2 ", err)
    for part in ("average", "greedy", "Base", "TrimSFT", "AutoTrim", "lab-medium", str(out / "report.html")):
        assert part in said
    assert re.search(r"TrimSFT (is (above|below)|shows no significant difference from) SFT", " ".join(said.split()))


def test_a_second_call_repeats_nothing(finished: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _, _ = finished
    before = written(out)
    monkeypatch.setattr(QuickstartSettings, "__init__", partialmethod(QuickstartSettings.__init__, **SIZES))
    done = CliRunner().invoke(app, ["quickstart", "--fast", "--out", str(out), "--json"])
    assert done.exit_code == 0 and written(out) == before
    record = json.loads(done.stdout)
    assert record == json.loads((out / "quickstart.json").read_text())
    assert list(record["scores"]) == list(RUNS) and record["failures"] == {}
    assert list(record["seconds"]) == ["total"], "nothing was left to do"
    refused = CliRunner().invoke(app, ["quickstart", "--fast", "--seed", "3", "--out", str(out)])
    assert refused.exit_code == 2 and "holds a run with other settings: seed: was 0, now 3" in refused.stderr


def test_rows_are_drawn_apart(tmp_path: Path) -> None:
    settings = QuickstartSettings(fast=True, seed=2, out=tmp_path)
    assert [cell.objective for cell in QuickstartSettings().cells()] == ["base", *PAPER_OBJECTIVES, "auto-trim"]
    folder = settings.folder()
    folder.settle(settings.to_scale(), [])
    train, held_out = (path.read_text().splitlines() for path in (folder.training_data(2), folder.token_rows))
    assert (len(train), len(held_out)) == (600, 40) and not set(train) & set(held_out)


def outcome_of(**solved: tuple[int, float]) -> QuickstartOutcome:
    """Return an outcome by samples of 8 that are right, and the share solved greedily."""

    def tier(name: str, right: int, greedy: float) -> BenchmarkScore:
        results = []
        for number in range(24):
            # one more or one less by turns: problems differ, and runs on them, but means do not
            correct = right + ((number + 2 * right) % 3 - 1 if 0 < right < 8 else 0)
            answers = " ".join(["1"] * correct + ["0"] * (8 - correct))
            results += samples_of(f"p{number:03}", answers, greedy="1" if number < greedy * 24 else "0")
        return score(name, results, same, resamples=200)

    scores = {name: [tier(each, *how) for each in lab.TIERS] for name, how in solved.items()}
    outcome = QuickstartOutcome(QuickstartSettings(), cells=None, scores=scores)  # type: ignore[arg-type]
    outcome.compare(resamples=200)
    return outcome


@pytest.mark.parametrize(
    ("solved", "said"),
    [
        ({"sft": (4, 0.5), "trim": (7, 0.5)}, "TrimSFT is above SFT at temperature 1: 87.5 against 50.0, +37.5"),
        ({"sft": (7, 1.0), "trim": (4, 1.0)}, "TrimSFT is below SFT at temperature 1: 50.0 against 87.5, -37.5"),
        ({"sft": (6, 1.0), "trim": (6, 1.0)}, "TrimSFT shows no significant difference from SFT at temperature 1"),
        ({"sft": (4, 0.6), "trim": (7, 0.2)}, "TrimSFT is below SFT with greedy decoding"),
    ],
)
def test_what_it_says_is_what_the_scores_are(solved: dict[str, tuple[int, float]], said: str) -> None:
    assert said in " ".join(describe(outcome_of(**solved)))


def test_sft_at_its_best_temperature_is_a_row_of_its_own() -> None:
    sampled, greedy, *_ = tables_of(outcome_of(sft=(4, 1.0), trim=(7, 0.5)))
    assert [cells[0].text for cells in sampled.rows] == ["SFT", "TrimSFT", "SFT at T=0"]
    assert sampled.rows[2][-1].text == "100.0" and sampled.rows[2][-1].bold and not sampled.rows[1][-1].bold
    assert [cells[0].text for cells in greedy.rows] == ["SFT", "TrimSFT"]
