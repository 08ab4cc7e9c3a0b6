"""The plan for named GPUs, beside what was measured on one H200 (docs/performance.md)."""

import pytest
from peft import LoraConfig
from transformers import Gemma2Config, MixtralConfig

from trimsft.errors import UsageError
from trimsft.plan import GPUS, Training, config_of, peak_gib, require_room, shape_of, training_hours

QWEN = shape_of(config_of("Qwen/Qwen2.5-Math-1.5B"))
H200 = GPUS["H200"]


def step(**fields) -> Training:
    """A step as train_step_h200.json has it: rows of 2048, weights in bfloat16, nothing recomputed."""
    usual = {"shape": QWEN, "rows": 4, "length": 2048, "dtype_bytes": 2, "checkpointing": False}
    return Training(**usual | fields)


@pytest.mark.parametrize(
    ("fields", "measured"),
    [
        ({"rows": 1}, 15.41), ({"rows": 4}, 33.70), ({"rows": 16}, 107.39),  # SFT, exact
        ({"rows": 1, "liger": True}, 13.64), ({"rows": 24, "liger": True}, 117.52),
        ({"rows": 8, "liger": True}, 46.16),  # packed
        ({"rows": 8, "liger": True, "checkpointing": True}, 12.95),  # TrimSFT
    ],
)  # fmt: skip
def test_peak_memory_is_within_a_fifth(fields, measured) -> None:
    assert peak_gib(step(**fields), H200) == pytest.approx(measured, rel=0.2)


def test_peak_memory_of_an_adapter_is_within_a_fifth() -> None:
    adapter = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    plan = step(shape=shape_of(config_of("Qwen/Qwen2.5-Math-1.5B"), adapter), rows=8, liger=True)
    assert 0.005 < plan.shape.trained / plan.shape.parameters < 0.02
    assert peak_gib(plan, H200) == pytest.approx(40.94, rel=0.2)


@pytest.mark.parametrize(
    ("fields", "milliseconds"), [({"rows": 4}, 170.6), ({"rows": 8, "checkpointing": True}, 366.4)]
)
def test_time_is_within_a_fifth(fields, milliseconds) -> None:
    plan = step(**fields)
    hours = training_hours(plan, H200, tokens=plan.rows * plan.length)
    assert hours * 3600e3 == pytest.approx(milliseconds, rel=0.2)


def test_several_gpus_share_with_fsdp_and_repeat_with_ddp() -> None:
    one, fsdp, ddp = (peak_gib(step(gpus=gpus, sharded=sharded, dtype_bytes=4)) for gpus, sharded in
                      ((1, False), (8, True), (8, False)))  # fmt: skip
    assert fsdp < one < ddp
    whole = peak_gib(step(rows=1, accumulates=True)) - peak_gib(step(rows=1))
    assert whole > 0.5  # gradients wait beside the activations of the next micro-batch


@pytest.mark.parametrize(
    ("fields", "way"),
    [
        ({"rows": 8}, r"with gradient_checkpointing=true it takes \d+ GiB"),
        ({"rows": 256, "checkpointing": True, "liger": True}, "with per_device_train_batch_size=1 it takes"),
        ({"gpus": 4, "dtype_bytes": 4, "checkpointing": True}, r"with FSDP \(.*\) it takes"),
        ({"dtype_bytes": 4}, "with gradient_checkpointing=true and dtype=bfloat16 and bf16=false"),
        ({"shape": shape_of(config_of("meta-llama/Llama-3.1-8B"))}, "no setting changes that"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_way_out(fields, way) -> None:
    device = GPUS["RTX3090"] if "shape" in fields or "dtype_bytes" in fields else GPUS["A6000"]
    with pytest.raises(UsageError, match=rf"gpus: a step takes \d+ GiB, and each has \d+ to spare; {way}"):
        require_room(step(**fields), device)
    require_room(step(rows=1), GPUS["H200"])


@pytest.mark.parametrize("config", [MixtralConfig(), Gemma2Config()])
def test_other_layers_than_dense_ones_are_refused(config) -> None:
    with pytest.raises(UsageError, match="that the plan does not know"):
        shape_of(config)
