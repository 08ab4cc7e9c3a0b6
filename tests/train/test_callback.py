"""One callback trains with an objective in transformers' own Trainer, and leaves the model as it was."""

import logging

import pytest
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

import trimsft
from tests.train.tiny import make_model


def make_trainer(folder, model, callback, **settings) -> Trainer:
    torch.manual_seed(0)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(1, 32, (8, 12)).tolist()]
    settings = {"max_steps": 3, "save_strategy": "no"} | settings
    arguments = TrainingArguments(
        str(folder), learning_rate=1e-2, use_cpu=True, dataloader_pin_memory=False, report_to="none",
        per_device_train_batch_size=4, disable_tqdm=True, logging_steps=1, **settings,
    )  # fmt: skip
    data = Dataset.from_list(rows)
    return Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=[callback])


def losses(trainer: Trainer) -> list[float]:
    trainer.train()
    return [record["loss"] for record in trainer.state.log_history if "loss" in record]


def test_it_trains_as_a_patched_model_does(tmp_path) -> None:
    objective = trimsft.TrimSFTHard(margin=0.5)
    by_callback = losses(make_trainer(tmp_path, make_model(), trimsft.TrimCallback(objective, skip_below=0)))
    patched = trimsft.patch(make_model(), objective, skip_below=0)
    assert by_callback == losses(make_trainer(tmp_path, patched, trimsft.AdvanceObjective()))
    assert by_callback != losses(make_trainer(tmp_path, make_model(), trimsft.TrimCallback(trimsft.SFT())))


def test_an_objective_may_be_given_by_its_name(tmp_path) -> None:
    ids = torch.arange(8)[None]
    named, made = (trimsft.patch(make_model(), which)(input_ids=ids, labels=ids) for which in ("dft", trimsft.DFT()))
    assert torch.equal(named.weights, made.weights) and not torch.equal(named.weights, torch.ones_like(named.weights))
    by_name = losses(make_trainer(tmp_path, make_model(), trimsft.TrimCallback("trim-h", skip_below=0)))
    callback = trimsft.TrimCallback(trimsft.TrimSFTHard(), skip_below=0)
    assert by_name == losses(make_trainer(tmp_path, make_model(), callback))


def test_it_leads_an_objective_that_adapts_and_gives_the_model_back(tmp_path, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(trimsft.AutoTrim, "advance", lambda self, progress, _: seen.append(progress) or self)
    model = make_model()
    losses(make_trainer(tmp_path, model, trimsft.TrimCallback(trimsft.AutoTrim())))
    assert seen == [1 / 3, 2 / 3]  # at the beginning of the next update
    ids = torch.arange(8)[None]
    assert model(input_ids=ids, labels=ids).logits is not None  # no longer patched


# its gate moves in the first updates of a model that knows nothing
ADAPTING = trimsft.AutoTrim(closed_below=0.1, open_above=9.0, smoothing=0.5)


@pytest.mark.parametrize(
    "saves",
    [
        {"save_strategy": "steps", "save_steps": 2},
        {"save_strategy": "epoch"},
        {"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss"},
    ],
    ids=["steps", "epoch", "best"],
)
@pytest.mark.parametrize("make", [trimsft.TrimCallback, None], ids=["TrimCallback", "AdvanceObjective"])
def test_a_resumed_training_goes_on_with_what_the_objective_has_seen(tmp_path, saves, make) -> None:
    def start() -> tuple[Trainer, list[dict]]:
        states: list[dict] = []

        class Watched(trimsft.TrimCallback if make else trimsft.AdvanceObjective):
            def on_step_end(self, args, state, control, model=None, **kwargs):
                super().on_step_end(args, state, control, model)
                states.append(model.trimsft_head.objective.state_dict())

        model = make_model() if make else trimsft.patch(make_model(), ADAPTING)
        callback = Watched(ADAPTING) if make else Watched()
        return make_trainer(tmp_path, model, callback, max_steps=6, **saves), states

    whole, seen = start()
    at_once = losses(whole)
    resumed, seen_after = start()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert [one["loss"] for one in resumed.state.log_history if "loss" in one] == at_once
    assert seen_after == seen[2:]
    assert seen[1]["lowest"] != seen[-1]["lowest"]


def test_a_checkpoint_without_what_the_objective_has_seen_is_told(tmp_path, caplog) -> None:
    make_trainer(
        tmp_path, make_model(), trimsft.TrimCallback(trimsft.SFT()), save_strategy="steps", save_steps=2
    ).train()
    resumed = make_trainer(tmp_path, make_model(), trimsft.TrimCallback(trimsft.AutoTrim()))
    with caplog.at_level(logging.WARNING, "trimsft"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert "does not say what the objective has seen: it begins anew" in caplog.text
