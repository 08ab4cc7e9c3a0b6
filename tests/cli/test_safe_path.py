"""The current folder may come from elsewhere: no process runs its modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from trimsft.lab import base_model_path

OTHERS = ("accelerate", "numpy", "ray", "torch", "tqdm", "transformers", "trimsft", "trl", "typer", "yaml")
STUDY = ("study", "run", "main", "--smoke", "--model", "good=lab", "--workers", "1", "--out", "out")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose modules leave a mark where they are imported; beside it a program."""
    folder = tmp_path / "from elsewhere"
    folder.mkdir()
    for name in {*sys.stdlib_module_names, *OTHERS}:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name + ' '!r})\n")
    (folder / "own.py").write_text("def half(tokens):\n    return 0 * tokens.gap + 0.5\n")
    return folder


def require_clean(folder: Path, *command: str, **environment: str) -> None:
    paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    environment = {**os.environ, **paths, **environment}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    ran = folder.with_name("ran")
    assert not ran.exists(), f"modules of the current folder ran: {ran.read_text()}"
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_cells_of_a_study_import_nothing_from_it(executor: str, folder: Path) -> None:
    if executor == "ray":
        pytest.importorskip("ray")
    program = str(ROOT / "tests/study/study_process.py")
    require_clean(folder, program, *STUDY, "--executor", executor, TRIMSFT_STUB="yes")


def test_python_m_imports_no_package_from_it(folder: Path) -> None:
    """Before `-m` runs anything Python itself has imported the standard library from there."""
    for name in {*sys.stdlib_module_names, "trimsft"}:
        (folder / f"{name}.py").unlink()
    (folder / "rows.jsonl").write_text('{"problem": "1+1?", "solution": "2"}\n' * 4)
    words = ("--model", str(base_model_path()), "--data", "rows.jsonl", "--objective", "own:half", "--dry-run")
    require_clean(folder, "-m", "trimsft", "train", *words, "--output-dir", "out")
