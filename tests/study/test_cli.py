"""`trimsft study` as a command: what it prints, its exit codes, and that it can be killed and stopped."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import processes
from tests.processes import finish, wait_for
from trimsft.cli import app
from trimsft.study.scales import SCALES
from trimsft.study.studies import STUDIES, left_out_models

RUNNER = CliRunner()


def start(*words: str) -> subprocess.Popen[str]:
    return processes.start("tests.study.study_process", *words)


def states(out: Path) -> dict[str, str]:
    told = json.loads(RUNNER.invoke(app, ["study", "status", str(out), "--json"]).stdout)
    return {state["cell"]: state["state"] for state in told}


def test_a_killed_study_goes_on_and_its_status_is_right_meanwhile(tmp_path: Path) -> None:
    words = ("run", "main", "--smoke", "--workers", "1", "--out", str(tmp_path))
    trim = "lab/trim-margin1.5-bandwidth0.8/seed0"
    first = start(*words)
    wait_for(first, (tmp_path / "runs" / trim / "log.txt").exists)
    seen = states(tmp_path)
    assert seen["lab/base/seed0"] == seen["lab/sft/seed0"] == "done" and seen[trim] in ("running", "missing")
    first.send_signal(signal.SIGKILL)
    finish(first)
    before = (tmp_path / "runs/lab/sft/seed0/model/model.safetensors").stat().st_mtime_ns
    code, said, err = finish(start(*words, "--json"))
    assert code == 0, err
    (told,) = json.loads(said)
    assert list(told["done"]) == ["lab/base/seed0", "lab/sft/seed0", trim] and told["failed"] == {}
    assert list(told["seconds"]) == [trim] and told["files"]
    assert "lab/sft/seed0: done, before" in err and f"{trim}: training" in err
    assert (tmp_path / "runs/lab/sft/seed0/model/model.safetensors").stat().st_mtime_ns == before
    assert set(states(tmp_path).values()) == {"done"}
    shown = RUNNER.invoke(app, ["study", "status", str(tmp_path)]).stdout
    assert "3 of 3 done" in shown and trim in shown


def test_ctrl_c_says_that_the_same_command_continues(tmp_path: Path) -> None:
    process = start("run", "main", "--smoke", "--workers", "1", "--out", str(tmp_path))
    wait_for(process, (tmp_path / "runs/lab/base/seed0/log.txt").exists)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert err.splitlines()[-1] == "trimsft: interrupted; what is done is kept; the same command continues"
    assert "Traceback" not in err
    assert set(states(tmp_path).values()) == {"missing"}  # nobody holds a cell any more


def test_list_and_show_name_studies_and_cells() -> None:
    listed = json.loads(RUNNER.invoke(app, ["study", "list", "--json"]).stdout)
    assert [study["study"] for study in listed][:2] == ["main", "passes"]
    assert "tab:ablation-fixed-m" in RUNNER.invoke(app, ["study", "list"]).stdout
    shown = RUNNER.invoke(app, ["study", "show", "main", "--scale", "paper", "--model", "Llama3.1-8B"]).stdout
    assert "  Llama3.1-8B/dft/seed0" in shown.splitlines() and "Qwen" not in shown


def test_a_dry_run_prints_what_it_would_take_and_writes_nothing(tmp_path: Path) -> None:
    words = ["study", "run", "main", "--dry-run", "--json", "--out", str(tmp_path / "out")]
    done = RUNNER.invoke(app, words)
    assert done.exit_code == 0, done.output
    cost = json.loads(done.stdout)
    assert (
        cost["studies"] == ["main"]
        and len(cost["cells"]) == 5
        and cost["total"]["cpu_hours"] > 0
        and cost["assumptions"]
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "table1"], "trimsft: study: unknown name 'table1'; known: main, "),
        (["run", "mian"], "trimsft: study: unknown name 'mian'; did you mean 'main'? known: main, "),
        (["run", "main", "table1"], "trimsft: study: unknown name 'table1'; known: main, "),
        (["run", "main", "--scale", "huge"], "trimsft: scale: unknown name 'huge'; known: lab, small, paper"),
        (["run", "main", "--data", "x.jsonl"], "trimsft: data: 'x.jsonl' has no effect at scale 'lab'"),
        (["run", "main", "--executor", "slurm"], "trimsft: executor: unknown name 'slurm'"),
        (["show", "main", "--model", "other"], "trimsft: model: unknown name 'other'; known: lab"),
        (
            ["run", "main", "--model", "lab=gone"],
            "trimsft: model: lab='gone' cannot be read (no such folder here, so the hub was asked): ",
        ),
        (
            ["run", "main", "--smoke", "-b", "lab-eazy"],
            "trimsft: benchmark: unknown name 'lab-eazy'; did you mean",
        ),
        (
            ["run", "main", "--dry-run", "-b", "lab-eazy"],
            "trimsft: benchmark: unknown name 'lab-eazy'; did you",
        ),
        (
            ["run", "main", "--scale", "small", "--dry-run"],
            "trimsft: dataset_name: no such file or folder: 'data/gsm8k_train.jsonl', which its recipe names; --data",
        ),
        (["status", "nowhere"], "trimsft: nowhere: holds no study"),
        (["table", "main", "nowhere"], "trimsft: nowhere: holds no study"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = RUNNER.invoke(app, ["study", *words])
    assert done.exit_code == 2 and done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_study_of_one_model_says_which_it_takes_before_it_runs(tmp_path: Path) -> None:
    words = ["--model", "a=lab", "--model", "b=lab", "--dry-run", "--json", "--out", str(tmp_path / "out")]
    done = RUNNER.invoke(app, ["study", "run", "gaps", "weights", "main", *words])
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == [
        "gaps, weights: on a only; left out: b; --model b with another --out takes it instead"
    ]
    cells = json.loads(done.stdout)["cells"]
    assert {cell["name"].split("/")[0] for cell in cells} == {"a", "b"}, "main takes both"
    assert left_out_models(STUDIES.values(), SCALES["lab"]) == [], "there is one"
