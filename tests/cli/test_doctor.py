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
    for backend in {"reference", "chunked", facts["backend"]}:
        for dtype in ("float32", "bfloat16"):
            assert facts[f"{backend} torch.{dtype}"].startswith("passed: error ")
    if facts["device"] == "cpu":
        assert facts["backend"] == "chunked" and facts["triton torch.float32"].startswith("not here: ")


def test_a_backend_that_is_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = chunked.solve

    def wrong(problem):
        solution = right(problem)
        solution.grad_weight_VH.mul_(1.001)
        return solution

    monkeypatch.setattr("trimsft.head.chunked.solve", wrong)
    monkeypatch.setattr("trimsft.head.BACKENDS", ("auto", "reference", "chunked"))
    result = CliRunner().invoke(cli.app, ["doctor"], catch_exceptions=False)
    assert result.exit_code == 1 and "trimsft: chunked torch.float32 failed: error " in result.stderr
    assert "reference torch.float32  passed" in result.stdout
