"""The model card: what the model was made from, with what, and what was measured."""

from pathlib import Path

import yaml
from datasets import Dataset
from torch import Tensor

from tests.train.tiny import PAIRS, history_of, make_model, make_ours, make_trainer
from trimsft import TokenStats
from trimsft.train import TrimSFTTrainer


def sure(tokens: TokenStats) -> Tensor:
    return (tokens.gap > 0).float()


def test_a_card_names_model_data_settings_and_figures(tmp_path) -> None:
    model = make_model()
    model.config._name_or_path = "some/base"
    options = {"eval_dataset": Dataset.from_list(PAIRS[:2])}
    settings = {"margin": 0.25, "bandwidth": 2.0, "learning_rate": 0.0123, "eval_strategy": "steps", "eval_steps": 1}
    trainer = make_trainer(TrimSFTTrainer, model, tmp_path, PAIRS, options, **settings)
    trainer.train()
    trainer.create_model_card(model_name="mine", dataset_name="some/data", tags=["maths", "trl"])
    _, header, text = (tmp_path / "README.md").read_text().split("---\n", 2)
    header = yaml.safe_load(header)
    assert header["base_model"] == "some/base" and header["datasets"] == ["some/data"]
    assert header["tags"] == ["maths", "sft", "trimsft", "trl"] and header["library_name"] == "transformers"
    first, *_, last = (record for record in history_of(trainer) if "nll" in record)
    last_loss = [record["eval_loss"] for record in history_of(trainer) if "eval_loss" in record][-1]
    for part in (
        "# mine\n", "Fine-tuned from `some/base`", "`TrimSFT(margin=0.25, bandwidth=2.0)`", "Dataset: `some/data`.",
        "| learning_rate | 0.0123 |", f"| nll | {first['nll']:.4g} | {last['nll']:.4g} |", f"{last_loss:.4g} |",
        f"train: {trainer.length_reports['train']}", "transformers 5.", "trl 1.",
    ):  # fmt: skip
        assert part in text
    untrained = make_ours(tmp_path / "sure", options={"objective": sure})
    untrained.create_model_card()
    text = Path(untrained.args.output_dir, "README.md").read_text()
    assert "with the objective `sure`: " in text and "Nothing was logged." in text
