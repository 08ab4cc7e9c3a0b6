"""Log-probabilities of a reference: from a token table, through truncation and batches, to the weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.train.tiny import PAIRS, make_ours, make_tokenizer
from tests.train.tiny_run import make_fields
from trimsft.data.encode import load_tokenizer, load_training_data
from trimsft.data.load import DataConfig
from trimsft.errors import UsageError
from trimsft.objectives.family import PAlpha
from trimsft.objectives.reference import ProximalSFT
from trimsft.tokens.write import write_token_table
from trimsft.train import TrimSFTConfig, make_settings, train_model
from trimsft.train.batches import ReferenceCollator

STEP = {"max_steps": 1, "warmup_steps": 0, "save_strategy": "no"}


@pytest.fixture(scope="module")
def fields(tmp_path_factory):
    """Without dropout: the model at its start is its own reference."""
    fields = make_fields(tmp_path_factory.mktemp("reference"))
    config = json.loads((config_path := _path(fields, "model_name_or_path") / "config.json").read_text())
    config_path.write_text(json.dumps(config | {"attention_dropout": 0.0}))
    return fields


@pytest.fixture(scope="module")
def table(fields):
    place = _path(fields, "dataset_name").parent / "t.parquet"
    return write_token_table(fields["model_name_or_path"], rows_of(fields), place)


def _path(fields, name):
    return Path(fields[name])


def rows_of(fields):
    return [json.loads(line) for line in _path(fields, "dataset_name").read_text().splitlines()]


def loss_of(result):
    return json.loads(result.run.telemetry_path.read_text().splitlines()[0])["loss"]


def test_a_model_that_is_its_own_reference_begins_with_dft_or_sft(fields, table, tmp_path) -> None:
    """ASFT's pull and PSFT's ratio are 0 and 1 where p = q."""
    for ours, same in (("asft", "dft"), ("psft", "sft")):
        mine = train_model(**fields | STEP, objective=ours, reference=table, output_dir=tmp_path / ours)
        plain = train_model(**fields | STEP, objective=same, output_dir=tmp_path / same)
        # rows are batched in other ways than for the table: some roundings of 2^-24 in 1 - p, a tenth of which is added
        # to weights of about 0.004
        assert loss_of(mine) == pytest.approx(loss_of(plain), rel=16 * 2**-24 / 10 / 0.004)
        assert loss_of(mine) > 0.01


def test_rows_are_matched_with_their_table(fields, table, tmp_path) -> None:
    model, data = fields["model_name_or_path"], fields["dataset_name"]
    tokenizer = load_tokenizer(model)
    config = DataConfig(dataset_name=data, reference=str(table))
    rows = load_training_data(config, tokenizer, with_eval=False)[0]
    for row in rows.select(range(3)):
        values = torch.tensor(row["reference_logprobs"])
        assert torch.equal(values.isnan(), torch.tensor(row["labels"]) == -100) and (values[~values.isnan()] <= 0).all()
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(table, run / "tokens.parquet")  # of a run directory
    config.reference = str(run)
    assert str(load_training_data(config, tokenizer, with_eval=False)[0][0]) == str(rows[0])  # nan is not nan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "asft"}, "^objective: 'asft' compares with a reference, and none is given; trimsft tokens"),
        ({"objective": "dft", "reference": "t"}, "^reference: has no effect with objective='dft', got 't'; remove it$"),
        ({"objective": "asft", "reference": "t", "packing": True}, "^packing: leaves no place for a reference"),
        ({"objective": "p-alpha", "objective_parameters": "2"}, "^objective_parameters: must be names and values"),
        ({"objective": "p-alpha", "objective_parameters": {"beta": 1}}, "no parameter 'beta'; it takes alpha"),
        (
            {"objective": "p-alpha", "objective_parameters": {"alpha": -1}},
            r"^objective_parameters: are not for 'p-alpha' \(alpha: must be a .* >= 0, got -1\)",
        ),
        ({"objective": "auto-trim", "objective_parameters": {"fixed": 3}}, "^objective_parameters: are not for 'auto-"),
        (
            {"objective": "p-alpha", "margin": 2.0},
            "^margin: has no effect with objective='p-alpha', got 2.0; remove it$",
        ),
        (
            {"objective": "trim", "margin": 2.0, "objective_parameters": {"margin": 1}},
            "^objective_parameters: 'margin' is given twice",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes, message) -> None:
    with pytest.raises(UsageError, match=message):
        make_settings({"model": "m", "data": "d", "use_cpu": True, **changes})


def test_parameters_come_as_json_or_as_names_and_values(tmp_path) -> None:
    for given in ('{"alpha": 2}', {"alpha": 2}):
        config = TrimSFTConfig(str(tmp_path), objective="p-alpha", objective_parameters=given, use_cpu=True, bf16=False)
        assert config.make_objective() == PAlpha(alpha=2)


# on the way ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding_free", [False, True])
def test_a_batch_has_the_reference_beside_the_labels(padding_free) -> None:
    rows = [{"input_ids": [5, 6, 7], "labels": [-100, 6, 7], "reference_logprobs": [0.0, -1.0, -2.0]},
            {"input_ids": [8, 9], "labels": [-100, 9], "reference_logprobs": [0.0, -3.0]}]  # fmt: skip
    batch = ReferenceCollator(pad_token_id=0, padding_free=padding_free)(rows)
    trained = batch["labels"] != -100
    assert batch["reference_logprobs"].shape == batch["labels"].shape
    assert dict(zip(batch["labels"][trained].tolist(), batch["reference_logprobs"][trained].tolist(), strict=True)) == {
        6: -1.0, 7: -2.0, 9: -3.0
    }  # fmt: skip


def test_the_trainer_takes_the_column_of_a_dataset(tmp_path) -> None:
    tokenizer = make_tokenizer()
    rows = []
    for pair in PAIRS:
        prompt, completion = (tokenizer(pair[part])["input_ids"] for part in ("prompt", "completion"))
        labels = [-100] * len(prompt) + completion
        rows.append({"input_ids": prompt + completion, "labels": labels, "reference_logprobs": [-3.0] * len(labels)})
    options = {"objective": ProximalSFT()}
    trainer = make_ours(tmp_path, rows, options, max_length=16)
    trainer.train()
    assert len(trainer.grads) == 2
    with pytest.raises(UsageError, match="packing: drops the column reference_logprobs"):
        make_ours(tmp_path, rows, options, packing=True, padding_free=False, max_length=16)
    with pytest.raises(UsageError, match=r"^objective: ProximalSFT compares with a reference, and the data has no col"):
        make_ours(tmp_path, None, options)
