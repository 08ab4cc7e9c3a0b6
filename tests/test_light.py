"""The core with torch and numpy alone; what a command says without its extra."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
HIDING = """
import importlib.metadata, sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
"""


def run_without(hidden: set[str], code: str) -> subprocess.CompletedProcess[str]:
    script = f"HIDDEN = {hidden!r}\n{HIDING}{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def packages(extra: str) -> set[str]:
    """Return the packages of an extra, those of the extras that it names included."""
    names: set[str] = set()
    for line in PROJECT["optional-dependencies"][extra]:
        own = re.match(r"trimsft\[(.*)\]", line)
        names |= set().union(*map(packages, own[1].split(","))) if own else {re.split(r"[^\w-]", line)[0]}
    return names


MODULES = {"PyYAML": "yaml", **{name: name.replace("-", "_") for name in packages("all") - {"PyYAML"}}}


def test_the_core_needs_torch_and_numpy_alone() -> None:
    assert [re.split(r"\W", line)[0] for line in PROJECT["dependencies"]] == ["torch", "numpy"]
    code = """
import torch, trimsft
hidden, weight = torch.randn(5, 8, requires_grad=True), torch.randn(11, 8)
for objective in (trimsft.make_objective("auto-trim"), trimsft.TrimSFT(), lambda tokens: tokens.prob):
    out = trimsft.linear_cross_entropy(hidden, weight, torch.arange(5), objective)
    out.loss.backward()
print(sorted({name.partition(".")[0] for name in sys.modules} & HIDDEN), out.weights.shape[0])
"""
    from_torch = {"filelock", "jinja2", "mpmath"}
    done = run_without({*MODULES.values(), "fcntl", "resource", "triton", "pwd", "termios"} - from_torch, code)
    assert (done.returncode, done.stdout) == (0, "[] 5\n"), done.stderr


def test_run_directories_are_imported_where_unix_is_not() -> None:
    code = "import sys\nbefore = set(sys.modules)\nimport trimsft\nprint(*set(sys.modules) - before)\n"
    code += "import signal\ndel signal.SIGHUP\nimport trimsft.cli.terminal, trimsft.runs"
    done = run_without({"fcntl", "resource", "triton"}, code)
    assert done.returncode == 0, done.stderr
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert names - {"trimsft"} <= set(sys.stdlib_module_names), names


@pytest.mark.parametrize(
    ("words", "hidden", "extra"),
    [
        ("report runs/a", "typer", "report"),
        ("--help", "typer", "study"),
        ("train --model m --data d", "trl", "train"),
        ("eval m -b lab-easy", "transformers", "eval"),
        ("tokens m --data rows.jsonl", "datasets", "models"),
    ],
)
def test_a_command_names_the_extra_it_lacks(tmp_path: Path, words: str, hidden: str, extra: str) -> None:
    (tmp_path / "rows.jsonl").write_text('{"problem": "1+1?", "solution": "2"}\n')
    argv = ["trimsft", *words.split()]
    code = f"import os\nos.chdir({str(tmp_path)!r})\nsys.argv = {argv!r}\nfrom trimsft.cli import main\nmain()"
    done = run_without({hidden}, code)
    assert (done.returncode, done.stdout) == (2, "")
    said = f"trimsft: the package {hidden} is not installed; pip install 'trimsft[{extra}]'\n"
    assert done.stderr.endswith(said), done.stderr
