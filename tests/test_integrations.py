"""Other trainers get the objective that their configuration names, or stop.

The frameworks are stand-ins here; docs/guides/coming_from.md says what was seen with the real ones.
"""

import json
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from datasets import Dataset
from transformers import Trainer, TrainingArguments

import trimsft
from tests.train.tiny_run import make_model
from trimsft import integrations
from trimsft.errors import UnsuitedHead, UsageError
from trimsft.integrations import make_callback
from trimsft.integrations.verl import weighted
from trimsft.models import load_model


def install(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> types.ModuleType:
    """Return a module of that name with this content; make the packages around it."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        whole = ".".join(parts[:count])
        monkeypatch.setitem(sys.modules, whole, sys.modules.get(whole) or types.ModuleType(whole))
    vars(sys.modules[name]).update(content)
    return sys.modules[name]


def run(monkeypatch: pytest.MonkeyPatch, name: str, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    runpy.run_path(str(Path(integrations.__file__).parent / f"{name}.py"), run_name="__main__")


def objective(callback: Any) -> Any:
    assert isinstance(callback, trimsft.TrimCallback)
    return callback._objective


def test_a_section_names_objective_and_settings() -> None:
    assert objective(make_callback("dft")) == trimsft.DFT()
    callback = make_callback({"objective": "trim", "margin": 1.0, "skip_below": 0})
    assert objective(callback) == trimsft.TrimSFT(margin=1.0) and callback._settings == {"skip_below": 0}
    for wrong, field in (("dfd", "objective"), (None, "trimsft"), ({"objective": "dft", "margin": 1.0}, None)):
        with pytest.raises(UsageError) as refused:
            make_callback(wrong)
        assert refused.value.field == field


@pytest.mark.parametrize("smoothing", [0, 0.1])
def test_no_training_goes_on_without_the_objective(tmp_path, smoothing: float) -> None:
    """With label smoothing `Trainer` computes its loss itself, and the model never sees the labels."""
    model = load_model(make_model(tmp_path / "model"), dtype="float32")
    row = {"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, 4]}
    usual = {"max_steps": 1, "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    arguments = TrainingArguments(str(tmp_path), label_smoothing_factor=smoothing, **usual)
    callback = trimsft.TrimCallback("dft")
    trainer = Trainer(model, arguments, train_dataset=Dataset.from_list([row] * 8), callbacks=[callback])
    before = model.get_output_embeddings().weight.clone()
    if smoothing:
        with pytest.raises(UnsuitedHead, match="a loss of its own"):
            trainer.train()
    else:
        trainer.train()
    assert bool((model.get_output_embeddings().weight == before).all()) is bool(smoothing)


def test_axolotl_reads_the_objective_from_its_configuration(monkeypatch) -> None:
    install(monkeypatch, "axolotl.integrations.base", BasePlugin=object)
    from trimsft.integrations import axolotl

    monkeypatch.delitem(sys.modules, "trimsft.integrations.axolotl")
    with pytest.raises(ValueError, match="did you mean 'dft'"):
        axolotl.TrimArgs(trimsft="dfd")
    plugin = axolotl.TrimPlugin()
    assert plugin.get_input_args() == f"{axolotl.__name__}.{axolotl.TrimArgs.__name__}"
    (callback,) = plugin.add_callbacks_post_trainer(types.SimpleNamespace(trimsft="dft"), None)
    assert objective(callback) == trimsft.DFT()


def test_ms_swift_is_given_a_callback_by_name(monkeypatch) -> None:
    known = install(monkeypatch, "swift.callbacks", callbacks_map={})
    install(monkeypatch, "swift.cli.main", parse_yaml_args=lambda words: None)
    started: list[list[str]] = []
    monkeypatch.setattr(runpy, "run_module", lambda name, run_name: started.append([name, *sys.argv[1:]]))
    section = json.dumps({"objective": "trim", "margin": 1.0})
    run(monkeypatch, "swift", "--callbacks", "perf_log", "--trimsft", section, "--model", "m")
    expected = ["--callbacks", "trimsft", "perf_log", "--model", "m", "--use_logits_to_keep", "false"]
    assert started == [["swift.cli.sft", *expected]]
    assert objective(known.callbacks_map["trimsft"](None, None)) == trimsft.TrimSFT(margin=1.0)
    with pytest.raises(SystemExit, match="--trimsft is missing"):
        run(monkeypatch, "swift", "--model", "m")


def test_llama_factory_is_called_with_a_callback(monkeypatch, tmp_path) -> None:
    called: dict[str, Any] = {}
    settings = tmp_path / "settings.yaml"
    install(monkeypatch, "llamafactory.train.tuner", run_exp=lambda rest, callbacks: called.update(rest, c=callbacks))
    install(monkeypatch, "llamafactory.hparams", read_args=lambda: yaml.safe_load(settings.read_text()))
    settings.write_text("trimsft: {objective: dft}\nmodel_name_or_path: m\n")
    run(monkeypatch, "llamafactory", settings)
    assert objective(called.pop("c")[0]) == trimsft.DFT() and called == {"model_name_or_path": "m"}
    settings.write_text("trimsft: dft\nuse_dft_loss: true\n")
    with pytest.raises(SystemExit, match="use_dft_loss"):
        run(monkeypatch, "llamafactory", settings)


def test_verl_gets_weighted_log_probabilities() -> None:
    def plain(config: Any, output: dict[str, torch.Tensor], data: Any, dp_group: Any) -> torch.Tensor:
        return -output["log_probs"].values().sum()

    rows = [torch.tensor([-1.0, -2.0], requires_grad=True), torch.tensor([-0.5], requires_grad=True)]
    log_probs = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    loss = weighted(plain, trimsft.DFT())(None, {"log_probs": log_probs}, None)
    flat = torch.cat(rows).detach()
    torch.testing.assert_close(loss.detach(), -(flat.exp() * flat).sum())
    (gradient,) = torch.autograd.grad(loss, rows[0])
    torch.testing.assert_close(gradient, -flat[:2].exp())  # a weight is a constant
    with pytest.raises(UsageError, match="verl has no gap"):
        weighted(plain, trimsft.TrimSFT())(None, {"log_probs": log_probs}, None)
