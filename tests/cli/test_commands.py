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
from trimsft.bench.head import METHODS, Method
from trimsft.cli.base import called
from trimsft.runs import RunDirectory
from trimsft.train.run import TrainResult

TINY = ["--tokens", "24", "--hidden", "16", "--vocabulary", "96", "--seconds", "0.001", "--device", "cpu"]


def run(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)


COMMANDS = (
    "quickstart", "train", "watch", "recipes", "eval", "compare", "tokens", "audit", "report", "export", "study",
    "sweep", "bench", "doctor",
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
    for words in (["bench", "--seconds", "x"], ["tokens", "m", "--data", "d", "--batch_tokens", "x"]):
        result = run(*words)
        assert result.exit_code == 2 and result.stderr == f"trimsft: {words[-2].replace('_', '-')}: 'x' is not a " + (
            "number\n" if words[0] == "bench" else "whole number\n"
        )


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
    ("arguments", "message"),
    [
        (["--tokens", "0"], "trimsft: --tokens: must be at least 1, got 0\n"),
        (["--device", "tpu"], "trimsft: --device: must be auto, cpu, cuda or cuda:N, got 'tpu'\n"),
        (["--device", "cuda:99"], "trimsft: --device: is not there, got 'cuda:99'; torch sees"),
        (["--only", "no such method"], "trimsft: --only: is part of no name, got 'no such method'; the names: "),
        (["--out", "."], "trimsft: --out: '.' is a folder; name a file\n"),
        (["--out", "~nobody-of-this-name/x"], "trimsft: --out: cannot be a path"),
        (
            ["--device", "cpu", "--vocabulary", "9" * 13],
            "trimsft: 512 x 512 x 9999999999999 cannot be measured on cpu (",
        ),
        (["--device", "cpu", "--tokens", "9" * 20], "trimsft: 99999999999999999999 x 512 x 8192 cannot be measured on"),
    ],
)
def test_bad_values_get_one_line(arguments: list[str], message: str) -> None:
    result = run("bench", *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(message)
    unknown = run("bench", "--batch", "3")
    assert unknown.exit_code == 2 and "No such option: --batch" in unknown.stderr


def test_bench_json_has_our_rows(tmp_path) -> None:
    result = run("bench", *TINY, "--only", "TrimSFT, exact", "--json", "--out", str(tmp_path / "new" / "bench.json"))
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report == json.loads((tmp_path / "new" / "bench.json").read_text())
    assert report["shape"] | {"name": ""} == {"name": "", "tokens": 24, "hidden_size": 16, "vocabulary": 96}
    assert (report["device"], report["dtype"]) == ("cpu", "float32")
    (ours,) = report["results"]
    assert ours["method"] == "trimsft: TrimSFT, exact" and ours["ours"] and ours["kept"] == 1
    assert ours["milliseconds"] > 0 and ours["weight_error"] < 1e-5


def test_bench_lists_methods_that_cannot_run_and_why(monkeypatch) -> None:
    def load():
        raise ImportError("no module of that name")

    absent = Method("absent TrimSFT, exact", "sft", load)
    monkeypatch.setattr("trimsft.bench.head.METHODS", (*METHODS, absent))
    result = run("bench", *TINY, "--only", "TrimSFT, exact")
    assert result.exit_code == 0 and "trimsft: TrimSFT, exact" in result.stdout
    assert "absent TrimSFT, exact: ImportError: no module of that name" in result.stdout
    assert run("bench", *TINY, "--only", "absent").exit_code == 1


def test_out_that_cannot_be_written_fails_in_one_line(tmp_path) -> None:
    (tmp_path / "file").touch()
    result = run("bench", *TINY, "--only", "plain SFT", "--out", str(tmp_path / "file" / "bench.json"))
    assert result.exit_code == 1 and "plain SFT" in result.stdout
    assert "bench.json: cannot be written (File exists)" in result.stderr and result.stderr.count("\n") == 1


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
        ("--model m --data rows.jsonl --bandwidth 0", "--bandwidth: must be above 0"),
        ("model rows.jsonl", "belongs to no field; for a model: --model model; for data: --data rows.jsonl"),
    ):
        result = run("train", *words.split())
        assert result.exit_code == 2 and says in result.stderr and result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.jsonl"]
