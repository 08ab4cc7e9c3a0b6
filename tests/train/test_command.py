"""`trimsft train` from the command line to a model folder; and what it says to commands that cannot be."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

pytest.importorskip("trl")

from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train.processes import Finished, command, free_port, rank_environments
from tests.train.tiny_run import make_settings

Train = Callable[..., Finished]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("command")


@pytest.fixture(scope="module")
def words(folder: Path) -> list[str]:
    return make_settings(folder, max_steps=4, save_steps=2)


@pytest.fixture
def train(words: list[str], tmp_path: Path) -> Train:
    """Runs the command with the usual words and more; a later word overrides an earlier one."""

    def run(*more: object, only: bool = False) -> Finished:
        return command(["train", *([] if only else words), *map(str, more)], tmp_path / "log").wait()

    return run


@pytest.fixture(scope="module")
def run(folder: Path, words: list[str]) -> Path:
    """A finished run."""
    path = folder / "run"
    done = command(["train", *words, "--output_dir", str(path)], folder / "log").wait()
    assert done.code == 0, done.err[-4000:]
    assert done.out.count("step 4/4") == 1 and f"the model is in {path / 'model'}" in done.err
    return path


# what a run leaves ---------------------------------------------------------------------------------------------------


def test_a_run_leaves_everything_to_look_at_and_to_do_it_again(run: Path, folder: Path) -> None:
    names = {path.name for path in run.iterdir()}
    assert names == {".lock", "config.yaml", "manifest.json", "model", "train"}
    assert sorted(path.name for path in (run / "train").glob("checkpoint-*")) == [
        "checkpoint-2",
        "checkpoint-4",
    ]
    records = [json.loads(line) for line in (run / "train" / "telemetry.jsonl").read_text().splitlines()]
    steps = [record for record in records if "loss" in record]
    assert [record["step"] for record in steps] == [1, 2, 3, 4]
    assert {"nll", "mean_weight", "effective_ratio", "gap_p50", "num_tokens"} <= steps[0].keys()
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["versions"]["trl"] and manifest["seed"] == 42 and manifest["processes"] == 1
    assert manifest["model"]["fingerprint"] and manifest["data"]["fingerprint"][str(folder / "sums.jsonl")]
    assert "trimsft train --model_name_or_path" in manifest["command"]
    assert manifest["train"]["steps"] == 4 and manifest["finished"]


def test_the_model_loads_without_trimsft(run: Path, folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(run / "model")
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    base = AutoModelForCausalLM.from_pretrained(folder / "tiny-model")
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), base.parameters(), strict=True))
    assert (
        tokenizer("What is 1+1?")["input_ids"]
        == AutoTokenizer.from_pretrained(folder / "tiny-model")("What is 1+1?")["input_ids"]
    )
    assert model(**tokenizer("What is 1+1?", return_tensors="pt")).logits.isfinite().all()
    card = (run / "model" / "README.md").read_text()
    assert card.startswith("---\n") and "trimsft" in card


def test_a_recipe_and_an_override_are_all_it_takes(run: Path, train: Train, tmp_path: Path) -> None:
    """The config.yaml of a run is such a recipe; it gives the same weights, another objective gives others."""
    again = train("--config", run / "config.yaml", "--output_dir", tmp_path / "again", only=True)
    assert again.code == 0, again.err[-4000:]
    file = "model/model.safetensors"
    assert (tmp_path / "again" / file).read_bytes() == (run / file).read_bytes()
    dft = train("--config", run / "config.yaml", "--objective=dft", "--output_dir", tmp_path / "dft", only=True)
    assert dft.code == 0, dft.err[-4000:]
    assert yaml.safe_load((tmp_path / "dft" / "config.yaml").read_text())["objective"] == "dft"
    other, weights = load_file(tmp_path / "dft" / file), load_file(run / file)
    assert any(not torch.equal(other[name], weights[name]) for name in weights)


def test_a_finished_run_is_left_as_it_is(run: Path, train: Train) -> None:
    before = contents(run)
    done = train("--output_dir", run)
    assert done.code == 0 and "already finished" in done.err and not done.out
    after = contents(run)
    assert before.pop(".lock") is not None and after.pop(".lock") is not None  # says who looked last
    assert before == after


def test_other_settings_are_not_mixed_into_a_run(run: Path, train: Train) -> None:
    before = (run / "config.yaml").read_bytes()
    done = train("--output_dir", run, "--learning_rate", 0.5)
    assert_refused(done, f"{run} holds a run with other settings: learning_rate: was 0.01, now 0.5")
    assert (run / "config.yaml").read_bytes() == before


def test_all_ranks_are_refused_together(run: Path, words: list[str], tmp_path: Path) -> None:
    more = ["--output_dir", str(run), "--learning_rate", "0.5"]
    children = [
        command(["train", *words, *more], tmp_path / f"rank{rank}", **environment)
        for rank, environment in enumerate(rank_environments(2, free_port()))
    ]
    first, second = (child.wait() for child in children)
    assert_refused(first, "learning_rate: was 0.01, now 0.5")
    assert second.code == 2 and not second.err


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# before it begins ----------------------------------------------------------------------------------------------------


def test_a_dry_run_estimates(train: Train, tmp_path: Path) -> None:
    done = train("--output_dir", tmp_path / "run", "--dry-run")
    assert done.code == 0, done.err[-4000:]
    for word in ("parameters", "optimizer", "peak", "tokens", "4 of 4 rows"):
        assert word in done.out
    assert not contents(tmp_path / "run")


def test_a_dry_run_leaves_no_folder(train: Train, tmp_path: Path) -> None:
    train("--output_dir", tmp_path / "run", "--dry-run")
    assert not (tmp_path / "run").exists()


def test_help_shows_an_example_and_the_fields(train: Train) -> None:
    done = train("--help", only=True)
    assert done.code == 0 and "trimsft train --config recipes/" in done.out
    everything = train("--help-all", only=True)
    assert everything.code == 0
    for field in ("--objective", "--margin", "--problem_column", "--lora_r", "--fsdp"):
        assert field in everything.out


BAD_FIELDS = [
    ("--marging 1", "--marging: no such field; did you mean --margin?"),
    ("--entirely_unknown 1", "--entirely_unknown: no such field; trimsft train --help-all"),
    ("stray", "'stray'"),
    ("--objective trimm", "objective: unknown name 'trimm'; did you mean 'trim'?"),
    ("--objective dft --margin 2", "margin: 2.0 has no effect with objective='dft'; remove it"),
    ("--bandwidth 0", "bandwidth must be a finite number > 0, got 0.0"),
    ("--learning_rate fast", "invalid float value: 'fast'"),
    ("--loss_type dft", "loss_type: 'dft' would be ignored here"),
    ("--sample 0", "sample: must be at least 1, got 0"),
    ("--config ./nowhere.yaml", "--config: cannot read './nowhere.yaml': No such file or directory"),
    ("--config", "--config: is missing the name of a YAML file"),
    ("--skip_below -1", "skip_below: must be a number >= 0, got -1"),
    ("--per_device_train_batch_size 0", "per_device_train_batch_size: must be at least 1"),
    ("--attn_implementation nonsense", "attn_implementation"),
    ("--resume_from_checkpoint ./nowhere", "./nowhere"),
    ("--model_name_or_path ./nowhere", "'./nowhere' does not exist"),
    ("--dataset_name ./nowhere.jsonl", "no such file or folder: './nowhere.jsonl'"),
    ("--problem_column question", "question"),
    ("--max_length 0", "max_length: must be at least 1"),
]


@pytest.mark.parametrize(("fields", "says"), BAD_FIELDS)
def test_bad_settings_are_refused_in_one_line(fields: str, says: str, train: Train, tmp_path: Path) -> None:
    done = train("--output_dir", tmp_path / "run", *fields.split())
    assert_refused(done, says)
    assert contents(tmp_path / "run").keys() <= {".lock"}


GAP = '{"problem": "1+1?", "solution": "2"}\n{"problem": "2+2?"}\n'
BAD_FILES = [
    ("--config", "list.yaml", "- margin\n", "must hold fields and values"),
    ("--config", "unknown.yaml", "objectiv: trim\n", "--objectiv: no such field in"),
    ("--config", "value.yaml", "margin: high\n", "--margin: invalid float value: 'high'"),
    ("--config", "torn.yaml", "margin: [1\nobjective: {", "torn.yaml"),
    ("--dataset_name", "gap.jsonl", GAP, "gap.jsonl, line 2"),
    ("--dataset_name", "other.jsonl", '{"a": "1+1?", "b": "2"}\n', "other.jsonl"),
    ("--dataset_name", "half.jsonl", '{"text": "1"}\n{"a": "2"}\n', "half.jsonl"),
    ("--model_name_or_path", "model/x", "", "model_name_or_path"),
    ("--model_name_or_path", "weightless/x", "", "weightless"),
]


@pytest.mark.parametrize(("field", "name", "text", "says"), BAD_FILES)
def test_bad_files_are_refused_in_one_line(
    field: str, name: str, text: str, says: str, train: Train, tmp_path: Path, folder: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    if field == "--model_name_or_path":
        path = path.parent
    if path.name == "weightless":
        for part in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (path / part).write_bytes((folder / "tiny-model" / part).read_bytes())
    assert_refused(train("--output_dir", tmp_path / "run", field, path), says)
    assert contents(tmp_path / "run").keys() <= {".lock"}


def test_a_corrected_command_may_follow_a_refused_one(train: Train, tmp_path: Path) -> None:
    assert train("--output_dir", tmp_path / "run", "--dataset_name", "./sumz.jsonl").code == 2
    done = train("--output_dir", tmp_path / "run")
    assert done.code == 0, done.err[-4000:]


def test_nothing_named_is_refused(train: Train, tmp_path: Path) -> None:
    assert_refused(train(only=True), "train: nothing to train; see trimsft train --help")
    done = train("--output_dir", tmp_path / "run", "--objective", "sft", only=True)
    assert_refused(done, "model_name_or_path: is missing")
    assert not (tmp_path / "run").exists()


def test_an_output_dir_that_is_a_file_is_refused(train: Train, tmp_path: Path) -> None:
    file = tmp_path / "run"
    file.write_text("precious")
    assert_refused(train("--output_dir", file), "cannot be used as a run directory")
    assert file.read_text() == "precious"


def assert_refused(done: Finished, *words: str) -> None:
    """Exit code 2 and one line; progress of what was read before does not count."""
    said = [line for line in done.err.splitlines() if line.startswith("trimsft: ")]
    assert done.code == 2, done.err[-4000:]
    assert "Traceback" not in done.err and not done.out
    assert said and done.err.rstrip().splitlines()[-1] == said[-1]
    for word in words:
        assert word in said[-1], said[-1]


# settings that others change while they work ------------------------------------------------------------------------


def test_a_recipe_with_nested_settings_can_be_continued(train: Train, words: list[str], tmp_path: Path) -> None:
    """transformers writes into the dictionaries that it is given."""
    settings = {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(settings))
    run = tmp_path / "run"
    for times in (1, 2):
        done = train("--config", file, "--output_dir", run)
        assert done.code == 0, done.err[-2000:]
        assert ("already finished" in done.err) is (times == 2)
    assert yaml.safe_load((run / "config.yaml").read_text())["accelerator_config"] == settings["accelerator_config"]
    again = train("--config", run / "config.yaml", "--output_dir", tmp_path / "again", only=True)
    assert again.code == 0, again.err[-2000:]
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (run, tmp_path / "again")]
    assert weights[0] == weights[1]


def test_no_secret_is_written_down(train: Train, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("hub_token: hf_SECRET\nmodel_init_kwargs: {token: hf_SECRET, use_safetensors: true}\n")
    done = train("--config", file, "--max_steps", 1, "--save_strategy", "no", "--output_dir", tmp_path / "run")
    assert done.code == 0, done.err[-2000:]
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"hf_SECRET" not in path.read_bytes(), path
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["model_init_kwargs"] == {"use_safetensors": True}


def test_data_that_changed_is_refused(train: Train, words: list[str], tmp_path: Path) -> None:
    data, run = tmp_path / "data.jsonl", tmp_path / "run"
    original = Path(words[words.index("--dataset_name") + 1]).read_text()
    data.write_text(original)
    options = ("--dataset_name", data, "--max_steps", 1, "--output_dir", run)
    assert train(*options).code == 0
    data.write_text(original.replace("What is", "How much is"))
    assert_refused(train(*options), "holds a run whose data was another", "data.jsonl")
    data.write_text(original)
    assert train(*options).code == 0


def test_the_record_of_input_tokens_is_no_end_of_training(train: Train, tmp_path: Path) -> None:
    options = ("--include_num_input_tokens_seen", "true", "--max_steps", 2, "--output_dir", tmp_path / "run")
    done = train(*options)
    assert done.code == 0 and "step 2/2" in done.out, done.err[-2000:]


def test_a_setting_without_effect_on_problems_is_refused(train: Train, tmp_path: Path) -> None:
    done = train("--completion_only_loss", "false", "--output_dir", tmp_path / "run")
    assert_refused(done, "completion_only_loss: false has no effect")


def test_no_row_left_is_refused_without_a_trace(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert_refused(
        train("--max_length", 3, "--output_dir", run),
        "max_length: 3 leaves no trained token in any of 40 rows",
    )
    assert contents(run).keys() <= {".lock"}


def test_a_tracker_that_is_not_installed_is_refused(train: Train, tmp_path: Path) -> None:
    done = train("--report_to", "comet_ml", "--output_dir", tmp_path / "run")
    assert_refused(done, "comet")


def test_a_recipe_for_gpus_runs_without_one(train: Train, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("bf16: true\nmax_steps: 1\n")
    done = train("--config", file, "--max_steps", 1, "--output_dir", tmp_path / "run")
    assert done.code == 0 and "bf16: true of the recipe needs a GPU" in done.err
