"""Telemetry: every figure against one worked out in float64 from all tokens of the logging window."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import Tensor

from tests.train.tiny import EOS, PAIRS, history_of, logged, make_ours, record_batches
from trimsft.train.telemetry import QUANTILES

BIN = 0.05


def by_hand(outputs: list[Any], band: tuple[float, float], eos: int) -> dict[str, float]:
    """The figures of these micro-batches, from their tokens."""

    def all_of(values: list[Tensor]) -> Any:
        return torch.cat(values).double().numpy()

    nll, gap, entropy = (all_of([getattr(out.tokens, name) for out in outputs]) for name in ("nll", "gap", "entropy"))
    weight, labels = all_of([out.weights for out in outputs]), all_of([out.labels for out in outputs])
    mass = weight * np.sqrt((1 - np.exp(-nll)) ** 2 + np.exp(-nll - gap) ** 2)
    margin, bandwidth = band
    low, high = gap < margin - bandwidth, gap > margin + bandwidth
    return {
        "nll": nll.mean(),
        "weighted_loss": (weight * nll).mean(),
        "mean_token_accuracy": (gap > 0).mean(),
        "entropy": entropy.mean(),
        "mean_weight": weight.mean(),
        "effective_ratio": weight.sum() ** 2 / (len(weight) * (weight**2).sum()),
        "high_weight": (weight > 0.5).mean(),
        "skipped": 1 - sum(out.kept for out in outputs) / len(weight),
        "out_of_reach": (gap < margin - 3 * bandwidth).mean(),
        "trained_tokens": len(weight),
        "mass_low": mass[low].sum() / mass.sum(),
        "mass_middle": mass[~low & ~high].sum() / mass.sum(),
        "mass_high": mass[high].sum() / mass.sum(),
        "eos_weight": weight[labels == eos].mean(),
        "eos_prob": np.exp(-nll)[labels == eos].mean(),
    } | {name: np.quantile(gap, share, method="inverted_cdf") for name, share in QUANTILES.items()}


def assert_figures(record: dict[str, Any], expected: dict[str, float], prefix: str = "") -> None:
    for name, value in expected.items():
        tolerance = {"abs": BIN + 1e-9} if name in QUANTILES else {"rel": 1e-5, "abs": 1e-9}
        assert record[prefix + name] == pytest.approx(value, **tolerance), name


@pytest.mark.parametrize(("objective", "pending"), [("sft", 1 << 16), ("trim", 60)])
def test_every_figure_of_a_training(objective, pending, tmp_path, monkeypatch) -> None:
    """Two steps a log, two micro-batches a step, evaluation in between, lengths from 2 to 44."""
    monkeypatch.setattr("trimsft.train.telemetry._PENDING", pending)
    options = {"eval_dataset": Dataset.from_list(PAIRS[:5])}
    settings: dict[str, Any] = {"logging_steps": 2, "max_steps": 4, "eval_strategy": "steps", "eval_steps": 1}
    if objective == "trim":
        settings |= {"margin": -3.5, "bandwidth": 1.0, "skip_below": 0.05}
    trainer = make_ours(tmp_path, PAIRS, options, objective=objective, **settings)
    modes: list[bool] = []
    trainer.model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    batches = record_batches(trainer, evaluated=True)
    trainer.train()

    band = (trainer.args.margin, trainer.args.bandwidth)
    train = [batch for batch, trains in zip(batches, modes, strict=True) if trains]
    evaluated = [outputs for (_, outputs), trains in zip(batches, modes, strict=True) if not trains]
    records = [record for record in history_of(trainer) if "loss" in record]
    assert len(train) == 8 and len(records) == 2
    for number, record in enumerate(records):
        window = train[4 * number : 4 * number + 4]
        assert_figures(record, by_hand([outputs for _, outputs in window], band, EOS))
        assert record["loss"] != pytest.approx(record["nll"]) or objective == "sft"
        seen = sum(int(batch["attention_mask"].sum()) for batch, _ in train[: 4 * number + 4])
        assert record["num_tokens"] == seen
        assert record["tokens_per_second"] > 0
        assert record["mass_low"] + record["mass_middle"] + record["mass_high"] == pytest.approx(1)
    if objective == "sft":
        assert logged(trainer, "effective_ratio") == [1.0, 1.0] and logged(trainer, "mean_weight") == [1.0, 1.0]
    else:
        assert 0 < records[0]["skipped"] < 1

    records = [record for record in history_of(trainer) if "eval_loss" in record]
    for number, record in enumerate(records):
        expected = by_hand(evaluated[len(evaluated) // 4 * number :][: len(evaluated) // 4], band, EOS)
        expected.pop("skipped")
        assert_figures(record, expected, "eval_")
        assert not {"eval_skipped", "eval_tokens_per_second", "eval_seen_tokens"} & record.keys()


# what is said -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("objective", "warned"), [("trim", {"out of reach", "eos"}), ("sft", set())])
def test_a_training_says_it_once(objective, warned, tmp_path, caplog) -> None:
    band = {"margin": 3.5, "bandwidth": 0.8} if objective.startswith("trim") else {}
    trainer = make_ours(tmp_path, objective=objective, max_steps=3, **band)
    with caplog.at_level(logging.WARNING, logger="trimsft"):
        trainer.train()
    assert len(logged(trainer, "loss")) == 3
    assert trainer.telemetry.warned == warned
    assert len([record for record in caplog.records if record.name == "trimsft"]) == len(warned)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_resumed_training_counts_on_and_cuts_what_is_done_again(tmp_path) -> None:
    def start() -> Any:
        return make_ours(tmp_path, max_steps=4, save_strategy="steps", save_steps=3)

    whole, resumed, record = start(), start(), tmp_path / "telemetry.jsonl"
    mean = whole.train().training_loss
    before = lines(record)
    record.write_text('{"a note": "of the user"}\n' + record.read_text())
    assert resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3")).training_loss == pytest.approx(mean)
    assert logged(resumed, "num_tokens") == logged(whole, "num_tokens")
    note, *after = lines(record)
    assert "a note" in note
    assert [line["step"] for line in before] == [line["step"] for line in after] == [1, 2, 3, 4, 4]
    for name, weight in whole.model.named_parameters():
        assert torch.equal(resumed.model.get_parameter(name), weight)
