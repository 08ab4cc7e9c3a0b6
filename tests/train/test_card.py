"""The model card: what the model was made from, with what, and what was measured."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import Dataset
from torch import Tensor

from tests.train.tiny import PAIRS, history_of, make_model, make_ours, make_trainer
from trimsft import TokenStats
from trimsft.train import TrimSFTTrainer


def card_of(trainer: Any, **options: Any) -> tuple[dict[str, Any], str]:
    """Its header and its text."""
    trainer.create_model_card(**options)
    _, header, text = (Path(trainer.args.output_dir) / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(header), text


def base_named(name: str) -> Any:
    model = make_model()
    model.config._name_or_path = name
    return model


def test_after_a_training(tmp_path) -> None:
    options = {"eval_dataset": Dataset.from_list(PAIRS[:2])}
    settings = {"margin": 0.25, "bandwidth": 2.0, "learning_rate": 0.0123, "eval_strategy": "steps", "eval_steps": 1}
    trainer = make_trainer(TrimSFTTrainer, base_named("some/base"), tmp_path, PAIRS, options, **settings)
    trainer.train()
    header, text = card_of(trainer, model_name="mine", dataset_name="some/data", tags=["maths", "trl"])
    assert header["base_model"] == "some/base" and header["datasets"] == ["some/data"]
    assert header["tags"] == ["maths", "sft", "trimsft", "trl"]
    assert (header["library_name"], header["pipeline_tag"]) == ("transformers", "text-generation")
    assert "# mine\n" in text and "Fine-tuned from `some/base`" in text
    assert "`TrimSFT(margin=0.25, bandwidth=2.0)`" in text
    assert "| learning_rate | 0.0123 |" in text and "| gradient_accumulation_steps | 2 |" in text
    first, *_, last = (record for record in history_of(trainer) if "nll" in record)
    assert f"| nll | {first['nll']:.4g} | {last['nll']:.4g} |" in text
    last_loss = [record["eval_loss"] for record in history_of(trainer) if "eval_loss" in record][-1]
    assert "| evaluation loss |" in text and f"{last_loss:.4g} |" in text
    assert "Dataset: `some/data`." in text and f"train: {trainer.length_reports['train']}" in text
    assert "transformers 5." in text and "trl 1." in text


def sure(tokens: TokenStats) -> Tensor:
    return (tokens.gap > 0).float()


@pytest.mark.parametrize(
    ("options", "settings", "says"),
    [({}, {"objective": "fsft", "gamma": 1.5}, "`FSFT(gamma=1.5)`"), ({"objective": sure}, {}, "`sure`")],
)
def test_before_any_training(options, settings, says, tmp_path) -> None:
    trainer = make_ours(tmp_path, options=options, **settings)
    _, text = card_of(trainer)
    assert f"with the objective {says}: " in text
    assert "Nothing was logged." in text
