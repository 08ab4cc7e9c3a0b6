"""Settings: SFTConfig with an objective, from YAML, words and Python; bad ones leave no trace."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertForMaskedLM
from trl import SFTConfig
from typer.testing import CliRunner

from tests.train.tiny_run import as_words, make_fields, make_model
from trimsft import cli
from trimsft.errors import RunError, UsageError, exit_code
from trimsft.train import TrimSFTConfig, make_settings, parse, train
from trimsft.train.trainer import as_config


def config(**settings: Any) -> TrimSFTConfig:
    return TrimSFTConfig("out", use_cpu=True, bf16=False, report_to=[], **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"margin": float("nan")}, "margin: must be a finite number, got nan"),
        ({"loss_type": "dft"}, "loss_type: would be ignored here, got 'dft'; .*objective='dft'"),
        ({"global_batch": 0}, "global_batch: must not be 0"),
        ({"num_train_epochs": 0}, "num_train_epochs: must not be 0"),
        ({"global_batch": 24, "gradient_accumulation_steps": 4}, "gradient_accumulation_steps: has no place beside"),
    ],
)
def test_refusals(settings, says) -> None:
    with pytest.raises(UsageError, match=says):
        config(**settings)


@pytest.mark.parametrize(
    ("rows", "limit", "size", "steps"), [(24, 4, 4, 6), (10, 4, 2, 5), (3, 8, 3, 1), (7, 4, 1, 7), (8, 8, 8, 1)]
)
def test_a_global_batch_is_cut_into_equal_micro_batches(rows, limit, size, steps) -> None:
    shared = config(global_batch=rows, per_device_train_batch_size=limit)
    again = dataclasses.replace(shared, learning_rate=0.5)
    for made in (shared, again):
        assert (made.per_device_train_batch_size, made.gradient_accumulation_steps) == (size, steps)


def test_everything_of_sftconfig_has_the_same_default() -> None:
    ours, theirs = config().to_dict(), SFTConfig("out", use_cpu=True, bf16=False, report_to=[]).to_dict()
    own = {"logging_dir", "logging_first_step", "dataloader_pin_memory"}  # without a GPU there is nothing to pin it for
    assert {name for name in theirs if ours[name] != theirs[name]} <= own


def test_precision_goes_by_the_device_and_before_a_file_of_accelerate(monkeypatch) -> None:
    for has_half in (False, True):
        monkeypatch.setattr("trimsft.train.config.has_half_precision", lambda has_half=has_half: has_half)
        chosen, given = as_config("some/model", None), TrimSFTConfig("out", use_cpu=True, bf16=True)
        assert (chosen.bf16, given.bf16) == (has_half, True)
    for launched, precision in (("bf16", "no"), ("fp8", "fp8")):
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched)
        assert config().mixed_precision == os.environ["ACCELERATE_MIXED_PRECISION"] == precision


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return make_fields(tmp_path_factory.mktemp("inputs"), max_steps=4)


def everything(folder: Path) -> dict[str, bytes | None]:
    paths = folder.rglob("*")
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


REFUSED = [
    ("--marging 1", "--marging: no such field; did you mean --margin?"),
    ("smollm2-gsm8k", "'smollm2-gsm8k' belongs to no field; --model, --data or --config go before a name"),
    ("--push_to_hub true", "push_to_hub: has no effect; remove it, and upload the finished model: hf upload NAME"),
    ("--objective trimm", "objective: unknown name 'trimm'; did you mean 'trim'?"),
    ("--config ./nowhere.yaml", "config: no such file, and no recipe of that name, got './nowhere.yaml'"),
    ("--model_name_or_path ./nowhere", "model: no such folder: './nowhere'"),
    ("--max_length 3", "max_length: 3 leaves no trained token in any of 40 rows"),
    ("--completion_only_loss false", "completion_only_loss: false has no effect"),
    ("--eos_token nothing", "eos_token: is not in the tokenizer's vocabulary, got 'nothing'"),
    ('--lr_scheduler_kwargs {"nonsense":1}', "nonsense"),  # found out when the scheduler is made
]


def assert_refused(words: list[str], says: str, fields: dict[str, Any], folder: Path) -> None:
    before = everything(folder)
    with pytest.raises((UsageError, RunError)) as refused:
        train(parse([*as_words(fields), "--output_dir", str(folder / "run"), *words]))
    assert says in str(refused.value) and exit_code(refused.value) == 2
    assert everything(folder) == before


@pytest.mark.parametrize(("words", "says"), REFUSED, ids=[words for words, _ in REFUSED])
def test_bad_settings_are_refused(words, says, fields, tmp_path) -> None:
    assert_refused(words.split(), says, fields, tmp_path)


def test_data_has_to_be_named() -> None:
    """Not that of the paper, on the hub, in its place."""
    says = "dataset_name: is missing; name a dataset of the hub or a local file"
    for make in (lambda: parse(["--model", "m"]), lambda: make_settings({"model": "m"})):
        with pytest.raises(UsageError, match=f"^{says}$"):
            make()
    for command in (["train"], ["train", "--dry-run"]):
        done = CliRunner().invoke(cli.app, [*command, "--model", "m"])
        assert done.exit_code == 2 and says.replace("dataset_name", "--data") in done.stderr


def test_models_that_cannot_be_trained_are_refused(fields, tmp_path) -> None:
    other = make_model(tmp_path / "other")
    BertForMaskedLM(BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(other)
    assert_refused(["--model", str(other)], "BertForMaskedLM is no causal language model", fields, tmp_path)


def test_model_data_and_out_are_called_as_in_other_commands(tmp_path) -> None:
    short = parse(["--model", "m", "--data=d.jsonl", "--out", "run"])
    long = parse(["--model_name_or_path", "m", "--dataset_name", "d.jsonl", "--output_dir", "run"])
    assert short == long == make_settings({"model": "m", "data": "d.jsonl", "out": Path("run")})
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: m\ndata: d.jsonl\n")
    assert parse(["--config", str(recipe), "--out", "run"]).overrides == short.overrides


@pytest.mark.parametrize("value", [float("nan"), -1.0])
def test_a_threshold_that_is_none_is_refused(value) -> None:
    with pytest.raises(UsageError, match="skip_below: must be at least 0"):
        TrimSFTConfig("out", use_cpu=True, skip_below=value)
