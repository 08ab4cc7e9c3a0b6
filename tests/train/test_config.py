"""TrimSFTConfig: the settings of SFTConfig, and an objective whose settings must mean something."""

import dataclasses
import os
from typing import Any

import pytest
from trl import SFTConfig

from trimsft import DFT, FSFT, SFT, TrimSFT, TrimSFTEasy, TrimSFTHard
from trimsft.errors import UsageError
from trimsft.train import TrimSFTConfig


def config(**settings: Any) -> TrimSFTConfig:
    return TrimSFTConfig("out", use_cpu=True, bf16=False, report_to=[], **settings)


@pytest.mark.parametrize(
    ("settings", "objective"),
    [
        ({}, TrimSFT(margin=1.5, bandwidth=0.8)),
        ({"objective": "trim", "margin": 0.5}, TrimSFT(margin=0.5, bandwidth=0.8)),
        ({"objective": "trim-e", "bandwidth": 2.0}, TrimSFTEasy(margin=1.5, bandwidth=2.0)),
        ({"objective": "trim-h", "margin": 3}, TrimSFTHard(margin=3, bandwidth=0.8)),
        ({"objective": "fsft", "gamma": 1.0}, FSFT(gamma=1.0)),
        ({"objective": "dft"}, DFT()),
        ({"objective": "sft"}, SFT()),
    ],
)
def test_the_objective_it_describes(settings, objective) -> None:
    assert config(**settings).make_objective() == objective


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"objective": "sft", "bandwidth": 1.0}, "^bandwidth: has no effect with objective='sft', got 1.0; remove it$"),
        ({"objective": "trim", "gamma": 3.0}, "gamma: has no effect with objective='trim', got 3.0"),
        ({"objective": "fsft", "margin": 0.0}, "margin: has no effect with objective='fsft', got 0.0"),
        ({"objective": "xyz"}, "objective: unknown name 'xyz'; known: sft, fsft, dft, trim, trim-e, trim-h, "),
        ({"margin": float("nan")}, "margin: must be a finite number, got nan"),
        ({"loss_type": "dft"}, "loss_type: would be ignored here, got 'dft'; .*objective='dft'"),
        ({"loss_type": "other"}, "loss_type: .* got 'other'; leave it at 'nll'"),
        ({"head_backend": "cuda"}, "head_backend: unknown name 'cuda'; .*known: auto"),
        (
            {"low_memory": True, "head_backend": "chunked"},
            "low_memory: has no effect with head_backend='chunked', got True",
        ),
        ({"global_batch": 0}, "global_batch: must be at least 1, got 0"),
        ({"sort_micro_batches": True}, "sort_micro_batches: has no effect with gradient_accumulation_steps=1"),
        (
            {"sort_micro_batches": True, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 2},
            "sort_micro_batches: has no effect with per_device_train_batch_size=1",
        ),
        (
            {"sort_micro_batches": True, "padding_free": True, "gradient_accumulation_steps": 2},
            "sort_micro_batches: has no effect with padding_free=True, where next to nothing is padded",
        ),
        (
            {"global_batch": 24, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
            "gradient_accumulation_steps: has no place beside global_batch=24, which makes it 6, got 4",
        ),
    ],
)
def test_refusals(settings, says) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        config(**settings)
    assert refused.value.field in settings


@pytest.mark.parametrize(
    ("rows", "limit", "size", "steps"), [(24, 4, 4, 6), (10, 4, 2, 5), (3, 8, 3, 1), (7, 4, 1, 7), (8, 8, 8, 1)]
)
def test_a_global_batch_is_cut_into_equal_micro_batches(rows, limit, size, steps) -> None:
    shared = config(global_batch=rows, per_device_train_batch_size=limit)
    assert (shared.per_device_train_batch_size, shared.gradient_accumulation_steps) == (size, steps)
    again = dataclasses.replace(shared, learning_rate=0.5)
    assert (again.per_device_train_batch_size, again.gradient_accumulation_steps) == (size, steps)


def test_everything_of_sftconfig_has_the_same_default() -> None:
    ours, theirs = config().to_dict(), SFTConfig("out", use_cpu=True, bf16=False, report_to=[]).to_dict()
    different = {name for name in theirs if ours[name] != theirs[name]}
    assert different <= {"logging_dir", "dataloader_pin_memory"}  # without a GPU there is nothing to pin memory for


def test_precision_goes_by_the_device(monkeypatch) -> None:
    for has_half in (False, True):
        monkeypatch.setattr("trimsft.train.config.has_half_precision", lambda has_half=has_half: has_half)
        chosen, asked = TrimSFTConfig("out", use_cpu=True), TrimSFTConfig("out", use_cpu=True, bf16=True)
        assert (chosen.bf16, asked.bf16) == (has_half, True)


@pytest.mark.parametrize(("told", "precision"), [("bf16", "no"), ("fp8", "fp8"), ("no", "no")])
def test_bf16_false_goes_before_a_file_of_accelerate(told, precision, monkeypatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", told)
    assert config().mixed_precision == os.environ["ACCELERATE_MIXED_PRECISION"] == precision
    assert TrimSFTConfig("out", use_cpu=True, bf16=True).mixed_precision == "bf16"
