"""TrimSFTConfig: the settings of SFTConfig, and an objective whose settings must mean something."""

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest
from trl import SFTConfig, TrlParser

from trimsft import DFT, FSFT, SFT, TrimSFT, TrimSFTEasy, TrimSFTHard
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
def test_the_objective_it_describes(settings: dict[str, Any], objective: Any) -> None:
    assert config(**settings).make_objective() == objective


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"objective": "dft", "margin": 2.0}, "margin: 2.0 has no effect with objective='dft'; remove it"),
        ({"objective": "sft", "bandwidth": 1.0}, "bandwidth: 1.0 has no effect with objective='sft'"),
        ({"objective": "trim", "gamma": 3.0}, "gamma: 3.0 has no effect with objective='trim'"),
        ({"objective": "fsft", "margin": 0.0}, "margin: 0.0 has no effect with objective='fsft'"),
        ({"objective": "trimm"}, "objective: unknown name 'trimm'; did you mean 'trim'"),
        ({"objective": "xyz"}, "objective: unknown name 'xyz'; known: sft, fsft, dft, trim, trim-e, trim-h"),
        ({"bandwidth": 0.0}, "bandwidth must be a finite number > 0, got 0.0"),
        ({"margin": float("nan")}, "margin must be a finite number, got nan"),
        ({"loss_type": "dft"}, "loss_type: 'dft' would be ignored here.*objective='dft'"),
        ({"loss_type": "other"}, "loss_type: 'other' .* leave it at 'nll'"),
        ({"skip_below": -1.0}, "skip_below: must be a number >= 0, got -1.0"),
        ({"head_backend": "cuda"}, "head_backend: unknown name 'cuda'; known: auto"),
        ({"low_memory": True, "head_backend": "chunked"}, "low_memory: has no effect with head_backend='chunked'"),
        ({"global_batch": 0}, "global_batch: 0 cannot be shared by 1 process"),
        (
            {"global_batch": 24, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
            "gradient_accumulation_steps: 4 has no place beside global_batch=24, which makes it 6",
        ),
    ],
)
def test_refusals(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        config(**settings)


@pytest.mark.parametrize(
    ("rows", "limit", "size", "steps"), [(24, 4, 4, 6), (10, 4, 2, 5), (3, 8, 3, 1), (7, 4, 1, 7), (8, 8, 8, 1)]
)
def test_a_global_batch_is_cut_into_equal_micro_batches(rows: int, limit: int, size: int, steps: int) -> None:
    shared = config(global_batch=rows, per_device_train_batch_size=limit)
    assert (shared.per_device_train_batch_size, shared.gradient_accumulation_steps) == (size, steps)
    again = dataclasses.replace(shared, learning_rate=0.5)
    assert (again.per_device_train_batch_size, again.gradient_accumulation_steps) == (size, steps)


def test_everything_of_sftconfig_has_the_same_default() -> None:
    ours, theirs = config().to_dict(), SFTConfig("out", use_cpu=True, bf16=False, report_to=[]).to_dict()
    different = {name for name in theirs if ours[name] != theirs[name]}
    assert different <= {"logging_dir"}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies(duplicate: Any) -> None:
    original = config(objective="trim-e", margin=0.25, skip_below=0.0)
    twin = duplicate(original)
    assert twin.to_dict() == original.to_dict()
    assert twin.make_objective() == TrimSFTEasy(margin=0.25)


def test_every_setting_is_explained() -> None:
    for name, field in TrimSFTConfig.__dataclass_fields__.items():
        if name not in SFTConfig.__dataclass_fields__:
            assert len(field.metadata["help"]) > 20, name


def test_from_yaml_with_overrides(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("objective: trim-h\nmargin: 0.5\nlearning_rate: 5.0e-5\nuse_cpu: true\nbf16: false\n")
    [parsed] = TrlParser(TrimSFTConfig).parse_args_and_config(
        ["--config", str(file), "--output_dir", str(tmp_path), "--margin", "-1.0", "--skip_below", "0"]
    )
    assert parsed.make_objective() == TrimSFTHard(margin=-1.0)
    assert (parsed.learning_rate, parsed.skip_below) == (5e-5, 0.0)
