"""One callback trains with an objective in transformers' own Trainer, and leaves the model as it was."""

import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

import trimsft
from tests.train.tiny import make_model


def make_trainer(folder, model, callback) -> Trainer:
    torch.manual_seed(0)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(1, 32, (8, 12)).tolist()]
    arguments = TrainingArguments(
        str(folder), max_steps=3, learning_rate=1e-2, use_cpu=True, dataloader_pin_memory=False, report_to="none",
        per_device_train_batch_size=4, save_strategy="no", disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    return Trainer(model, arguments, train_dataset=Dataset.from_list(rows), callbacks=[callback])


def losses(trainer: Trainer) -> list[float]:
    trainer.train()
    return [record["loss"] for record in trainer.state.log_history if "loss" in record]


def test_it_trains_as_a_patched_model_does(tmp_path) -> None:
    objective = trimsft.TrimSFTHard(margin=0.5)
    by_callback = losses(make_trainer(tmp_path, make_model(), trimsft.TrimCallback(objective, skip_below=0)))
    patched = trimsft.patch(make_model(), objective, skip_below=0)
    assert by_callback == losses(make_trainer(tmp_path, patched, trimsft.AdvanceObjective()))
    assert by_callback != losses(make_trainer(tmp_path, make_model(), trimsft.TrimCallback(trimsft.SFT())))


def test_who_looks_for_logits_finds_none() -> None:
    """ms-swift computes a token accuracy where `outputs.logits is not None`."""
    ids = torch.arange(8)[None]
    out = trimsft.patch(make_model(), trimsft.SFT())(input_ids=ids, labels=ids)
    assert out.logits is None and "logits" not in out


def test_it_leads_an_objective_that_adapts_and_gives_the_model_back(tmp_path, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(trimsft.AutoTrim, "advance", lambda self, progress, _: seen.append(progress) or self)
    model = make_model()
    losses(make_trainer(tmp_path, model, trimsft.TrimCallback(trimsft.AutoTrim())))
    assert seen == [1 / 3, 2 / 3, 1]
    ids = torch.arange(8)[None]
    assert model(input_ids=ids, labels=ids).logits is not None  # no longer patched
