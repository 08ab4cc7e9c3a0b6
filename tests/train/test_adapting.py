"""Objectives that adapt, in the trainer, in a loop by hand and in transformers.Trainer: one and the same training."""

import json
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

import trimsft
from tests.train.tiny import (
    EOS,
    LOSS_ERROR,
    PAIRS,
    TEXTS,
    history_of,
    make_batch,
    make_config,
    make_model,
    make_ours,
    record_batches,
)
from trimsft import AutoTrim, TrimSFTTrainer
from trimsft.errors import RunError, UsageError
from trimsft.train.callback import STATE, fixed_parts

AUTO = {"closed_below": 0.0, "open_above": 12.0}
"""Bounds between which the gate of an untrained model moves."""
STEPS = 6


def start(folder, rows: Any = PAIRS, **settings: Any) -> TrimSFTTrainer:
    settings = {"max_steps": STEPS, "learning_rate": 0.1, **settings}
    return make_ours(folder, rows, objective="auto-trim", objective_parameters=dict(AUTO), **settings)


def figures_of(trainer: Any, *names: str) -> list[list[float]]:
    records = [record for record in history_of(trainer) if "loss" in record]
    return [[record.get(name) for name in names] for record in records]


def test_a_training_is_the_loop_written_by_hand(tmp_path, capsys) -> None:
    trainer = start(tmp_path)
    batches, model = record_batches(trainer), make_model()
    trainer.train()

    trimsft.patch(model, AutoTrim(**AUTO, fixed=(EOS,)), skip_below=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    gates = []
    model.train()
    for step in range(STEPS):
        pair = [batch for batch, _ in batches[2 * step : 2 * step + 2]]
        gates.append(model.trimsft_head.objective.figures()["gate"])
        count = sum((batch["labels"][:, 1:] != -100).sum() for batch in pair)
        for batch in pair:
            model(**{**batch, "num_items_in_batch": count}).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        trimsft.advance(model, (step + 1) / STEPS)
    for name, weight in trainer.model.named_parameters():
        torch.testing.assert_close(model.get_parameter(name), weight, rtol=1e-5, atol=1e-6)
    logged = figures_of(trainer, "gate", "exponent", "missing_support")[1:]
    # a log comes after its update, with the gate that this update had
    assert [gate for gate, *_ in logged] == pytest.approx(gates[1:], rel=LOSS_ERROR)
    assert gates[0] == 1 > gates[-1] > 0  # it moved
    assert f"  gate {gates[-1]:.2f}  gap " in capsys.readouterr().out
    assert [record[1] for record in logged] == [1] * len(logged)  # the gate has not closed


def test_a_model_that_becomes_worse_is_told_of_once(tmp_path, caplog) -> None:
    """It begins as if no token had ever been wrong; an untrained model has nearly all of them wrong."""
    rows = {name: [0.0, 0.0] for name in ("smoothed", "lowest", "wrong", "least")}
    objective = AutoTrim(smoothing=0.0).load_state_dict({"progress": 0.0, "fixed": [EOS], **rows})
    trainer = make_ours(tmp_path, PAIRS, options={"objective": objective}, max_steps=4, learning_rate=1e-4)
    trainer.train()
    told = [one.getMessage() for one in caplog.records if "competitor above them" in one.getMessage()]
    assert len(told) == 1 and "at best it was 0.0%" in told[0] and "a lower learning_rate is advised" in told[0]
    assert figures_of(trainer, "gate")[-1] == [1.0]


def test_a_resumed_training_goes_on_bit_for_bit(tmp_path) -> None:
    whole, resumed = (start(tmp_path, save_strategy="steps", save_steps=3) for _ in range(2))
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert resumed.objective.state_dict() == whole.objective.state_dict()
    names = ("gate", "missing_support", "exponent", "loss")
    assert figures_of(resumed, *names)[3:] == figures_of(whole, *names)[3:]
    for name, weight in whole.model.named_parameters():
        assert torch.equal(resumed.model.get_parameter(name), weight)


def test_a_second_training_begins_anew(tmp_path) -> None:
    trainer = start(tmp_path, max_steps=2, learning_rate=0.0)
    trainer.train()
    first = trainer.objective.state_dict()
    trainer.train()
    assert trainer.objective.state_dict() == first


def test_a_checkpoint_whose_state_is_damaged_is_refused(tmp_path) -> None:
    start(tmp_path, max_steps=2, save_strategy="steps", save_steps=1).train()
    file = tmp_path / "checkpoint-1" / "trainer_state.json"
    state = json.loads(file.read_text())
    state["stateful_callbacks"][STATE] = {"smoothed": "?"}
    (folder := tmp_path / "copy").mkdir()
    for part in (tmp_path / "checkpoint-1").iterdir():
        if part.name not in (file.name, "complete.json"):
            (folder / part.name).write_bytes(part.read_bytes())
    (folder / file.name).write_text(json.dumps(state))
    with pytest.raises(RunError, match="objective cannot be read"):
        start(tmp_path / "other", max_steps=2).train(resume_from_checkpoint=str(folder))


def test_a_model_in_eval_mode_is_not_taken_for_one_that_is_trained() -> None:
    model = trimsft.patch(make_model().eval(), AutoTrim())
    ids = torch.tensor([[5, 6, 7]])
    model(input_ids=ids, labels=ids).loss.backward()
    with pytest.raises(UsageError, match=r"call model.train\(\) before the loop"):
        trimsft.advance(model, 0.5)


def test_a_patched_model_in_transformers_trainer(tmp_path) -> None:
    ours = start(tmp_path / "ours", TEXTS, max_steps=3)
    model = trimsft.patch(make_model(), AutoTrim(**AUTO, fixed=(EOS,)), skip_below=0.0)
    settings = make_config(TrainingArguments, tmp_path / "plain", max_steps=3, learning_rate=0.1)
    rows = Dataset.from_list([{name: row[name] for name in ("input_ids", "labels")} for row in ours.train_dataset])
    plain = Trainer(
        model, settings, train_dataset=rows, data_collator=ours.data_collator, callbacks=[trimsft.AdvanceObjective()]
    )
    ours.train()
    plain.train()
    assert model.trimsft_head.objective.figures() == pytest.approx(ours.objective.figures(), rel=1e-4)
    for name, weight in ours.model.named_parameters():
        torch.testing.assert_close(plain.model.get_parameter(name), weight, rtol=1e-5, atol=1e-6)


def test_ranks_that_share_a_model_count_its_tokens_once(monkeypatch) -> None:
    """Two of them, each with a half of the model (tensor parallelism): both have seen every token."""
    counts = []
    for ranks in (1, 2):
        model = trimsft.patch(make_model(), AutoTrim(**AUTO)).train()
        model._tp_size = ranks if ranks > 1 else None
        model(**make_batch()).loss.backward()
        monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
        monkeypatch.setattr("torch.distributed.all_reduce", lambda seen, ranks=ranks: seen.mul_(ranks))
        trimsft.advance(model, 0.5)
        counts.append(model.trimsft_head.objective.state_dict())
    assert counts[0] == counts[1] and 0 < counts[0]["updates"] < 1


def test_fixed_parts_are_what_nearly_every_row_has() -> None:
    rows = [{"labels": [-100, 5, 6 + place % 2, 9 if place else 8, 1]} for place in range(20)]
    assert fixed_parts(Dataset.from_list(rows)) == (1, 5, 9)
    assert fixed_parts(Dataset.from_list(rows), share=1.0) == (1, 5)
    assert fixed_parts(Dataset.from_list(rows), most=1) in ((1,), (5,))
    assert fixed_parts(Dataset.from_dict({"labels": []})) == fixed_parts(Dataset.from_dict({"text": ["a"]})) == ()


def test_a_format_that_starves_is_named_under_any_objective(tmp_path, caplog) -> None:
    """Every row has w5, which the base never writes, and the band gives it no weight."""
    rows = [{"prompt": row["prompt"], "completion": f" w5{row['completion']}"} for row in PAIRS]
    make_ours(tmp_path / "trim", rows, objective="trim", margin=5.0, bandwidth=0.5).train()
    assert "neither known nor learned, with a mean weight below 0.01: 'w5'" in caplog.text
    caplog.clear()
    start(tmp_path / "auto", rows, max_steps=2).train()
    assert "neither known nor learned" not in caplog.text
