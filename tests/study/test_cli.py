"""`trimsft study` and `trimsft sweep` as commands: exit codes, and that they can be stopped."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import processes
from tests.processes import finish, wait_for
from trimsft.cli import app

RUNNER = CliRunner()


def start(*words: str) -> subprocess.Popen[str]:
    return processes.start("tests.study.study_process", "study", *words)


def states(out: Path) -> dict[str, str]:
    listed = json.loads(RUNNER.invoke(app, ["study", "status", str(out), "--json"]).stdout)
    return {state["cell"]: state["state"] for state in listed}


def test_a_killed_or_interrupted_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMSFT_STUB", "yes")
    models = ("--model", "good=lab", "--model", "slow=lab")
    words = ("run", "main", "--smoke", *models, "--workers", "1", "--out", str(tmp_path))
    runs = tmp_path / "runs"
    for number, (cell, stop, code) in enumerate(
        [("sft", signal.SIGKILL, -signal.SIGKILL), ("trim*", signal.SIGINT, 130), ("base", signal.SIGTERM, 143)]
    ):
        process = start(*words)
        wait_for(process, lambda cell=cell: any(runs.glob(f"slow/{cell}/seed0/attempt-0")))
        seen = states(tmp_path)
        assert seen["good/sft/seed0"] == "done" and list(seen.values()).count("running") == 1
        assert seen["slow/sft/seed0"] == ("done" if number else "running")
        process.send_signal(stop)
        ended, _, err = finish(process)
        assert ended == code and "Traceback" not in err
        if number:
            assert err.strip().endswith("what is finished is kept; rerun the command to resume")
        ending = time.monotonic() + 20  # processes of a killed parent notice that it is gone
        while "running" in states(tmp_path).values():
            assert time.monotonic() < ending
    code, said, err = finish(start(*words, "--json"))
    assert code == 0, err
    (told,) = json.loads(said)
    assert len(told["done"]) == 6 and told["failed"] == {} and told["files"] == ["table.md"]
    assert list(told["seconds"]) == ["slow/base/seed0"]
    assert "good/sft/seed0: done, before" in err
    assert sorted(path.name for path in (runs / "slow/sft/seed0").glob("attempt-*")) == ["attempt-0", "attempt-1"]
    shown = RUNNER.invoke(app, ["study", "status", str(tmp_path)]).stdout
    assert "6 of 6 done" in shown and "good/sft/seed0" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("study run table1", "study: unknown name 'table1'; "),
        ("study run main --data ./x.jsonl", "--data: no such file or folder, got './x.jsonl'"),
        ("study run main --dry-run -b lab-eazy", "--benchmark: unknown name 'lab-eazy'; did you"),
        ("study run main --scale small --dry-run", "dataset_name: no such file or folder"),
        ("study run main --set learning_rat=1", "learning_rat: no such field; did you mean"),
        ("study status nowhere", "nowhere: holds no study"),
        ("sweep --grid margin=1 --model a=lab --model b=lab", "--model: a sweep takes one"),
        ("sweep --grid margin=1 --select-on lab-esay", "--select-on: unknown name 'lab-esay'"),
        ("sweep --grid margin=1 -b lab-easy --select-on lab-easy", "--select-on: is the only benchmark"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = RUNNER.invoke(app, words.split())
    assert done.stderr.startswith(f"trimsft: {message}") and len(done.stderr.splitlines()) == 1
    assert done.exit_code == 2 and list(tmp_path.iterdir()) == []
