"""One callback trains with an objective in transformers' own Trainer, and leaves the model as it was."""

import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

import trimsft
from tests.train.tiny import make_model


def make_trainer(folder, model, *callbacks, **settings) -> Trainer:
    torch.manual_seed(0)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(1, 32, (8, 12)).tolist()]
    settings = {"max_steps": 3, "save_strategy": "no"} | settings
    arguments = TrainingArguments(
        str(folder), learning_rate=1e-2, use_cpu=True, dataloader_pin_memory=False, report_to="none",
        per_device_train_batch_size=4, disable_tqdm=True, logging_steps=1, **settings,
    )  # fmt: skip
    data = Dataset.from_list(rows)
    return Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=list(callbacks))


def losses(trainer: Trainer) -> list[float]:
    trainer.train()
    return [record["loss"] for record in trainer.state.log_history if "loss" in record]


def test_it_trains_as_a_patched_model_does(tmp_path) -> None:
    objective = trimsft.TrimSFTHard(margin=0.5)
    model, ids = make_model(), torch.arange(8)[None]
    by_callback = losses(make_trainer(tmp_path, model, trimsft.TrimCallback(objective, skip_below=0)))
    assert model(input_ids=ids, labels=ids).logits is not None  # no longer patched
    patched = trimsft.patch(make_model(), objective, skip_below=0)
    assert by_callback == losses(make_trainer(tmp_path, patched))
    assert by_callback != losses(make_trainer(tmp_path, make_model(), trimsft.TrimCallback(trimsft.SFT())))


def test_an_objective_may_be_given_by_its_name(tmp_path) -> None:
    by_name = losses(make_trainer(tmp_path, make_model(), trimsft.TrimCallback("trim-h", skip_below=0)))
    callback = trimsft.TrimCallback(trimsft.TrimSFTHard(), skip_below=0)
    assert by_name == losses(make_trainer(tmp_path, make_model(), callback))
