"""`train(settings)`: what a run leaves, how it is continued, and what it refuses."""

import errno
import fcntl
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tests.train.tiny_run import as_words, make_fields
from trimsft.errors import RunError, RunInUse, UsageError, WriteError, exit_code
from trimsft.runs import JsonLines, RunDirectory
from trimsft.train import TrainResult, TrimSFTTrainer, make_settings, parse, train, train_model
from trimsft.train.dry_run import measure_step

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


def test_a_run_leaves_everything_to_look_at_and_to_do_it_again(whole, folder) -> None:
    assert whole.steps == STEPS and whole.metrics["train_loss"] > 0 and not whole.was_finished
    assert "token accuracy" in str(whole) and whole.to_pandas()["last log"][1] == pytest.approx(
        telemetry(whole.run)[-2]["nll"], rel=1e-3
    )
    assert sorted(entry.name for entry in whole.run.train_dir.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4"]
    steps = [record for record in telemetry(whole.run) if "loss" in record]
    assert [record["step"] for record in steps] == [1, 2, 3, 4]
    assert {"nll", "mean_weight", "effective_ratio", "gap_p50", "num_tokens"} <= steps[0].keys()
    manifest = whole.run.read_manifest()
    assert manifest["versions"]["trl"] and manifest["seed"] == 42 and manifest["processes"] == 1
    assert manifest["model"]["fingerprint"] and len(manifest["data"]["fingerprint"]) == 1
    assert manifest["train"]["steps"] == STEPS and manifest["finished"]


def test_a_recipe_and_an_override_are_all_it_takes(whole, tmp_path) -> None:
    """The config.yaml of a run is one; it gives the same weights, another objective others."""
    config = whole.run.config_path
    again = train_model(config=config, output_dir=tmp_path / "again")
    assert (again.run.path / WEIGHTS).read_bytes() == (whole.run.path / WEIGHTS).read_bytes()
    assert again.run.config_path.read_bytes() == config.read_bytes()
    dft = train(parse(["--config", str(config), "--objective=dft", "--output_dir", str(tmp_path / "dft")])).run
    assert dft.read_config() == {**whole.run.read_config(), "objective": "dft"}
    other, weights = load_file(dft.path / WEIGHTS), load_file(whole.run.path / WEIGHTS)
    assert any(not torch.equal(other[name], weights[name]) for name in weights)


def test_a_finished_run_is_left_as_it_is(whole, copied, fields) -> None:
    again = train_model(**fields, output_dir=copied.path)
    assert (again.was_finished, again.steps, again.metrics) == (True, STEPS, whole.metrics)
    assert contents(copied.path) == contents(whole.run.path)
    # what does not touch the weights may change
    assert train_model(**{**fields, "save_steps": 5, "low_memory": False}, output_dir=copied.path).was_finished
    assert copied.read_config()["save_steps"] == 5


@pytest.mark.parametrize("lost", ["the last checkpoint", "half of the last checkpoint"])
def test_what_a_kill_has_lost_is_made_again(lost, copied, whole, fields, caplog) -> None:
    """With the same bytes: dropout, shuffling and the schedule go on where they were."""
    manifest = copied.read_manifest()
    del manifest["finished"]
    copied.manifest_path.write_text(json.dumps(manifest))
    shutil.rmtree(copied.model_dir)
    newest = copied.train_dir / "checkpoint-4"
    if lost == "the last checkpoint":
        shutil.rmtree(newest)
    else:
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
    with open(whole.run.path / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunInUse, match="in use by "):
            train_model(**fields, output_dir=whole.run.path)
    monkeypatch.setattr("trimsft.train.config.TrimSFTConfig.world_size", 2)
    with pytest.raises(RunError, match="holds a run of 1 processes, not 2"):
        train_model(**fields, output_dir=whole.run.path)
    assert contents(whole.run.path) == before


def test_secrets_on_a_command_line_stay_there(fields, tmp_path, monkeypatch, caplog) -> None:
    words = [
        *as_words({**fields, "max_steps": 1, "output_dir": tmp_path / "run"}),
        "--hub-token", "hf_SECRET", "--model_init_kwargs", '{"token": "hf_SECRET", "use_safetensors": true}',
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["trimsft", "train", *words])
    trained = train(parse(words)).run
    files = [file.read_bytes() for file in trained.path.rglob("*") if file.is_file()]
    assert not any(b"hf_SECRET" in text for text in [*files, caplog.text.encode()])
    assert "--hub-token '***'" in trained.read_manifest()["command"]
    assert trained.read_config()["model_init_kwargs"] == {"use_safetensors": True}
    assert train(parse(words)).was_finished


def test_a_dry_run_measures_the_longest_rows_and_keeps_nothing(fields, tmp_path, monkeypatch) -> None:
    """On a laptop a recipe for flash attention is tried as it stands; the training itself is refused."""
    monkeypatch.chdir(tmp_path)
    changes = {"output_dir": tmp_path / "run", "max_length": 100, "attn_implementation": "flash_attention_2"}
    settings = make_settings({**fields, **changes})
    figures = measure_step(settings)
    assert (figures["steps"], figures["rows"], figures["peak_gib"], figures["attention"]) == (STEPS, 4, None, "sdpa")
    assert figures["hours"] * 3600 == pytest.approx(STEPS * figures["seconds"]) and figures["seconds"] > 0
    assert figures["longest"] == 100 and not list(tmp_path.iterdir())
    with pytest.raises((UsageError, ImportError), match="FlashAttention2"):
        train(settings)


@pytest.mark.parametrize(("harm", "says"), [("drop", "lacks the tensor"), ("break", "are not finite in")])
def test_a_base_model_that_is_not_whole_is_refused(harm, says, fields, tmp_path) -> None:
    """transformers would fill what is missing with random numbers."""
    base = Path(shutil.copytree(fields["model_name_or_path"], tmp_path / "base"))
    tensors = load_file(base / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    if harm == "drop":
        del tensors[name]
    else:
        tensors[name][3, 4] = float("nan")
    save_file(tensors, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=rf"model_name_or_path: .*{says} {name}"):
        train_model(**{**fields, "model_name_or_path": base}, output_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_without_its_model_is_not_done(copied, whole, fields) -> None:
    (copied.path / WEIGHTS).unlink()
    assert not train_model(**fields, output_dir=copied.path).was_finished
    assert (copied.path / WEIGHTS).read_bytes() == (whole.run.path / WEIGHTS).read_bytes()
    assert sum("train_runtime" in line for line in JsonLines(copied.telemetry_path)) == 1


def test_a_training_that_ends_with_numbers_that_are_not_finite_has_no_model(copied, fields, monkeypatch) -> None:
    shutil.rmtree(copied.model_dir)
    manifest = copied.read_manifest()
    del manifest["finished"]
    copied.manifest_path.write_text(json.dumps(manifest))
    monkeypatch.setattr("trimsft.train.run.is_finite", lambda tensor: tensor.ndim == 2)
    with pytest.raises(FloatingPointError, match=r"norm.weight holds numbers that are not finite, so there is no"):
        train_model(**fields, output_dir=copied.path)
    monkeypatch.undo()
    assert not copied.is_finished() and not copied.model_dir.exists()
    assert train_model(**fields, output_dir=copied.path).steps == STEPS


@pytest.mark.parametrize("what", ["the manifest", "the model", "the telemetry"])
def test_a_full_disk_costs_nothing_that_was_done(what, fields, whole, tmp_path, monkeypatch) -> None:
    path, write, save = tmp_path / "run", Path.write_bytes, TrimSFTTrainer.save_model

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def save_half(self: Any, folder: str, **more: Any) -> None:
        save(self, folder, **more)
        if Path(folder).name == ".model":  # safetensors has a class of its own
            monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    def write_some(path: Path, content: bytes) -> int:
        return fail() if ".manifest.json." in path.name else write(path, content)  # type: ignore[func-returns-value]

    if what == "the manifest":
        monkeypatch.setattr(Path, "write_bytes", write_some)
    elif what == "the model":
        monkeypatch.setattr(TrimSFTTrainer, "save_model", save_half)
    else:
        monkeypatch.setattr("trimsft.runs.files.os.write", fail)
    with pytest.raises(WriteError) as failed:
        train_model(**fields, output_dir=path)
    monkeypatch.undo()
    assert exit_code(failed.value) == 1 and "\n" not in str(failed.value)
    assert not RunDirectory(path).is_finished() and not (path / ".model").exists()
    assert train_model(**fields, output_dir=path).run.is_finished()
    assert (path / WEIGHTS).read_bytes() == (whole.run.path / WEIGHTS).read_bytes()
