import json
import logging
import os
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import trimsft
from trimsft import cli
from trimsft.cli.terminal import called
from trimsft.runs import RunDirectory
from trimsft.train.run import TrainResult


def run(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)


COMMANDS = (
    "quickstart", "train", "watch", "recipes", "eval", "compare", "tokens", "audit", "report", "export", "study",
    "sweep", "doctor",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"  trimsft {command}" in result.stdout


def test_version_and_help_that_names_every_command() -> None:
    assert run("--version").stdout == f"trimsft {trimsft.__version__}\n"
    for result in (run("--help"), run()):
        assert all(f"\n  {command} " in result.output for command in COMMANDS)
        assert "..." not in result.output.partition("Commands:")[2]  # no summary is cut off
        assert "--install-completion" in result.output


def test_options_are_called_the_same_with_dashes_and_underscores() -> None:
    for flag in ("--batch_tokens", "--batch-tokens"):
        result = run("tokens", "m", "--data", "d", flag, "x")
        assert (result.exit_code, result.stderr) == (2, "trimsft: --batch-tokens: 'x' is not a whole number\n")


def test_printed_commands_call_the_program_as_the_shell_finds_it(tmp_path, monkeypatch) -> None:
    programs = [tmp_path / folder / "trimsft" for folder in ("one", "two")]
    for program in programs:
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "one"))
    for typed, name in (
        (str(programs[0]), "trimsft"),
        (str(programs[1]), str(programs[1])),  # of another environment than the one that is active
        ("/site-packages/trimsft/__main__.py", f"{sys.executable} -m trimsft"),
    ):
        monkeypatch.setattr(sys, "argv", [typed, "quickstart"])
        assert called() == name


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("trimsft.cli", {"trl", "vllm", "matplotlib", "triton", "transformers"}),
        ("trimsft.report.watch", {"torch", "transformers", "matplotlib", "pyarrow", "datasets"}),
        ("trimsft.objectives", {"torch", "trl", "vllm", "matplotlib", "triton", "transformers", "datasets"}),
    ],
)
def test_import_loads_nothing_heavy(module: str, heavy: set[str]) -> None:
    script = f"import sys, {module}; sys.exit({heavy} & set(sys.modules) or None)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("doctor --batch 3", "Error: No such option: --batch"),
        ("eval m --hlep", "Error: No such option: --hlep"),
        ("evl", "Error: No such command 'evl'"),
    ],
)
def test_a_mistyped_word_ends_in_one_line(words: str, line: str) -> None:
    result = run(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith(line)


def test_doctor_checks_the_backends_against_float64() -> None:
    # in a process of its own, without the interpreter that the other tests of the kernels need
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "trimsft", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["trimsft"] == trimsft.__version__
    verdicts = {(check["backend"], check["dtype"]): check["verdict"] for check in facts["checks"]}
    for backend in {"reference", "chunked", facts["auto"]["backend"]}:
        assert verdicts[backend, "float32"] == verdicts[backend, "bfloat16"] == "passed"
    if facts["cuda"] is None:
        assert facts["auto"] == {"backend": "chunked", "because": "torch sees no CUDA device"}
        assert verdicts["triton", "float32"] == "not here"


def test_doctor_fails_on_a_backend_that_is_wrong(monkeypatch) -> None:
    right = trimsft.head.chunked.solve

    def wrong(problem):
        solution = right(problem)
        solution.grad_weight_VH.mul_(1.001)
        return solution

    monkeypatch.setattr("trimsft.head.chunked.solve", wrong)
    monkeypatch.setattr("trimsft.head.BACKENDS", ("auto", "reference", "chunked"))
    result = run("doctor")
    assert result.exit_code == 1 and "failed" in result.stdout and "passed" in result.stdout
    assert re.search("'auto' is (chunked|triton): ", result.stdout)


def test_train_prints_json_alone_and_nothing_when_quiet(tmp_path, monkeypatch) -> None:
    done = TrainResult(run=RunDirectory(tmp_path), steps=3, metrics={"train_loss": 0.5}, was_finished=False)

    def train(settings: object) -> TrainResult:
        typer.echo("step 1/3  loss 0.7")
        logging.getLogger("trimsft").info("train data: 9 rows")
        return done

    monkeypatch.setattr("trimsft.train.run.train", train)
    words = ["train", "--model", "m", "--data", "d.jsonl"]
    assert run(*words).stdout == "step 1/3  loss 0.7\n"
    as_json = run(*words, "--json")
    assert json.loads(as_json.stdout) == {
        "run": str(tmp_path), "model": str(tmp_path / "model"), "steps": 3, "metrics": {"train_loss": 0.5},
    }  # fmt: skip
    assert as_json.stderr == "step 1/3  loss 0.7\ntrimsft: train data: 9 rows\n"
    quiet = run(*words, "--quiet")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")


def test_errors_of_train_call_fields_as_they_are_typed(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"problem": "1+1?", "solution": "2"}\n')
    (tmp_path / "model").mkdir()
    for words, says in (
        ("--data rows.jsonl", "--model: is missing; name a model of the hub or a local folder"),
        ("--model m --data rows.jsonl --bandwidth 0", "--bandwidth: must be a finite number > 0"),
        ("model rows.jsonl", "belongs to no field; --model model, perhaps"),
    ):
        result = run("train", *words.split())
        assert result.exit_code == 2 and says in result.stderr and result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.jsonl"]
