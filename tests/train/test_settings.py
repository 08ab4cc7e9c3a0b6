"""Settings that are refused: in one line that names the field, before anything is done, without a trace."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertForMaskedLM
from typer.testing import CliRunner

from tests.train.tiny_run import as_words, make_fields, make_model
from trimsft import cli
from trimsft.errors import RunError, UsageError, exit_code
from trimsft.train import TrimSFTTrainer, make_settings, parse, train, train_model


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return make_fields(tmp_path_factory.mktemp("inputs"), max_steps=4)


def everything(folder: Path) -> dict[str, bytes | None]:
    paths = folder.rglob("*")
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


GAP = '{"problem": "1+1?", "solution": "2"}\n{"problem": "2+2?"}\n'
REFUSED = [
    ("--marging 1", "--marging: no such field; did you mean --margin?"),
    ("--modl m", "--modl: no such field; did you mean --model?"),
    ("--dataset d", "--dataset: no such field; did you mean --data?"),
    ("--data_sed 1", "--data_sed: no such field; did you mean --data_seed?"),
    ("--entirely_unknown 1", "--entirely_unknown: no such field; trimsft train --help-all"),
    ("smollm2-gsm8k", "'smollm2-gsm8k' belongs to no field; --config smollm2-gsm8k, perhaps"),
    ("--objective trimm", "objective: unknown name 'trimm'; did you mean 'trim'?"),
    ("--objective dft --margin 2", "margin: has no effect with objective='dft', got 2.0; remove it"),
    ("--bandwidth 0", "bandwidth: must be a finite number > 0, got 0.0"),
    ("--learning_rate fast", "invalid float value: 'fast'"),
    ("--learning_rate -1", "Invalid learning rate: -1.0"),
    ("--loss_type dft", "loss_type: would be ignored here, got 'dft'"),
    ("--sample 0", "sample: must be at least 1, got 0"),
    ("--config ./nowhere.yaml", "--config: no such file, and no recipe of that name, got './nowhere.yaml'"),
    (
        "--config smolm2-gsm8k",
        "--config: no such file, and no recipe of that name, got 'smolm2-gsm8k'; did you mean 'smollm2-gsm8k'? ",
    ),
    ("--config", "--config: is missing the name of a YAML file"),
    ("--skip_below -1", "skip_below: must be at least 0, got -1.0"),
    ("--per_device_train_batch_size 0", "batch_size should be a positive integer"),
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
    for command in (["train"], ["train", "--dry-run"], ["data", "preview"]):
        done = CliRunner().invoke(cli.app, [*command, "--model", "m"])
        assert done.exit_code == 2 and says.replace("dataset_name", "--data") in done.stderr


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


def test_a_model_that_cannot_have_the_head_is_refused(fields, tmp_path) -> None:
    masked = make_model(tmp_path / "masked")
    BertForMaskedLM(BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(masked)
    assert_refused(["--model", str(masked)], "BertForMaskedLM is a masked language model", fields, tmp_path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--lr_scheduler_kwargs", '{"nonsense": 1}'], "nonsense"),  # found out when the scheduler is made
        (["--optim_args", "nonsense"], "not enough values"),
        (["--model_init_kwargs", '{"nonsense": 1}'], "nonsense"),
    ],
)
def test_a_refusal_of_a_library_binds_no_folder(words, says, fields, tmp_path) -> None:
    if words[0] == "--optim_args":
        (tmp_path / "run").mkdir()  # an empty folder of the user's stays one
    assert_refused(words, says, fields, tmp_path)


def test_a_model_folder_with_wrong_entries_is_refused(fields, tmp_path) -> None:
    other = make_model(tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "architectures": ["NobodysForCausalLM"]}))
    assert_refused(["--model", str(other)], "has no attribute", fields, tmp_path)
    (other / "config.json").write_text(json.dumps(config))
    (other / "generation_config.json").write_text('{"eos_token_id": [[1]]}')
    assert_refused(["--model", str(other)], "eos_token_id of its generation config must be a number", fields, tmp_path)


def test_what_the_head_refuses_in_the_first_step_is_a_refusal(fields, tmp_path, monkeypatch) -> None:
    triton = pytest.importorskip("triton", reason="Triton is for Linux")
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    assert_refused(["--head_backend", "triton"], "'triton' needs CUDA tensors", fields, tmp_path)


def test_what_fails_in_the_first_step_binds_no_folder(fields, tmp_path, monkeypatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FloatingPointError("step 1: the loss is nan")

    monkeypatch.setattr(TrimSFTTrainer, "training_step", fail)
    with pytest.raises(FloatingPointError):
        train_model(**{**fields, "learning_rate": 1.0}, output_dir=tmp_path / "new" / "run")
    monkeypatch.undo()
    assert everything(tmp_path) == {}
    assert train_model(**{**fields, "max_steps": 1}, output_dir=tmp_path / "new" / "run").steps == 1


# names of the other commands -----------------------------------------------------------------------------------------


def test_model_data_and_out_are_called_as_in_other_commands(tmp_path) -> None:
    short = parse(["--model", "m", "--data=d.jsonl", "--out", "run"])
    long = parse(["--model_name_or_path", "m", "--dataset_name", "d.jsonl", "--output_dir", "run"])
    assert short == long == make_settings({"model": "m", "data": "d.jsonl", "out": Path("run")})
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("model: m\ndata: d.jsonl\n")
    assert parse(["--config", str(recipe), "--out", "run"]).overrides == short.overrides
    with pytest.raises(UsageError, match="model: is the same as model_name_or_path, which is given, too; remove one"):
        make_settings({"model": "m", "model_name_or_path": "n"})


def test_low_memory_may_be_left_open_and_without_a_value_is_true() -> None:
    words = ["--model", "m", "--data", "d.jsonl", "--out", "run"]
    given = ([], ["--low_memory"], ["--low_memory", "true"], ["--low_memory", "false"])
    assert [parse([*words, *more]).args.low_memory for more in given] == [None, True, True, False]
    made = [make_settings({"model": "m", "data": "d", "out": "run", "low_memory": low}) for low in (None, True, False)]
    assert [settings.args.low_memory for settings in made] == [None, True, False]


def test_a_word_without_its_field_gets_a_guess(tmp_path) -> None:
    (tmp_path / "rows.jsonl").touch()
    for word, guess in ((tmp_path, "--model"), (tmp_path / "rows.jsonl", "--data")):
        with pytest.raises(UsageError, match=f"belongs to no field; {guess} {word}, perhaps$"):
            parse([str(word)])


def test_a_function_in_the_place_of_a_name_gets_the_right_hint() -> None:
    with pytest.raises(UsageError, match=r"objective: must be (a name|text), .*; TrimSFTTrainer\(\.\.\., objective="):
        make_settings({"model": "m", "data": "d", "objective": abs})
