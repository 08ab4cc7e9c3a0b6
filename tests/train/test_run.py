"""`train(settings)`: what a run leaves, how it is continued, and what it refuses."""

import fcntl
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train.tiny_run import as_words, make_fields
from trimsft.errors import RunError, RunInUse, TrimSFTError, UsageError, exit_code
from trimsft.runs import RunDirectory
from trimsft.train import TrainResult, make_settings, parse, run, train, train_model
from trimsft.train.estimate import dry_run
from trimsft.train.preview import preview

WEIGHTS = "model/model.safetensors"
STEPS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def fields(folder: Path) -> dict[str, Any]:
    return make_fields(folder, max_steps=STEPS)


@pytest.fixture(scope="module")
def whole(folder: Path, fields: dict[str, Any]) -> TrainResult:
    return train_model(**fields, output_dir=folder / "whole")


@pytest.fixture
def copied(whole: TrainResult, tmp_path: Path) -> RunDirectory:
    """Another run directory like the finished one."""
    shutil.copytree(whole.run.path, tmp_path / "copied")
    return RunDirectory(tmp_path / "copied")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")  # who looked last
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def telemetry(of: RunDirectory) -> list[dict[str, Any]]:
    return [json.loads(line) for line in of.telemetry_path.read_text().splitlines()]


# what a run leaves ---------------------------------------------------------------------------------------------------


def test_a_run_leaves_everything_to_look_at_and_to_do_it_again(whole, folder) -> None:
    assert whole.steps == STEPS and whole.metrics["train_loss"] > 0 and not whole.was_finished
    path = whole.run.path
    assert {entry.name for entry in path.iterdir()} == {".lock", "config.yaml", "manifest.json", "model", "train"}
    assert sorted(entry.name for entry in whole.run.train_dir.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"]
    steps = [record for record in telemetry(whole.run) if "loss" in record]
    assert [record["step"] for record in steps] == [1, 2, 3, 4]
    assert {"nll", "mean_weight", "effective_ratio", "gap_p50", "num_tokens"} <= steps[0].keys()
    manifest = whole.run.read_manifest()
    assert manifest["versions"]["trl"] and manifest["seed"] == 42 and manifest["processes"] == 1
    assert manifest["model"]["fingerprint"] and manifest["data"]["fingerprint"][str(folder / "sums.jsonl")]
    assert manifest["train"]["steps"] == STEPS and manifest["finished"]


def test_the_model_loads_without_trimsft(whole, fields) -> None:
    (model, tokenizer), (base, base_tokenizer) = (
        (AutoModelForCausalLM.from_pretrained(where), AutoTokenizer.from_pretrained(where))
        for where in (whole.run.model_dir, fields["model_name_or_path"])
    )
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), base.parameters(), strict=True))
    assert tokenizer("What is 1+1?")["input_ids"] == base_tokenizer("What is 1+1?")["input_ids"]
    assert model(**tokenizer("What is 1+1?", return_tensors="pt")).logits.isfinite().all()
    card = (whole.run.model_dir / "README.md").read_text()
    assert card.startswith("---\n") and "trimsft" in card


def test_a_recipe_and_an_override_are_all_it_takes(whole, tmp_path) -> None:
    """The config.yaml of a run is such a recipe; it gives the same weights, another objective gives others."""
    config = whole.run.config_path
    again = train_model(config=config, output_dir=tmp_path / "again")
    assert (again.run.path / WEIGHTS).read_bytes() == (whole.run.path / WEIGHTS).read_bytes()
    assert again.run.config_path.read_bytes() == config.read_bytes()
    dft = train(parse(["--config", str(config), "--objective=dft", "--output_dir", str(tmp_path / "dft")])).run
    assert dft.read_config() == {**whole.run.read_config(), "objective": "dft"}
    other, weights = load_file(dft.path / WEIGHTS), load_file(whole.run.path / WEIGHTS)
    assert any(not torch.equal(other[name], weights[name]) for name in weights)


def test_fields_are_read_as_words_are(fields) -> None:
    settings, parsed = make_settings(fields), parse(as_words(fields))
    assert settings.overrides == parsed.overrides
    assert settings.args.to_dict() == parsed.args.to_dict()
    with pytest.raises(UsageError, match="model_name_or_path: is missing"):
        train_model(objective="sft")
    with pytest.raises(UsageError, match=r"^marging: no such field; did you mean margin\?"):
        train_model(marging=1)


# continued -----------------------------------------------------------------------------------------------------------


def test_a_finished_run_is_left_as_it_is(whole, copied, fields) -> None:
    again = train_model(**fields, output_dir=copied.path)
    assert (again.was_finished, again.steps, again.metrics) == (True, STEPS, whole.metrics)
    assert contents(copied.path) == contents(whole.run.path)
    # what does not touch the weights may change
    assert train_model(**{**fields, "save_steps": 5}, output_dir=copied.path).was_finished
    assert copied.read_config()["save_steps"] == 5


@pytest.mark.parametrize("lost", ["the end", "the model", "the last checkpoint", "half of the last checkpoint"])
def test_what_a_kill_has_lost_is_made_again(lost, copied, whole, fields, caplog) -> None:
    """With the same bytes: dropout, shuffling and the schedule go on where they were."""
    manifest = copied.read_manifest()
    del manifest["finished"]
    copied.manifest_path.write_text(json.dumps(manifest))
    if lost != "the end":
        shutil.rmtree(copied.model_dir)
    newest = copied.train_dir / "checkpoint-4"
    if lost == "the last checkpoint":
        shutil.rmtree(newest)
    elif lost == "half of the last checkpoint":
        (newest / "optimizer.pt").write_bytes(b"0" * 100)
    again = train_model(**fields, output_dir=copied.path)
    assert not again.was_finished and copied.is_finished()
    assert (copied.path / WEIGHTS).read_bytes() == (whole.run.path / WEIGHTS).read_bytes()
    clock = ("time", "tokens_per_second")
    records, expected = (
        [{name: record[name] for name in record if name not in clock} for record in telemetry(each) if "loss" in record]
        for each in (copied, whole.run)
    )
    assert records == expected
    if lost == "half of the last checkpoint":
        assert f"{newest} is skipped: optimizer.pt has 100 bytes" in caplog.text
    if "checkpoint" in lost:
        assert f"continuing from {copied.train_dir / 'checkpoint-2'}" in caplog.text


def test_other_settings_and_inputs_are_not_mixed_into_a_run(whole, fields, folder, monkeypatch) -> None:
    before = contents(whole.run.path)
    with pytest.raises(RunError, match=r"holds a run with other settings: learning_rate: was 0.01, now 0.5"):
        train_model(**{**fields, "learning_rate": 0.5}, output_dir=whole.run.path)
    data = folder / "sums.jsonl"
    original = data.read_text()
    data.write_text(original.replace("What is", "How much is"))
    with pytest.raises(RunError, match=r"holds a run whose data was another: .*sums.jsonl has changed since"):
        train_model(**fields, output_dir=whole.run.path)
    data.write_text(original)
    monkeypatch.setattr("trimsft.train.config.TrimSFTConfig.world_size", 2)
    with pytest.raises(RunError, match="holds a run of 1 processes, not 2"):
        train_model(**fields, output_dir=whole.run.path)
    assert contents(whole.run.path) == before


def test_a_run_that_is_worked_on_is_refused(whole, fields) -> None:
    with open(whole.run.path / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunInUse, match="in use by "):
            train_model(**fields, output_dir=whole.run.path)


class Hub:
    """Down at first."""

    pushed: ClassVar[list[Path]] = []
    is_down = True

    def __init__(self, token: str) -> None:
        assert token == "secret"

    def create_repo(self, name: str, **_: Any) -> SimpleNamespace:
        if self.is_down:
            raise OSError("no\nroute")
        return SimpleNamespace(repo_id=f"me/{name}")

    def upload_folder(self, *, folder_path: Path, **_: Any) -> None:
        self.pushed.append(folder_path)


def test_a_model_is_pushed_once(copied, fields, monkeypatch) -> None:
    monkeypatch.setattr(run, "HfApi", Hub)
    pushing = {**fields, "push_to_hub": True, "hub_token": "secret", "output_dir": copied.path}
    with pytest.raises(TrimSFTError, match="push_to_hub: no route; the same command tries again") as failed:
        train_model(**pushing)
    assert exit_code(failed.value) == 1
    monkeypatch.setattr(Hub, "is_down", False)
    for _ in range(2):
        assert train_model(**pushing).was_finished
    assert Hub.pushed == [copied.model_dir] and copied.read_manifest()["pushed"] == "me/copied"


# a recipe with everything -------------------------------------------------------------------------------------------

RECIPE = """
bf16: true
hub_token: hf_SECRET
model_init_kwargs: {token: hf_SECRET, use_safetensors: true}
accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}
include_num_input_tokens_seen: true
env: {OF_THE_RECIPE: 7}
"""


def test_a_recipe_with_everything(fields, tmp_path, caplog, capsys, monkeypatch) -> None:
    """Half precision where there is none, secrets, and dictionaries that transformers writes into."""
    monkeypatch.setenv("OF_THE_RECIPE", "")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    path = tmp_path / "run"
    asked = {**fields, "config": tmp_path / "recipe.yaml", "max_steps": 1, "save_strategy": "no", "output_dir": path}
    with pytest.raises(UsageError):
        train_model(**{**asked, "dataset_name": "./sumz.jsonl"})
    assert not train_model(**asked).was_finished  # what was refused is no obstacle
    assert "bf16: true of the recipe needs a GPU" in caplog.text
    assert "step 1/1" in capsys.readouterr().out  # the record of input tokens is no end of training
    assert not any(b"hf_SECRET" in content for content in contents(path).values())
    config = yaml.safe_load((path / "config.yaml").read_text())
    assert config["model_init_kwargs"] == {"use_safetensors": True}
    assert config["accelerator_config"] == {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    assert train_model(**asked).was_finished
    assert make_settings({"config": path / "config.yaml"}).overrides == config
    assert os.environ["OF_THE_RECIPE"] == "7"


# before it begins ----------------------------------------------------------------------------------------------------


def test_a_dry_run_estimates_and_a_preview_shows(fields, tmp_path) -> None:
    settings = make_settings({**fields, "output_dir": tmp_path / "run", "max_length": 100})
    result = dry_run(settings)
    assert (result.steps, result.global_batch) == (STEPS, 4) and result.total_bytes > result.parameters
    seen = preview(settings, count=2)
    assert [example.row for example in seen.examples] == [0, 1]
    assert seen.lengths.rows == 40 and seen.lengths.max_length == 100 and seen.lengths.truncated
    assert not (tmp_path / "run").exists()


GAP = '{"problem": "1+1?", "solution": "2"}\n{"problem": "2+2?"}\n'
REFUSED = [
    ("--marging 1", "--marging: no such field; did you mean --margin?"),
    ("--entirely_unknown 1", "--entirely_unknown: no such field; trimsft train --help-all"),
    ("stray", "'stray'"),
    ("--objective trimm", "objective: unknown name 'trimm'; did you mean 'trim'?"),
    ("--objective dft --margin 2", "margin: 2.0 has no effect with objective='dft'; remove it"),
    ("--bandwidth 0", "bandwidth: must be above 0, got 0.0"),
    ("--learning_rate fast", "invalid float value: 'fast'"),
    ("--learning_rate -1", "learning_rate: must be at least 0, got -1.0"),
    ("--loss_type dft", "loss_type: 'dft' would be ignored here"),
    ("--sample 0", "sample: must be at least 1, got 0"),
    ("--config ./nowhere.yaml", "--config: cannot read './nowhere.yaml': No such file or directory"),
    ("--config", "--config: is missing the name of a YAML file"),
    ("--skip_below -1", "skip_below: must be at least 0, got -1.0"),
    ("--per_device_train_batch_size 0", "per_device_train_batch_size: must be at least 1"),
    ("--attn_implementation nonsense", "attn_implementation"),
    ("--resume_from_checkpoint ./nowhere", "resume_from_checkpoint: must be a folder, got './nowhere'"),
    ("--model_name_or_path ./nowhere", "model_name_or_path: no such folder, got './nowhere'"),
    ("--dataset_name ./nowhere.jsonl", "./nowhere.jsonl"),
    ("--problem_column question", "question"),
    ("--max_length 0", "max_length: must be at least 1"),
    ("--max_length 3", "max_length: 3 leaves no trained token in any of 40 rows"),
    ("--completion_only_loss false", "completion_only_loss: false has no effect"),
    ("--eos_token nothing", "eos_token: is not in the tokenizer's vocabulary, got 'nothing'"),
    ("--chat_template_path some.txt", "chat_template_path: must be a .jinja or .j2 file here, got 'some.txt'"),
    ("--chat_template_path some.jinja", "chat_template_path: cannot read 'some.jinja': No such file"),
    ("--report_to comet_ml", "comet"),
]
FILES = [
    ("--config", "list.yaml", "- margin\n", "must hold fields and values"),
    ("--config", "unknown.yaml", "objectiv: trim\n", "objectiv: no such field in"),
    ("--config", "value.yaml", "margin: high\n", "--margin: invalid float value: 'high'"),
    ("--config", "torn.yaml", "margin: [1\nobjective: {", "torn.yaml"),
    ("--config", "env.yaml", "env: [1]\n", "must hold names and values"),
    ("--dataset_name", "gap.jsonl", GAP, "gap.jsonl, line 2"),
    ("--dataset_name", "other.jsonl", '{"a": "1+1?", "b": "2"}\n', "other.jsonl"),
    ("--dataset_name", "half.jsonl", '{"text": "1"}\n{"a": "2"}\n', "half.jsonl"),
    ("--model_name_or_path", "model/x", "", "model_name_or_path"),
    ("--model_name_or_path", "weightless/x", "", "weightless"),
    ("--output_dir", "run", "precious", "cannot be used as a run directory"),
]


def assert_refused(words: list[str], says: str, fields: dict[str, Any], folder: Path) -> None:
    before = contents(folder)
    with pytest.raises((UsageError, RunError)) as refused:
        train(parse([*as_words(fields), "--output_dir", str(folder / "run"), *words]))
    assert says in str(refused.value) and exit_code(refused.value) == 2
    assert contents(folder) == before


@pytest.mark.parametrize(("words", "says"), REFUSED, ids=[words for words, _ in REFUSED])
def test_bad_settings_are_refused(words, says, fields, tmp_path) -> None:
    assert_refused(words.split(), says, fields, tmp_path)


@pytest.mark.parametrize(("field", "name", "text", "says"), FILES, ids=[name for _, name, *_ in FILES])
def test_bad_files_are_refused(field, name, text, says, fields, tmp_path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    if field == "--model_name_or_path":
        path = path.parent
    if path.name == "weightless":
        for part in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(Path(fields["model_name_or_path"], part), path)
    assert_refused([field, str(path)], says, fields, tmp_path)
