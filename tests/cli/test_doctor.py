"""What `doctor` says of a machine, and how it ends."""

import json

import pytest
import torch
from typer.testing import CliRunner

from trimsft import cli
from trimsft.head import chunked


def test_it_checks_the_head_against_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimsft.head.problem.auto_backend", lambda tensor: "chunked")
    done = CliRunner().invoke(cli.app, ["doctor", "--json"], catch_exceptions=False)
    facts = json.loads(done.stdout)
    assert done.exit_code == 0 and facts["torch"] == torch.__version__ and facts["head"].startswith("passed: error ")
    right = chunked.solve

    def wrong(problem):
        solution = right(problem)
        solution.grad_weight_VH.mul_(1.001)
        return solution

    monkeypatch.setattr("trimsft.head.chunked.solve", wrong)
    result = CliRunner().invoke(cli.app, ["doctor"], catch_exceptions=False)
    assert result.exit_code == 1 and "trimsft: head failed: error " in result.stderr
