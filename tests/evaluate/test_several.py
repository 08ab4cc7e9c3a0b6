"""Copies of a model as one engine: who is asked what, and what becomes of the work of one that fails."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from trimsft.errors import UsageError
from trimsft.evaluate import EvalSettings
from trimsft.evaluate.engines import EngineError, Request, Sampling, load_engine
from trimsft.evaluate.engines.several import Copies

from .tiny_model import save_model

REQUESTS = [
    Request(f"What is {n}+1?", seed=10 * n + k, sampling=Sampling(max_tokens=8)) for n in range(5) for k in (0, 1)
]


@pytest.fixture
def model(tmp_path: Path) -> EvalSettings:
    return EvalSettings(model=str(save_model(tmp_path / "model")), benchmarks=["lab-easy"], engine="transformers")


def test_copies_write_what_one_writes(model: EvalSettings) -> None:
    copies, one = Copies(model, gpus=["", ""]), load_engine(model)
    assert (copies.name, copies.identity, copies.details["engines"]) == (one.name, one.identity, 2)
    wanted = {completion.index: completion.text for completion in one.generate(REQUESTS)}
    assert {completion.index: completion.text for completion in copies.generate(REQUESTS)} == wanted
    with pytest.raises(EngineError, match="exceed the model's 256 positions"):
        copies.check([Request("What?", seed=1, sampling=Sampling(max_tokens=999))])
    assert copies._processes == {}  # none is left behind


def test_a_copy_that_is_killed_ends_them_all(model: EvalSettings) -> None:
    copies = Copies(model, gpus=["", ""])
    generating = copies.generate(REQUESTS)
    next(generating)
    first, second = copies._processes.values()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="a copy of the model ended"):
        list(generating)
    assert not second.is_alive()


def test_a_model_that_cannot_be_loaded_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError) as failure:
        Copies(EvalSettings(model=str(tmp_path), benchmarks=["lab-easy"], engine="transformers"), gpus=["", ""])
    assert "\n" not in str(failure.value)


def test_copies_end_with_their_parent(model: EvalSettings, tmp_path: Path) -> None:
    """A killed evaluation leaves no engine on a GPU."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from trimsft.evaluate import EvalSettings\n"
        "from trimsft.evaluate.engines.several import Copies\n"
        "if __name__ == '__main__':\n"
        f"    settings = EvalSettings(model={model.model!r}, benchmarks=['lab-easy'], engine='transformers')\n"
        "    engine = Copies(settings, gpus=['', ''])\n"
        "    print('on', file=sys.stderr, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    given = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    with subprocess.Popen([sys.executable, str(script)], **given) as process:  # type: ignore[call-overload]
        assert process.stderr is not None
        while process.stderr.readline() != b"on\n":
            assert process.poll() is None
        process.kill()
        process.stderr.read()  # ends when both copies are gone, too
