"""What `doctor` says of a machine: packages, backends of the head, and how it ends."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from typer.testing import CliRunner

from trimsft import cli
from trimsft.cli.doctor import check_packages
from trimsft.head import chunked

NEEDED = [
    "numpy>=1.26",
    "trl<2,>=1.16; extra == 'train'",
    "vllm==0.32.*; extra == 'vllm'",
    "ruff>=0.15; extra == 'dev'",
]


def test_it_checks_the_backends_against_float64() -> None:
    # in a process of its own, without the interpreter that the other tests of the kernels need
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "trimsft", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    verdicts = {(check["backend"], check["dtype"]): check["verdict"] for check in facts["checks"]}
    for backend in {"reference", "chunked", facts["auto"]}:
        assert verdicts[backend, "float32"] == verdicts[backend, "bfloat16"] == "passed"
    if facts["device"] == "cpu":
        assert facts["auto"] == "chunked" and verdicts["triton", "float32"] == "not here"


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


@pytest.mark.parametrize(
    ("name", "here", "verdict", "remedy"),
    [
        ("trl", "1.16.2", "ok", ""),
        ("trl", "1.15.0", "wrong", "pip install 'trl<2,>=1.16'"),
        ("trl", None, "optional", "pip install 'trimsft[train]'"),
        ("numpy", None, "wrong", "pip install 'numpy>=1.26'"),
        ("vllm", "0.31.0", "wrong", "pip install 'vllm==0.32.*'"),
    ],
)
def test_packages_outside_their_window_are_named(monkeypatch, name, here, verdict, remedy) -> None:
    packages = {"trl": "1.16.2", "numpy": "2.4.6", "vllm": "0.32.1", name: here}

    def version(name: str) -> str:
        if packages.get(name) is None:
            raise PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr("trimsft.cli.doctor.requires", lambda _: NEEDED)
    monkeypatch.setattr("trimsft.cli.doctor.version", version)
    found = {package["name"]: package for package in check_packages()}
    assert list(found) == ["numpy", "trl", "vllm"]
    assert found[name] == {"name": name, "here": here or "absent", "verdict": verdict, "remedy": remedy}
