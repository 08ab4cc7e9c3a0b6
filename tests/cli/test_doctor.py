"""What `doctor` says of a machine: versions, backends of the head, and how it ends."""

import json
import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from trimsft import cli
from trimsft.head import chunked


def test_it_checks_the_backends_against_float64() -> None:
    # in a process of its own, without the interpreter that the other tests of the kernels need
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "trimsft", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["torch"] == torch.__version__ and facts["hub"]
    verdicts = {(check["backend"], check["dtype"]): check["verdict"] for check in facts["checks"]}
    for backend in {"reference", "chunked", facts["backend"]}:
        assert verdicts[backend, "float32"] == verdicts[backend, "bfloat16"] == "passed"
    if facts["device"] == "cpu":
        assert facts["backend"] == "chunked" and verdicts["triton", "float32"] == "not here"


def test_a_backend_that_is_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = chunked.solve

    def wrong(problem):
        solution = right(problem)
        solution.grad_weight_VH.mul_(1.001)
        return solution

    monkeypatch.setattr("trimsft.head.chunked.solve", wrong)
    monkeypatch.setattr("trimsft.head.BACKENDS", ("auto", "reference", "chunked"))
    result = CliRunner().invoke(cli.app, ["doctor"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "chunked float32      failed" in result.stdout and "reference float32    passed" in result.stdout
