"""What TrimSFTTrainer takes, what it refuses, and what it says about its data."""

import logging
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from datasets import Dataset
from transformers import TrainingArguments
from trl import SFTConfig

from tests.train.tiny import LENGTHS, PAIRS, TEXTS, make_config, make_model, make_ours, make_tokenizer, record_batches
from trimsft import DFT, TrimSFT
from trimsft.errors import DataError, UsageError
from trimsft.models import load_model
from trimsft.train import TrimSFTConfig, TrimSFTTrainer
from trimsft.train.trainer import load_base

PACKED = {"packing": True, "max_length": 40}


@pytest.mark.parametrize(
    ("kind", "changes", "max_length", "eos"),
    [(SFTConfig, {"max_length": 9, "eos_token": "<assistant>"}, 9, "<assistant>"), (TrainingArguments, {}, 1024, None)],
)
def test_arguments_of_a_parent_class_are_taken_over(kind, changes, max_length, eos, tmp_path, caplog) -> None:
    config = make_config(kind, tmp_path, learning_rate=0.25, seed=7, hub_token="secret", **changes)
    rows = Dataset.from_list(PAIRS)
    trainer = TrimSFTTrainer(make_model(), config, train_dataset=rows, processing_class=make_tokenizer())
    args = trainer.args
    assert type(args) is TrimSFTConfig
    assert (args.learning_rate, args.seed, args.hub_token) == (0.25, 7, "secret")
    assert (args.max_length, args.eos_token, args.pad_token) == (max_length, eos, None)
    assert trainer.objective == TrimSFT(margin=1.5, bandwidth=0.8)
    assert f"objective: 'trim', the default, since {kind.__name__} names none" in caplog.text


def test_arguments_that_do_not_go_together_are_refused(tmp_path) -> None:
    with pytest.raises(TypeError, match="args: must be a TrimSFTConfig, got dict"):
        TrimSFTTrainer(make_model(), {"objective": "trim"}, train_dataset=Dataset.from_list(PAIRS))
    assert make_ours(tmp_path, options={"objective": "dft"}).objective == DFT()
    with pytest.raises(ValueError, match="objective: has no effect beside the trainer's own objective, got 'fsft'"):
        make_ours(tmp_path, options={"objective": DFT()}, objective="fsft")
    with pytest.raises(ValueError, match=r"adapter.*lm_head"):
        make_ours(tmp_path, options={"peft_config": peft.LoraConfig(target_modules=["lm_head"])})


def test_what_truncation_costs_is_said(tmp_path, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="trimsft"):
        options = {"eval_dataset": Dataset.from_list(TEXTS[:2])}
        trainer = make_ours(tmp_path, TEXTS, options, max_length=40)
    train, evaluation = [record for record in caplog.records if " data: " in record.message]
    assert train.levelno == logging.WARNING and evaluation.levelno == logging.INFO
    assert "max_length=40 cuts 1 row by 5 tokens" in train.message
    report = trainer.length_reports["train"]
    assert (report.rows, report.longest, report.truncated) == (8, max(LENGTHS) + 1, 1)
    assert report.tokens == sum(LENGTHS) + 8
    assert max(map(len, trainer.train_dataset["input_ids"])) == 40
    # a row that keeps nothing goes
    rows = [{"prompt": " ".join(["w1"] * 12), "completion": " w2"}, *PAIRS]
    trainer = make_ours(tmp_path, rows, max_length=12)
    assert trainer.length_reports["train"].dropped == 1 and len(trainer.train_dataset) == len(PAIRS)
    # wrapping cuts nothing off
    trainer = make_ours(tmp_path, TEXTS, packing=True, packing_strategy="wrapped", max_length=10)
    assert trainer.length_reports["train"].truncated == 0
    assert sum(map(len, trainer.train_dataset["input_ids"])) == trainer.length_reports["train"].tokens


def test_data_without_rows_is_refused(tmp_path) -> None:
    none = Dataset.from_list(PAIRS).select([])
    with pytest.raises(DataError, match="train_dataset: has no rows"):
        make_ours(tmp_path, none)
    with pytest.raises(DataError, match="eval_dataset: has no rows"):
        make_ours(tmp_path, options={"eval_dataset": none})
    with pytest.raises(DataError, match=r"max_length: 4 leaves no trained token in any of 8 rows of the train data"):
        make_ours(tmp_path, max_length=4)


@pytest.mark.parametrize("where", ["lm_head.weight", "model.layers.1.mlp.down_proj.weight"])
def test_a_non_finite_weight_names_the_place(where, tmp_path) -> None:
    trainer = make_ours(tmp_path)
    seen = record_batches(trainer)

    def spoil(*_: Any) -> None:
        if len(seen) == 3:  # three micro-batches of two a step are done: this is step 2, micro-batch 2
            trainer.model.get_parameter(where).data[0, 0] = torch.nan

    trainer.model.register_forward_pre_hook(spoil)
    with pytest.raises(FloatingPointError, match=r"step 2, micro-batch 2, rank 0: non-finite logits at \d+ of \d+"):
        trainer.train()


# the model that a training begins with ---------------------------------------------------------------------------


@pytest.fixture
def capped(tmp_path: Path) -> Path:
    """A Gemma-2 whose attention scores are far above their cap."""
    model = make_model("gemma2", attn_logit_softcapping=0.05)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data.mul_(30)
    model.save_pretrained(tmp_path / "gemma")
    return tmp_path / "gemma"


def load(folder: Path, attention: str | None = None) -> Any:
    settings = TrimSFTConfig(str(folder / "run"), use_cpu=True, bf16=False, report_to="none")
    settings.model_init_kwargs = {"attn_implementation": attention, "dtype": "float32"}
    return load_base(str(folder), settings)[0]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.arange(3, 19)[None]).logits  # type: ignore[no-any-return]


def test_a_soft_cap_of_attention_is_not_left_out(capped: Path, caplog: pytest.LogCaptureFixture) -> None:
    right, by_default = logits(load(capped, "eager")), load(capped)
    torch.testing.assert_close(logits(by_default), right)
    torch.testing.assert_close(logits(load_model(capped, dtype=torch.float32)), right)
    assert by_default.config._attn_implementation == "eager"
    assert "which sdpa leaves out: it is eager" in caplog.text
    uncapped = logits(load(capped, "sdpa"))  # who asks for it gets it
    assert "sdpa leaves that out" in caplog.text and (uncapped - right).abs().max() > 0.1


def test_weights_that_are_damaged_are_refused(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + bytes(100))
    with pytest.raises(UsageError, match=r"cannot load '.*model': .*file not fully covered"):
        load(tmp_path / "model")
