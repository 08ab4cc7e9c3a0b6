"""The command on a tiny scale, from nothing to the report: what it leaves, and that it continues."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import processes
from tests.processes import finish, wait_for
from trimsft.scoring.records import load_run
from trimsft.runs import RunDirectory
from trimsft.study.quickstart.steps import Place

RUNS = ("base", "sft", "trim")


def start(out: Path, *words: str) -> subprocess.Popen[str]:
    return processes.start("tests.study.quickstart.quickstart_process", "--out", str(out), *words, columns=80)


def written(out: Path) -> dict[str, int]:
    """When each result was written, and so that it was not written again."""
    files = [
        *out.glob("*/model/model.safetensors"),
        *out.glob("*/eval/*/samples.jsonl"),
        *out.glob("*/*.parquet"),
    ]
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A quickstart that was killed while it trained its second method, and then started again."""
    out = tmp_path_factory.mktemp("quickstart") / "out"
    place = Place(out)
    first = start(out)
    wait_for(first, lambda: place.log("trim").exists())
    first.send_signal(signal.SIGKILL)
    finish(first)
    before = written(out)
    assert "sft/model/model.safetensors" in before and "trim/tokens.parquet" not in before
    code, said, err = finish(start(out))
    assert code == 0, err
    assert {name: when for name, when in written(out).items() if name in before} == before
    return out, said, err


def test_a_killed_quickstart_goes_on_and_repeats_nothing(finished: tuple[Path, str, str]) -> None:
    _, _, err = finished
    lines = [line.split("  ", 1)[1] for line in err.splitlines()]
    assert lines[0].startswith("Base: done, before; average@2 ")
    assert lines[1].startswith("SFT: done, before; average@2 ")
    assert lines[-1].startswith("TrimSFT: done, average@2 ")
    assert not [line for line in lines[2:] if not line.startswith("TrimSFT: ")]


def test_it_leaves_ordinary_run_directories(finished: tuple[Path, str, str]) -> None:
    out, _, _ = finished
    for name in RUNS[1:]:
        run = RunDirectory(out / name)
        assert run.is_finished() and run.read_manifest()["seed"] == 0
        assert "learning_rate: 0.0005" in run.config_path.read_text()
        assert len((run.train_dir / "telemetry.jsonl").read_text().splitlines()) >= 2
    for name in RUNS:
        scores = load_run(out / name)
        assert [score.benchmark for score in scores] == ["lab-easy", "lab-hard", "lab-medium"]
        assert {(score.problems, score.samples) for score in scores} == {(2, 2)}
        assert (out / name / "tokens.parquet").stat().st_size > 0
    assert "TrimSFT" in (out / "report.html").read_text()


def test_it_shows_table_words_and_what_comes_next(finished: tuple[Path, str, str]) -> None:
    out, said, _ = finished
    for part in ("average@2", "greedy", "Base", "TrimSFT", "lab-medium", "majority@2", "trimsft compare"):
        assert part in said
    assert "TrimSFT is" in said and "SFT here:" in " ".join(said.split())
    assert f"{out / 'report.html'}" in said


def test_once_more_is_quick_and_json_is_alone_on_stdout(finished: tuple[Path, str, str]) -> None:
    out, _, _ = finished
    before = written(out)
    code, said, _ = finish(start(out, "--json"))
    assert code == 0 and written(out) == before
    record = json.loads(said)
    assert record == json.loads((out / "quickstart.json").read_text())
    assert set(record["scores"]) == set(RUNS) and record["failures"] == {}
    assert set(record["scores"]["trim"]["lab-hard"]) == {"average@2", "greedy", "pass@2", "majority@2"}
    assert list(record["seconds"]) == ["total"]  # nothing was left to do


def test_other_settings_are_refused_with_the_difference(finished: tuple[Path, str, str]) -> None:
    from typer.testing import CliRunner

    from trimsft.cli import app

    out, _, _ = finished
    done = CliRunner().invoke(app, ["quickstart", "--seed", "3", "--out", str(out)])
    assert done.exit_code == 2
    assert "holds a run with other settings: seed: was 0, now 3" in done.stderr


def test_a_method_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "sft").touch()  # where a run directory belongs
    process = start(tmp_path)
    code, said, err = finish(process)
    assert code == 1
    assert "SFT: failed, " in err and "TrimSFT: done" in err
    assert f"trimsft: SFT: {tmp_path / 'sft'}: cannot be used as a run directory" in err
    assert str(tmp_path / "logs" / "sft.log") in err
    assert "  TrimSFT " in said and "  SFT " not in said
    assert "Traceback" not in err


def test_ctrl_c_ends_the_workers_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for(process, (tmp_path / "logs" / "base.log").exists)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the workers, too
    code, _, err = finish(process)
    assert code == 130
    assert err.splitlines()[-1] == "trimsft: interrupted; what is done is kept; the same command continues"
    assert "Traceback" not in err
    assert "KeyboardInterrupt" not in (tmp_path / "logs" / "base.log").read_text()
    with RunDirectory(tmp_path / "base" / "eval" / "lab-easy").lock():
        pass  # nobody holds it
