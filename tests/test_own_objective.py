"""An objective of one's own, by name: what may be named, and what is refused."""

import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

import trimsft
from tests.train.tiny_run import make_fields
from trimsft import DFT, make_objective
from trimsft.errors import RunError, UsageError
from trimsft.runs import JsonLines
from trimsft.train import make_settings, train_model

CODE = """
from dataclasses import dataclass
from trimsft import DFT, TokenStats
@dataclass(frozen=True)
class Scaled:
    margin: float = 3.0
    def weights(self, tokens):
        return tokens.gap * 0 + self.margin
class Needy:
    def __init__(self, alpha): self.alpha = alpha
    def weights(self, tokens): return tokens.gap * 0
thing = DFT()
def half(tokens): return tokens.gap * 0 + 0.5
number = 3
"""
Write = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the current folder; returns its name, which no other test has."""
    monkeypatch.chdir(tmp_path)
    written = []

    def write(code: str = CODE) -> str:
        written.append(f"mine{next(_numbers)}")
        (tmp_path / f"{written[-1]}.py").write_text(code)
        return written[-1]

    yield write
    for name in written:
        sys.modules.pop(name, None)


def test_classes_and_objects_are_objectives(module) -> None:
    name, path = module(), list(sys.path)
    assert make_objective(f"{name}:Scaled").margin == 3
    assert make_objective(f"{name}:Scaled", margin=1.0).margin == 1
    assert make_objective(f"{name}:thing") == DFT()
    assert sys.path == path


@pytest.mark.parametrize(
    ("attribute", "parameters", "message"),
    [
        ("Scald", {}, r"^objective: module 'MODULE' has no 'Scald'$"),
        ("number", {}, "^objective: 'MODULE:number' weighs no tokens; name a class whose objects have weights"),
        ("Scaled", {"tau": 1.0}, "^objective 'MODULE:Scaled' has no parameter 'tau'; it takes margin$"),
        ("Needy", {}, "^objective 'MODULE:Needy' needs its parameter 'alpha'"),
    ],
)
def test_what_is_no_objective_is_refused(module, attribute, parameters, message) -> None:
    name = module()
    with pytest.raises(UsageError, match=message.replace("MODULE", name)):
        make_objective(f"{name}:{attribute}", **parameters)


def test_installed_packages_offer_objectives(module, tmp_path, monkeypatch) -> None:
    name = module()
    for package, offered in {"one": "half", "other": "thing"}.items():
        info = tmp_path / "site" / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        listed = f"[trimsft.objectives]\nmy-{package} = {name}:{offered}\nshared = {name}:{offered}\n"
        (info / "entry_points.txt").write_text(listed)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert make_objective("my-other") == DFT()
    assert make_settings({"model": "m", "data": "d", "objective": "my-one"}).args.objective == "my-one"
    with pytest.raises(UsageError, match=f"'shared' is defined by two packages, {name}:half and {name}:thing"):
        make_objective("shared")


def test_a_training_is_recorded_with_its_code(module, tmp_path) -> None:
    name = f"{module(CODE)}:half"
    fields = make_fields(tmp_path, max_steps=2, save_steps=1, objective=name, output_dir=str(tmp_path / "run"))
    result = train_model(**fields)
    assert next(iter(JsonLines(result.run.telemetry_path)))["mean_weight"] == 0.5
    recorded = result.run.read_manifest()["objective"]
    assert recorded["name"] == name and len(recorded["fingerprint"]) == 1
    model = AutoModelForCausalLM.from_pretrained(fields["model_name_or_path"])
    plain = copy.deepcopy(model)
    trimsft.patch(model, make_objective(name))
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    torch.testing.assert_close(model.eval()(ids, labels=ids).loss, 0.5 * plain.eval()(ids, labels=ids).loss)
    assert train_model(**fields).was_finished
    (tmp_path / f"{name.partition(':')[0]}.py").write_text(CODE.replace("0.5", "0.25"))
    with pytest.raises(RunError, match=f"whose objective was another: {name} has changed since; restore it"):
        train_model(**fields)


def test_settings_of_train_reach_it(module) -> None:
    name, model = module(), {"model": "m", "data": "d"}
    assert make_settings({**model, "objective": f"{name}:Scaled", "margin": 2}).args.make_objective().margin == 2
    recipe = Path("recipe.yaml")
    recipe.write_text(f"model: m\ndata: d\nobjective: {name}:Needy\nobjective_parameters: {{alpha: 4}}\n")
    assert make_settings({"config": recipe}).args.make_objective().alpha == 4
    assert make_settings({**model, "objective": f"{name}:half"}).run_path == Path(f"runs/m-{name}+half")
