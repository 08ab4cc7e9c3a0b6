"""Each example trains a model folder, and leaves one that plain transformers loads."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train.tiny_run import make_data, make_model

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in ("common", "own_objective"))
STEPS = 24


def losses(printed: str, name: str) -> list[float]:
    """What the example printed under that name, in order: `nll 1.2` or `'loss': '1.2'`."""
    return [float(number) for number in re.findall(rf"\b{name}(?:': ')? ?([0-9.e+-]+)", printed)]


# weight 1 below the margin: an untrained model, whose gaps are all there, can learn from it
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", NAMES)
def test_trains_on_a_file_and_saves(tmp_path: Path, monkeypatch, capsys, name: str) -> None:
    model, out = make_model(tmp_path / "model"), tmp_path / "out"
    options = {"model": model, "data": make_data(tmp_path / "sums.jsonl", rows=12), "out": out, "steps": 24}
    options |= {"learning-rate": 1e-2, "objective": "trim-h"}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    monkeypatch.syspath_prepend(EXAMPLES)  # as Python does for a script
    torch.manual_seed(0)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    course = losses(capsys.readouterr().out, "loss" if name == "transformers_trainer" else "nll")
    assert course[-1] < 0.5 * course[0]
    load = AutoModelForCausalLM.from_pretrained
    trained, before = (load(folder, dtype=torch.float32) for folder in (out, model))
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer("Problem: What is 2 + 3?\nSolution: 2 + 3 = \\boxed{5}", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert trained(ids, labels=ids).loss < before(ids, labels=ids).loss
