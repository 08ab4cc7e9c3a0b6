"""The commands as a whole: help, imports, what train prints, where cells stand."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import trimsft
from trimsft import cli

COMMANDS = (
    "quickstart", "train", "watch", "recipes", "eval", "compare", "tokens", "audit", "report", "export", "study",
    "sweep", "doctor",
)  # fmt: skip


def run(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("command", [*COMMANDS, "study run"])
def test_help_has_an_example_and_fits_a_screen(command: str, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run(*command.split(), "--help")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and f"  trimsft {command}" in result.stdout
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert "--help-all" not in result.stdout or len(run(*command.split(), "--help-all").stdout) > len(result.stdout)


def test_version_and_help_that_names_every_command() -> None:
    assert run("--version").stdout == f"trimsft {trimsft.__version__}\n"
    assert all(f"\n  {command} " in run().output for command in COMMANDS)


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("trimsft.cli.program", {"numpy", "torch", "yaml", "trimsft.options", "trimsft.cli.commands"}),
        ("trimsft.cli.commands", {"trl", "vllm", "matplotlib", "triton", "transformers"}),
        ("trimsft.api", {"torch", "trl", "transformers", "matplotlib"}),
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
        ("evl", "Error: No such command 'evl'"),
        ("tokens m --data d --batch_tokens x", "Error: Invalid value for '--batch-tokens'"),  # or with a dash
        ("tokens m --data d --batch-tokens 0", "trimsft: --batch-tokens: must be at least 1, got 0"),
        ("train --model m --data d --bandwidth 0", "trimsft: --bandwidth: must be a finite number > 0"),
    ],
)
def test_a_mistyped_word_ends_in_one_line(words: str, line: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith(line) and not list(tmp_path.iterdir())
