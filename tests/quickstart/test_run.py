"""The command on a tiny scale, from nothing to the report: what it leaves, and that it continues."""

import json
import re
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import processes
from tests.processes import finish
from tests.study.conftest import inline, stubs  # noqa: F401 - fixtures
from trimsft import quickstart
from trimsft.cli import app
from trimsft.errors import UsageError
from trimsft.evaluate.scores import load_run
from trimsft.objectives import PAPER_OBJECTIVES
from trimsft.quickstart import QuickstartSettings, Results, run_quickstart
from trimsft.runs import RunDirectory
from trimsft.study.steps import training_fields, training_settings

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
    """When each result was written, and so that it was not written again."""
    files = [*out.glob("*/model/model.safetensors"), *out.glob("*/eval/*/samples.jsonl"), *out.glob("*/*.parquet")]
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in files}


def test_it_leaves_run_directories_and_shows_progress(finished: tuple[Path, str, str]) -> None:
    out, _, err = finished
    for name in RUNS[1:]:
        run = RunDirectory(out / name)
        assert run.is_finished() and run.read_manifest()["seed"] == 0
        assert (run.read_config() or {})["learning_rate"] == 0.0005
        assert len(run.telemetry_path.read_text().splitlines()) >= 2
    for name in RUNS:
        scores = load_run(out / name)
        assert [score.benchmark for score in scores] == ["lab-easy", "lab-hard", "lab-medium"]
        assert {(score.problems, score.samples) for score in scores} == {(2, 2)}
        assert (out / name / "tokens.parquet").stat().st_size > 0
        assert (out / "logs" / f"{name}.log").exists()
    assert "TrimSFT" in (out / "report.html").read_text()
    lines = [line.split("  ", 1)[1] for line in err.splitlines()]
    assert "SFT: training" in lines
    assert lines[-1].startswith("Base: done, average@2 ")


def test_it_shows_table_words_and_what_comes_next(finished: tuple[Path, str, str]) -> None:
    out, said, _ = finished
    for part in ("average@2", "greedy", "Base", "TrimSFT", "AutoTrim", "lab-medium", "majority@2", "trimsft compare"):
        assert part in said
    assert re.search(r"TrimSFT (is (above|below)|shows no significant difference from) SFT", " ".join(said.split()))
    assert f"{out / 'report.html'}" in said


def test_a_second_call_repeats_nothing(finished: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _, _ = finished
    before = written(out)
    monkeypatch.setattr(QuickstartSettings, "__init__", partialmethod(QuickstartSettings.__init__, **SIZES))
    done = CliRunner().invoke(app, ["quickstart", "--fast", "--out", str(out), "--json"])
    assert done.exit_code == 0 and written(out) == before
    record = json.loads(done.stdout)
    assert record == json.loads((out / "quickstart.json").read_text())
    assert set(record["scores"]) == set(RUNS) and record["failures"] == {}
    assert set(record["scores"]["trim"]["lab-hard"]) == {"average@2", "greedy", "pass@2", "majority@2"}
    assert list(record["seconds"]) == ["total"], "nothing was left to do"
    assert "Base: done, before; average@2 " in done.stderr
    refused = CliRunner().invoke(app, ["quickstart", "--fast", "--seed", "3", "--out", str(out)])
    assert refused.exit_code == 2 and "holds a run with other settings: seed: was 0, now 3" in refused.stderr


@pytest.mark.usefixtures("inline")
def test_a_method_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr("trimsft.evaluate.scores.load_run", lambda path, tiers: [])
    monkeypatch.setattr(Results, "as_dict", lambda results: dict.fromkeys(results.scores))
    monkeypatch.setattr(quickstart, "_write_page", refuse)
    (tmp_path / "sft").touch()  # where a run directory belongs
    outcome = run_quickstart(QuickstartSettings(fast=True, out=tmp_path))
    run, report = outcome.failures()
    assert run.startswith(f"SFT: {tmp_path / 'sft'}: cannot be used as a run directory")
    assert run.endswith(f"see {tmp_path / 'logs' / 'sft.log'}; rerun the command to try it again")
    assert report == f"report.html: no space left; the run directories in {tmp_path} are whole"
    record = json.loads((tmp_path / "quickstart.json").read_text())
    assert set(record["scores"]) == {"base", "trim", "auto-trim"} and set(record["failures"]) == {"sft", "report"}


def test_all_objectives_in_the_order_of_the_paper_after_the_base() -> None:
    assert [cell.objective for cell in QuickstartSettings().cells()] == ["base", *PAPER_OBJECTIVES, "auto-trim"]
    fast = QuickstartSettings(fast=True, seed=2)
    trained = ("sft", "trim", "auto-trim")
    assert (fast.methods, fast.rows, fast.folder().out) == (trained, 600, Path("runs/quickstart-fast"))
    assert {cell.seed for cell in fast.cells()} == {2}
    recorded = fast.as_dict()
    assert recorded["methods"] == list(trained) and not {"out", "fast", "workers"} & set(recorded)


def test_a_folder_of_fewer_methods_is_continued_with_more(tmp_path: Path) -> None:
    for methods in (("sft", "trim"), RUNS[1:]):
        settings = QuickstartSettings(fast=True, methods=methods, rows=2, table_rows=2, out=tmp_path)
        settings.folder()._settle(settings.to_scale())
    assert (RunDirectory(tmp_path).read_config() or {})["methods"] == list(RUNS[1:])


def test_methods_differ_in_nothing_but_the_objective() -> None:
    settings = QuickstartSettings(seed=3, margin=4.0)
    folder, scale, own = settings.folder(), settings.to_scale(), ("objective", "output_dir")
    fields = {cell.objective: training_fields(folder, scale, cell) for cell in settings.cells()[1:]}
    shared = {name: value for name, value in fields["sft"].items() if name not in own}
    for method, given in fields.items():
        band = {"margin": 4.0, "bandwidth": 0.8} if method.startswith("trim") else {}
        gamma = {"gamma": 2.0} if method == "fsft" else {}
        assert {name: value for name, value in given.items() if name not in own} == shared | band | gamma
        assert given["output_dir"] == f"runs/quickstart/{method}" and given["objective"] == method
    args = training_settings(folder, scale, settings.cells()[5]).args
    assert (args.objective, args.learning_rate, args.adam_beta2, args.seed) == ("trim-e", 5e-4, 0.95, 3)
    assert args.get_warmup_steps(50) == 5 and args.margin == 4.0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rows", 0, "rows: must be a whole number of at least 1, got 0"),
        ("seed", -1, "seed: must be at least 0, got -1"),
        ("seed", 2**32, "seed: must be at most 4294967295, got 4294967296"),
        ("samples", True, "samples: must be a whole number of at least 1, got True"),
        ("methods", ("sft", "base"), "methods: unknown name 'base'; "),
        ("device", "tpu", "device: must be cpu or cuda, got 'tpu'"),
    ],
)
def test_what_cannot_be_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QuickstartSettings(**{field: value})  # type: ignore[arg-type]
