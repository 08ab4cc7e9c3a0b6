"""Telemetry: every figure against one worked out in float64 from all tokens of the logging window."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.train.tiny import (
    EOS,
    PAIRS,
    logged,
    make_model,
    make_trainer,
    plain_loss,
    record_batches,
)
from trimsft import SFT, TokenStats, TrimSFT
from trimsft.train import TrimSFTTrainer
from trimsft.train.telemetry import QUANTILES, Band, Telemetry, gradient_norm, warnings_for

BIN = 0.05
CPU = torch.device("cpu")


def alone(sums: Tensor) -> Tensor:
    return sums


def stats(gaps: Any, nll: Any = None) -> TokenStats:
    gap = torch.tensor(gaps, dtype=torch.float32)
    nll = torch.nn.functional.softplus(-gap) if nll is None else torch.tensor(nll, dtype=torch.float32)
    return TokenStats(nll, gap, torch.zeros_like(gap), torch.zeros(len(gap), dtype=torch.long), nll / 2)


def by_hand(outputs: list[Any], band: Band, eos: int) -> dict[str, float]:
    """The figures of these micro-batches, from their tokens."""

    def all_of(values: list[Tensor]) -> Any:
        return torch.cat(values).double().numpy()

    nll, gap, entropy = (all_of([getattr(out.tokens, name) for out in outputs]) for name in ("nll", "gap", "entropy"))
    weight, labels = all_of([out.weights for out in outputs]), all_of([out.labels for out in outputs])
    mass = weight * np.sqrt((1 - np.exp(-nll)) ** 2 + np.exp(-nll - gap) ** 2)
    low, high = gap < band.margin - band.bandwidth, gap > band.margin + band.bandwidth
    return {
        "nll": nll.mean(),
        "weighted_loss": (weight * nll).mean(),
        "mean_token_accuracy": (gap > 0).mean(),
        "entropy": entropy.mean(),
        "mean_weight": weight.mean(),
        "effective_ratio": weight.sum() ** 2 / (len(weight) * (weight**2).sum()),
        "high_weight": (weight > 0.5).mean(),
        "skipped": 1 - sum(out.kept for out in outputs) / len(weight),
        "out_of_reach": (gap < band.margin - 3 * band.bandwidth).mean(),
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


# in a training ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["sft", "trim"])
def test_every_figure_of_a_training(objective: str, tmp_path: Path) -> None:
    """Two steps a log, two micro-batches a step, evaluation in between, lengths from 2 to 44."""
    options = {"eval_dataset": Dataset.from_list(PAIRS[:5])}
    settings: dict[str, Any] = {"logging_steps": 2, "max_steps": 4, "eval_strategy": "steps", "eval_steps": 1}
    if objective == "trim":
        settings |= {"margin": -3.5, "bandwidth": 1.0, "skip_below": 0.05}
    trainer = make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS, options, objective=objective, **settings)
    modes: list[bool] = []
    trainer.model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    batches = record_batches(trainer)
    trainer.train()

    band = Band(trainer.args.margin, trainer.args.bandwidth)
    train = [batch for batch, trains in zip(batches, modes, strict=True) if trains]
    evaluated = [outputs for (_, outputs), trains in zip(batches, modes, strict=True) if not trains]
    records = [record for record in trainer.state.log_history if "loss" in record]
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

    records = [record for record in trainer.state.log_history if "eval_loss" in record]
    for number, record in enumerate(records):
        expected = by_hand(evaluated[len(evaluated) // 4 * number :][: len(evaluated) // 4], band, EOS)
        expected.pop("skipped")
        assert_figures(record, expected, "eval_")
        assert not {"eval_skipped", "eval_tokens_per_second", "eval_seen_tokens"} & record.keys()


def test_steps_after_the_last_log_are_in_the_final_one(tmp_path: Path) -> None:
    trainer = make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS, max_steps=4, logging_steps=3)
    batches = record_batches(trainer)
    trainer.train()
    final = trainer.state.log_history[-1]
    assert "train_runtime" in final
    band = Band(trainer.args.margin, trainer.args.bandwidth)
    assert_figures(final, by_hand([outputs for _, outputs in batches[6:]], band, EOS))
    assert final["num_tokens"] == sum(int(batch["attention_mask"].sum()) for batch, _ in batches)


def test_it_is_measured_on_what_the_model_says(tmp_path: Path) -> None:
    """The loss of a first step from logits, to tie the figures to something that is not the fused head."""
    trainer = make_trainer(TrimSFTTrainer, make_model("gemma2"), tmp_path, PAIRS, max_steps=1)
    batches = record_batches(trainer)
    trainer.train()
    total = tokens = correct = entropy = 0.0
    plain = make_model("gemma2")
    for batch, _ in batches:
        out = plain_loss(
            plain(batch["input_ids"], attention_mask=batch["attention_mask"]).logits, batch["labels"], SFT()
        )
        total += out.tokens.nll.sum().item()
        correct += (out.tokens.gap > 0).sum().item()
        entropy += out.tokens.entropy.sum().item()
        tokens += len(out.tokens)
    record = trainer.state.log_history[0]
    expected = {"nll": total / tokens, "mean_token_accuracy": correct / tokens, "entropy": entropy / tokens}
    assert_figures(record, expected)


# the sums -----------------------------------------------------------------------------------------------------------

GAPS = st.lists(st.floats(-45, 45, width=32), min_size=1, max_size=50)


@given(GAPS, st.integers(1, 5))
def test_quantiles_are_within_a_bin(gaps: list[float], parts: int) -> None:
    telemetry = Telemetry(Band(1.5, 0.8), (EOS,))
    for part in range(parts):
        tokens = stats(gaps[part::parts])
        telemetry.add(tokens, torch.ones(len(tokens)), torch.full((len(tokens),), 7), kept=0, seen=0)
    figures = telemetry.collect(alone, CPU)
    for name, share in QUANTILES.items():
        exact = np.quantile(np.float32(gaps), share, method="inverted_cdf").clip(-40, 40)
        # a gap near the edge of a bin: its distance from -40, up to 80, is rounded to float32
        assert figures[name] == pytest.approx(exact, abs=BIN + 80 * 2**-23)
    assert "eos_weight" not in figures


@given(GAPS, st.integers(0, 50))
def test_how_the_tokens_are_cut_into_batches_does_not_matter(gaps: list[float], cut: int) -> None:
    objective = TrimSFT()
    labels = torch.arange(len(gaps)) % 3
    whole, parts = (Telemetry(Band(1.5, 0.8), (EOS, 2)) for _ in range(2))
    tokens = stats(gaps)
    whole.add(tokens, objective.weights(tokens), labels, kept=3, seen=torch.tensor(90))
    for rows in (slice(None, cut), slice(cut, None)):
        some = tokens[rows]
        parts.add(some, objective.weights(some), labels[rows], kept=1, seen=45)
    parts.add(stats([]), torch.empty(0), torch.empty(0, dtype=torch.long), kept=1, seen=0)
    assert parts.pending_tokens(CPU) == whole.pending_tokens(CPU) == 90
    expected, got = whole.collect(alone, CPU), parts.collect(alone, CPU)
    assert expected.pop("tokens_per_second") > 0 and got.pop("tokens_per_second") > 0
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert (expected["mass_low"] + expected["mass_middle"] + expected["mass_high"]) in (0, pytest.approx(1))


def test_ranks_are_summed_and_a_rank_without_tokens_takes_part() -> None:
    busy, idle = (Telemetry(Band(1.5, 0.8), ()) for _ in range(2))
    tokens = stats([-1.0, 2.0])
    busy.add(tokens, torch.tensor([0.5, 1.0]), torch.tensor([3, 4]), kept=1, seen=5)
    sums: list[Tensor] = []
    assert idle.collect(lambda own: sums.append(own.clone()) or own, CPU).get("trained_tokens") is None
    figures = busy.collect(lambda own: own + own + sums[0], CPU)
    assert figures["trained_tokens"] == 4 and figures["mean_weight"] == 0.75 and figures["seen_tokens"] == 10


def test_collecting_starts_anew() -> None:
    telemetry = Telemetry(Band(1.5, 0.8), ())
    for gap in (-3.0, 5.0):
        telemetry.add(stats([gap]), torch.ones(1), torch.tensor([3]), kept=1, seen=1)
        assert telemetry.collect(alone, CPU)["gap_p50"] == pytest.approx(gap, abs=BIN)


def test_weights_that_are_all_zero() -> None:
    telemetry = Telemetry(Band(1.5, 0.8), ())
    telemetry.add(stats([1.0, 2.0]), torch.zeros(2), torch.tensor([3, 4]), kept=0, seen=2)
    figures = telemetry.collect(alone, CPU)
    assert figures["effective_ratio"] == 0 and figures["mass_middle"] == 0 and figures["skipped"] == 1
    assert all(math.isfinite(value) for value in figures.values())


@given(st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=12), st.integers(0, 11))
def test_gradient_norm_is_within_its_bound(logits: list[float], gold: int) -> None:
    exact_logits, gold = torch.tensor([logits], dtype=torch.float64), gold % len(logits)
    # two positions, of which the first predicts the second
    out = plain_loss(exact_logits[:, None].expand(-1, 2, -1), torch.tensor([[0, gold]]), SFT())
    probs = exact_logits[0].softmax(0).numpy()
    exact = np.sum((probs - np.eye(len(logits))[gold]) ** 2)
    norm = gradient_norm(out.tokens).item() ** 2
    competitor = np.delete(probs, gold).max()
    assert norm <= exact + 1e-9
    assert exact <= norm + competitor * (1 - probs[gold] - competitor) + 1e-9


# what is said -------------------------------------------------------------------------------------------------------

FINE = {"out_of_reach": 0.4, "effective_ratio": 0.3, "gap_p50": 2.0, "eos_weight": 0.2, "eos_prob": 0.2}


@pytest.mark.parametrize(
    ("figures", "named", "says"),
    [
        ({}, None, ""),
        ({"out_of_reach": 0.51}, "out of reach", "51% of the tokens have a logit gap below .* (-0.9)"),
        ({"effective_ratio": 0.009}, "effective ratio", "the effective ratio is 0.90%"),
        ({"eos_weight": 0.009, "eos_prob": 0.9}, None, ""),
        ({"eos_weight": 0.009}, "eos", "end-of-sequence token has a mean weight of 0.0090"),
    ],
)
def test_warnings(figures: dict[str, float], named: str | None, says: str) -> None:
    said = warnings_for(FINE | figures, Band(1.5, 0.8), trims_low=True, weighs=True)
    assert list(said) == ([named] if named else [])
    for part in says.split(" .* "):
        assert part in " ".join(said.values())
    uniform = warnings_for(FINE | figures, Band(1.5, 0.8), trims_low=False, weighs=False)
    assert uniform == {}


def test_no_end_of_sequence_is_no_reason_to_warn() -> None:
    figures = {name: value for name, value in FINE.items() if not name.startswith("eos")}
    assert warnings_for(figures, Band(1.5, 0.8), trims_low=True, weighs=True) == {}


@pytest.mark.parametrize(
    ("objective", "warned"), [("trim", {"out of reach", "eos"}), ("trim-h", set()), ("sft", set()), ("fsft", set())]
)
def test_a_training_says_it_once(
    objective: str, warned: set[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    band = {"margin": 3.5, "bandwidth": 0.8} if objective.startswith("trim") else {}
    trainer = make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS, objective=objective, max_steps=3, **band)
    with caplog.at_level(logging.WARNING, logger="trimsft"):
        trainer.train()
    assert len(logged(trainer, "loss")) == 3
    assert trainer._said == warned
    assert len([record for record in caplog.records if record.name == "trimsft"]) == len(warned)


# the record on disk -------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_record_holds_every_log(tmp_path: Path) -> None:
    trainer = make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS)
    trainer.train()
    record = lines(tmp_path / "telemetry.jsonl")
    assert [line["step"] for line in record] == [1, 2, 2]
    for line, log in zip(record, trainer.state.log_history, strict=True):
        assert line.pop("time").startswith("20")
        assert line == log
    again = make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS, max_steps=1)
    again.train()
    make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS, max_steps=1).train()
    assert lines(tmp_path / "telemetry.1.jsonl")[1]["nll"] == record[1]["nll"]
    assert [len(lines(tmp_path / name)) for name in ("telemetry.1.jsonl", "telemetry.2.jsonl", "telemetry.jsonl")] == [
        3,
        2,
        2,
    ]


def test_a_resumed_training_counts_on_and_cuts_what_is_done_again(tmp_path: Path) -> None:
    settings = {"max_steps": 4, "logging_steps": 2, "save_strategy": "steps", "save_steps": 3}
    whole = make_trainer(TrimSFTTrainer, make_model(), tmp_path / "whole", PAIRS, **settings)
    whole.train()

    def start(folder: Path, **changes: Any) -> Any:
        return make_trainer(TrimSFTTrainer, make_model(), folder, PAIRS, **settings | changes)

    first = start(tmp_path / "parts")
    first.train()
    record = tmp_path / "parts" / "telemetry.jsonl"
    assert [line["step"] for line in lines(record)] == [2, 4, 4]
    resumed = start(tmp_path / "parts")
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-3"))
    # the checkpoint lies between two logs: the tokens of step 3 were in none of them yet
    assert logged(resumed, "num_tokens") == logged(whole, "num_tokens")
    assert [line["step"] for line in lines(record)] == [2, 4, 4]
    assert not (tmp_path / "parts" / "telemetry.1.jsonl").exists()
    # the last log covers step 4 only, the one before it is the first training's
    assert lines(record)[1]["trained_tokens"] < lines(tmp_path / "whole" / "telemetry.jsonl")[1]["trained_tokens"]
    for name, weight in whole.model.named_parameters():
        torch.testing.assert_close(resumed.model.get_parameter(name), weight)


def test_training_twice_counts_from_nothing(tmp_path: Path) -> None:
    trainer = make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS, max_steps=1)
    trainer.train()
    first = logged(trainer, "num_tokens")
    trainer.train()
    assert logged(trainer, "num_tokens") == first
