"""Settings that are refused: in one line that names the field, before anything is done, without a trace."""

import dataclasses
import json
import os
import random
import shutil
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import BertConfig, BertForMaskedLM
from typer.testing import CliRunner

from tests.train.tiny_run import as_words, make_fields, make_model
from trimsft import cli
from trimsft.errors import RunError, UsageError, exit_code
from trimsft.train import TrimSFTTrainer, make_settings, parse, train, train_model
from trimsft.train.settings import KINDS, refusing


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return make_fields(tmp_path_factory.mktemp("inputs"), max_steps=4)


def everything(folder: Path) -> dict[str, bytes | None]:
    paths = folder.rglob("*")
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


RECIPES = sorted(Path(__file__).parents[2].joinpath("recipes").glob("*.yaml"))
GAP = '{"problem": "1+1?", "solution": "2"}\n{"problem": "2+2?"}\n'
REFUSED = [
    ("--marging 1", "--marging: no such field; did you mean --margin?"),
    ("--modl m", "--modl: no such field; did you mean --model?"),
    ("--dataset d", "--dataset: no such field; did you mean --data?"),
    ("--data_sed 1", "--data_sed: no such field; did you mean --data_seed?"),
    ("--entirely_unknown 1", "--entirely_unknown: no such field; trimsft train --help-all"),
    ("stray", "'stray' belongs to no field; trimsft train --help-all lists every field"),
    ("smollm2-gsm8k", "'smollm2-gsm8k' belongs to no field; for a recipe: --config smollm2-gsm8k"),
    ("--objective trimm", "objective: unknown name 'trimm'; did you mean 'trim'?"),
    ("--objective dft --margin 2", "margin: has no effect with objective='dft', got 2.0; remove it"),
    ("--bandwidth 0", "bandwidth: must be above 0, got 0.0"),
    ("--learning_rate fast", "invalid float value: 'fast'"),
    ("--learning_rate -1", "learning_rate: must be at least 0, got -1.0"),
    ("--loss_type dft", "loss_type: would be ignored here, got 'dft'"),
    ("--sample 0", "sample: must be at least 1, got 0"),
    ("--config ./nowhere.yaml", "--config: no such file, and no recipe of that name, got './nowhere.yaml'"),
    (
        "--config smolm2-gsm8k",
        "--config: no such file, and no recipe of that name, got 'smolm2-gsm8k'; did you mean 'smollm2-gsm8k'? ",
    ),
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


@pytest.mark.parametrize("path", RECIPES, ids=[path.stem for path in RECIPES])
def test_every_recipe_names_its_data(path) -> None:
    assert parse(["--config", str(path)]).overrides["dataset_name"]


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


BAD_VALUES = {
    "inf many": "learning_rate gradient_accumulation_steps",
    "nan -1": "learning_rate weight_decay adam_epsilon warmup_steps max_grad_norm neftune_noise_alpha skip_below "
    "router_aux_loss_coef save_steps logging_steps eval_steps eval_delay num_train_epochs bandwidth",
    "nan 5": "adam_beta1 adam_beta2 label_smoothing_factor lora_dropout",
    "0 1.5": "gradient_accumulation_steps per_device_train_batch_size per_device_eval_batch_size max_length "
    "global_batch dataset_num_proc dataloader_prefetch_factor save_total_limit eval_accumulation_steps lora_r "
    "ddp_timeout torch_empty_cache_steps sample pad_to_multiple_of",
    "-3 4294967296": "seed data_seed sample_seed",
    "-1 2000": "dataloader_num_workers",
    "0 99999999999999999999": "max_steps",
    "nonsense": "lr_scheduler_type optim save_strategy eval_strategy logging_strategy hub_strategy log_level report_to "
    "head_backend packing_strategy truncation_mode train_sampling_strategy ddp_backend dtype template bf16 packing "
    "dataloader_multiprocessing_context warmup_ratio",
    '{ {"nonsense":1}': "accelerator_config gradient_checkpointing_kwargs",
    "{": "fsdp_config deepspeed",
    "{ nonsense": "lr_scheduler_kwargs model_init_kwargs dataset_kwargs gradient_checkpointing_kwargs "
    "objective_parameters",
}
BAD_WORDS = [
    (field, value) for values, names in BAD_VALUES.items() for field in names.split() for value in values.split()
]
BAD_YAML = {
    "[1]": "learning_rate seed max_steps margin max_length bf16 optim lr_scheduler_type objective dataset_name dtype "
    "model_name_or_path output_dir template system_prompt sample lora_r model_init_kwargs fsdp_config label_names",
    "{1: 2}": "lr_scheduler_kwargs model_init_kwargs dataset_kwargs objective_parameters",
    "{a: 1}": "learning_rate max_steps run_name report_to dataset_name eos_token lora_target_modules",
    "true": "learning_rate seed max_steps margin max_length objective eval_strategy sample",
    "5": "bf16 packing optim save_strategy objective dataset_name model_name_or_path output_dir run_name report_to "
    "model_init_kwargs accelerator_config deepspeed lora_target_modules template low_memory parallelism_config",
    "null": "learning_rate seed max_steps objective head_backend packing",
    "2026-01-01": "run_name learning_rate dataset_name",
    ".nan": "learning_rate margin lora_dropout seed",
}
BAD_FIELDS = [(field, value) for value, names in BAD_YAML.items() for field in names.split()]
NO_PATHS = ("~nobody-here/x", "x" * 5000, "a/" * 2000, "a\0b", "a\udcffb")
PATHS = [(name, value) for name in ("output_dir", "model_name_or_path", "dataset_name") for value in NO_PATHS]


def test_bad_values_are_refused_by_the_name_of_their_field_before_anything_is_done(
    fields, tmp_path, monkeypatch
) -> None:
    """On the command line, in a recipe, and from Python."""
    monkeypatch.chdir(tmp_path)
    for field, value in BAD_WORDS:
        with pytest.raises(UsageError, match=rf"^(--)?(argument )?-*{field}\b[^\n]*$"):
            parse([*as_words({**fields, "output_dir": "run"}), f"--{field}", value])
    for field, value in BAD_FIELDS:
        made = {**fields, "output_dir": "run", **yaml.safe_load(f"{field}: {value}")}
        with pytest.raises(UsageError, match=rf"^{field}: [^\n]*$"):
            make_settings(made)
    for field, value in [*PATHS, ("run_name", "a\udcff"), ("lora_target_modules", ["a\0"])]:
        with pytest.raises(UsageError, match=rf"^{field}: [^\n]*$"):
            make_settings({**fields, field: value})
    assert len(BAD_WORDS) + len(BAD_FIELDS) > 150 and everything(tmp_path) == {}


def test_a_model_that_cannot_have_the_head_is_refused(fields, tmp_path) -> None:
    masked = make_model(tmp_path / "masked")
    BertForMaskedLM(BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(masked)
    assert_refused(["--model", str(masked)], "BertForMaskedLM is a masked language model", fields, tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["--lr_scheduler_kwargs", '{"nonsense": 1}'],  # found out when the scheduler is made
        ["--optim_args", "nonsense"],
        ["--model_init_kwargs", '{"nonsense": 1}'],
    ],
)
def test_what_only_a_library_can_judge_binds_no_folder_either(words, fields, tmp_path) -> None:
    if words[0] == "--optim_args":
        (tmp_path / "run").mkdir()  # an empty folder of the user's stays one
    assert_refused(words, f"it may come from {words[0][2:]}", fields, tmp_path)


BUGS = [
    (AttributeError, "None.strip()"),
    (AttributeError, "torch.nn.Linear(1, 1).nowhere"),  # raised by torch, for a line of ours
    (KeyError, "{}['a']"),
    (IndexError, "[][0]"),
    (ValueError, "int('a')"),
    (TypeError, "len(1)"),
    (RuntimeError, "raise RuntimeError"),
]


@pytest.mark.parametrize(("kind", "line"), BUGS, ids=[line for _, line in BUGS])
def test_a_bug_of_ours_stays_what_it_is(kind, line) -> None:
    ours: dict[str, Any] = {"__name__": "trimsft.train.somewhere", "torch": torch}
    exec(f"def fail(): {line}", ours)
    with pytest.raises(kind) as caught, refusing(["model_init_kwargs"]):
        ours["fail"]()
    assert caught.type is kind


def test_a_file_that_fails_our_code_is_no_bug() -> None:
    with pytest.raises(UsageError, match="No such file"), refusing():
        exec("open('nowhere/at/all')", {"__name__": "trimsft.train.somewhere"})


def test_a_bug_of_ours_is_no_refusal_of_the_command(fields, tmp_path, monkeypatch) -> None:
    words = ["train", *as_words(fields), "--output_dir", str(tmp_path / "run")]
    monkeypatch.setattr("trimsft.train.trainer.fixed_parts", lambda _: None)
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 1 and isinstance(done.exception, TypeError)
    assert "trimsft/train/trainer.py" in "".join(traceback.format_exception(done.exception))


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


# mutated recipes -----------------------------------------------------------------------------------------------------

NAMES = [field.name for kind in KINDS for field in dataclasses.fields(kind)]
VALUES = [
    ".nan", "-.inf", "1e400", "9" * 400, "0x" + "f" * 40, "~", "[]", "{a: {b: [1]}}", "''", '"\\u0000"', '"\\e[2J"',
    "x" * 5000, "2026-99-99", "!!timestamp x", "!!python/object/apply:os.system [id]", "!!set {a, b}", "&a [*a]",
    "*nowhere", "1_000", '"\\ud800"', "'" + '{"a":' * 3000 + "'", "'{\"a\":'", "{<<: 5}", "? [a]\n  : b",
]  # fmt: skip
BOMB = "x0: &x0 [a,a,a,a,a,a,a,a,a]\n" + "\n".join(
    f"x{step}: &x{step} [{','.join([f'*x{step - 1}'] * 9)}]" for step in range(1, 9)
)
LINES = [
    BOMB,
    "a: " + "[" * 5000,
    "- a",
    "5: 5",
    "---",
    "%YAML 9",
    "\ufeff",
    "model_init_kwargs: &m {a: *m}",
    "\x00",
    "'",
]


def mutated(draw: random.Random) -> str:
    lines = draw.choice(RECIPES).read_text().splitlines()
    for _ in range(draw.choice((1, 2, 4))):
        at, kind = draw.randrange(len(lines)), draw.randrange(6)
        if kind < 2:
            lines.append(f"{draw.choice(NAMES)}: {draw.choice(VALUES)}")
        elif kind == 2:
            lines.append(f"env: {{A_SETTING: {draw.choice(VALUES)}, {draw.choice(VALUES)}: b}}")
        elif kind == 3:
            lines.append(draw.choice(LINES))
        else:
            lines[at] = lines[at][: draw.randrange(len(lines[at]) + 1)] + draw.choice(
                ("", "]", "\t", ": *a", '"', "\x07")
            )
    return "\n".join(lines)


def test_mutated_recipes_are_refused_in_one_line_or_carried_out(fields, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("trimsft.train.run.make_trainer", lambda *_: pytest.fail("made"))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    refused: list[str] = []
    carried_out = 0
    for seed in range(60):
        (tmp_path / "recipe.yaml").write_bytes(mutated(random.Random(seed)).encode("utf-8", "surrogatepass"))
        names = {name: fields[name] for name in ("model_name_or_path", "dataset_name", "use_cpu")}
        words = ["--config", str(tmp_path / "recipe.yaml"), *as_words({**names, "output_dir": tmp_path / "run"})]
        try:
            train(parse(words))
        except UsageError as error:
            refused.append(str(error))
        except pytest.fail.Exception:
            carried_out += 1
        assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]
    assert len(refused) > 30 and carried_out > 3
    assert all(line.isprintable() and len(line) < 2500 for line in refused)


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
    for word, guess in ((tmp_path, "for a model: --model"), (tmp_path / "rows.jsonl", "for data: --data")):
        with pytest.raises(UsageError, match=f"belongs to no field; {guess} {word}$"):
            parse([str(word)])


def test_a_function_in_the_place_of_a_name_gets_the_right_hint() -> None:
    with pytest.raises(UsageError, match=r"objective: must be a name, .*; TrimSFTTrainer\(\.\.\., objective="):
        make_settings({"model": "m", "data": "d", "objective": abs})
