"""How much memory and time a training run will take, said before it starts: an estimate, no weights loaded.

plan = plan_from(AutoConfig.from_pretrained(...), args, model_args, lengths=[412, 388, ...], trained_tokens=...)
estimate(plan, device_bytes=80 << 30, device_flops=peak_flops("NVIDIA H100 80GB HBM3")).fits     # True

Parameters are exact, counted on the meta device. What a Llama-like layer keeps equals to the byte what autograd saves
on the CPU, for Llama, Qwen2 and Qwen3 in float32, bfloat16 and under autocast. Live memory at the peak of a backward
pass came out within 6 %, the head within 6 % of docs/performance.md, whole steps of a 1.5B model in bfloat16 on one
H200 within 2 % (tests/train/test_estimate.py); FSDP2 and autocast have not been measured on a GPU. Not known here:
fragmentation, kernels' workspaces, buffers of collectives; `fits` leaves HEADROOM for those. The time rests on an
assumed utilisation and is the weaker half. Bytes are per process, hence per GPU.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import torch
from transformers import PretrainedConfig

from trimsft.errors import UsageError
from trimsft.head import IGNORED
from trimsft.models import has_soft_cap, load_config
from trimsft.train.config import TrimSFTConfig
from trimsft.train.footprint import (
    Plan,
    Shape,
    build_on_meta,
    count,
    flops_per_epoch,
    head_bytes,
    layer_bytes,
    norm_bytes,
    state_bytes,
    steps_and_epochs,
)

if TYPE_CHECKING:
    from rich.table import Table
    from trl import ModelConfig

    from trimsft.train.settings import Settings

__all__ = ["Estimate", "Plan", "describe", "dry_run", "estimate", "log_estimate", "peak_flops", "plan_from"]

logger = logging.getLogger("trimsft")

HEADROOM = 0.1  # share of the device that a run which fits leaves free
UTILISATION = 0.4
"""Assumed share of the device's peak that training reaches, counting recomputed layers as work. One H200 reached 0.41
to 0.48 from micro-batches of 8192 tokens on, and 0.17 with 2048 (results/train_step_h200.json)."""

PEAK_FLOPS = {
    "H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "B200": 2250e12, "A100": 312e12, "L40S": 362e12,
    "RTX A6000": 155e12, "RTX 4090": 165e12, "MI300X": 1307e12,
}  # fmt: skip
"""Dense bfloat16 operations a second with float32 sums, by a part of the device's name; the vendors' figures."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a plan takes. Bytes are those of one process."""

    parameters: int
    trainable: int
    weights_bytes: int  # weights, and copies of them in the dtype of the matmuls
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int  # kept from the forward pass for the backward pass
    layer_bytes: int  # one layer at work in the backward pass
    head_bytes: int  # the fused head at work, which is over before the layers' backward pass begins
    total_bytes: int
    tokens: int  # real tokens over the whole run, prompts included
    positions: int  # the same with padding
    global_batch: int  # rows that make one optimizer step
    steps: int
    flops: float
    seconds: float | None
    device_bytes: int | None
    fits: bool | None


def plan_from(
    model: PretrainedConfig,
    args: TrimSFTConfig,
    model_args: ModelConfig,
    *,
    lengths: Sequence[int],
    trained_tokens: int,
    processes: int | None = None,
    sharded: bool | None = None,
) -> Plan:
    """The plan that the settings of `trimsft train` describe; processes and sharding as launched, if not given."""
    from trl import get_peft_config

    for field in ("load_in_4bit", "load_in_8bit"):
        if getattr(model_args, field):
            hint = "remove it or train without an estimate"
            raise UsageError("there is no estimate for quantised weights", field=field, value=True, hint=hint)
    dtype = getattr(model, "dtype", None) if model_args.dtype in (None, "auto") else getattr(torch, model_args.dtype)
    launched_sharded = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true" or bool(args.fsdp)
    return Plan(
        model=model,
        args=args,
        lengths=lengths,
        trained_tokens=trained_tokens,
        dtype=dtype or torch.float32,
        attention=model_args.attn_implementation or ("eager" if has_soft_cap(model) else "sdpa"),
        processes=int(args.world_size) if processes is None else processes,
        sharded=launched_sharded if sharded is None else sharded,
        adapter=get_peft_config(model_args),
    )


def estimate(plan: Plan, *, device_bytes: int | None = None, device_flops: float | None = None) -> Estimate:
    """Memory of one process and time of the run.

    `device_flops` is the device's peak in bfloat16 (`peak_flops`): no time is claimed without it, or in float32.
    """
    shape = Shape.of(plan.model)
    model = build_on_meta(plan)
    tokens = plan.batch * plan.largest_row
    weights, gradients, optimizer = state_bytes(plan, model, shape)
    layer = layer_bytes(plan, shape) * tokens
    backward = 2 * plan.compute_bytes * shape.intermediate * tokens
    if plan.args.gradient_checkpointing:
        activations, working = shape.layers * plan.stream_bytes * shape.hidden * tokens, layer + backward
    else:
        activations, working = shape.layers * layer, backward
    if plan.args.activation_offloading:
        activations = 0  # they wait in the memory of the host
    # the last norm, its output and the gradient of that
    activations += (norm_bytes(shape.hidden, 1, plan.stream_bytes) + 2 * plan.stream_bytes * shape.hidden) * tokens
    steps, epochs = steps_and_epochs(plan)
    flops = flops_per_epoch(plan, model, shape) * epochs
    is_half = plan.compute_bytes == 2
    # in a single backward pass gradients take the place of activations; accumulated ones, and DDP's buckets, are there
    waiting = plan.args.gradient_accumulation_steps > 1 or (plan.processes > 1 and not plan.sharded)
    grown = gradients + activations if waiting else max(gradients, activations)
    head = head_bytes(plan, model, shape, held=weights + optimizer + grown, device_bytes=device_bytes or 0)
    total = weights + optimizer + grown + max(working, head)
    return Estimate(
        parameters=count(model),
        trainable=count(model, trained_only=True),
        weights_bytes=weights,
        gradient_bytes=gradients,
        optimizer_bytes=optimizer,
        activation_bytes=activations,
        layer_bytes=working,
        head_bytes=head,
        total_bytes=total,
        tokens=round(plan.tokens * epochs),
        positions=round(plan.positions * epochs),
        global_batch=plan.batch * plan.args.gradient_accumulation_steps * plan.processes,
        steps=steps,
        flops=flops,
        seconds=flops / (device_flops * UTILISATION * plan.processes) if device_flops and is_half else None,
        device_bytes=device_bytes,
        fits=None if device_bytes is None else total <= device_bytes * (1 - HEADROOM),
    )


def dry_run(settings: Settings) -> Estimate:
    """What the training would take; its data is prepared, and nothing is written."""
    from trimsft.train.preview import prepare
    from trimsft.train.settings import load_tokenizer, refusing

    prepared = prepare(settings, load_tokenizer(settings), max_length=settings.args.max_length)
    with refusing(settings.overrides):
        return estimate_run(settings, prepared)


def log_estimate(settings: Settings, dataset: Any) -> None:
    """One line before a training starts; a model that there is no estimate for gets none."""
    try:
        result = estimate_run(settings, dataset)
    except Exception as error:  # whatever it stumbles over, the training itself may be fine
        logger.info("no estimate: %s", error)
        return
    memory = f"estimate: {result.total_bytes / 2**30:.1f} GiB a process"
    if result.fits is False:
        remedies = "a smaller per_device_train_batch_size, gradient_checkpointing or more GPUs would help"
        logger.warning("%s, more than this device has; %s", memory, remedies)
    else:
        logger.info("%s, %s steps, %s tokens", memory, f"{result.steps:,}", f"{result.tokens:,}")


def estimate_run(settings: Settings, dataset: Any) -> Estimate:
    """What training on this prepared data takes, on the device of this process."""
    model = load_config(
        settings.model.model_name_or_path,
        revision=settings.model.model_revision,
        trust_remote_code=settings.args.trust_remote_code,
        field="model_name_or_path",
    )
    labels = dataset.with_format("arrow")["labels"]
    plan = plan_from(
        model,
        settings.args,
        settings.model,
        lengths=pc.list_value_length(labels).to_pylist(),
        trained_tokens=pc.sum(pc.not_equal(pc.list_flatten(labels), IGNORED)).as_py(),
    )
    if not torch.cuda.is_available():
        return estimate(plan)
    device = torch.cuda.get_device_properties(settings.args.device)
    return estimate(plan, device_bytes=device.total_memory, device_flops=peak_flops(device.name))


def peak_flops(device_name: str) -> float | None:
    """bfloat16 operations a second of a device, by the name torch gives it; None if it is not known."""
    return next((peak for part, peak in PEAK_FLOPS.items() if part in device_name), None)


def describe(result: Estimate) -> Table:
    """A table for the terminal."""
    from rich.table import Table

    table = Table("estimate, per process", "", title=None)
    frozen = "" if result.trainable == result.parameters else f", {result.trainable / 1e6:,.1f} M trained"
    table.add_row("parameters", f"{result.parameters / 1e6:,.1f} M{frozen}")
    for name, size in (
        ("weights", result.weights_bytes),
        ("gradients", result.gradient_bytes),
        ("optimizer", result.optimizer_bytes),
        ("activations kept", result.activation_bytes),
        ("then either a layer", result.layer_bytes),
        ("or the head", result.head_bytes),
    ):
        table.add_row(name, f"{size / 2**30:,.2f} GiB")
    table.add_row("peak", f"about {result.total_bytes / 2**30:,.1f} GiB")
    if result.device_bytes is not None:
        verdict = "should fit" if result.fits else "does not fit"
        room = f"{result.device_bytes / 2**30:,.0f} GiB, {HEADROOM:.0%} left free"
        table.add_row("device", f"{verdict} ({room})")
    padding = result.positions / max(1, result.tokens) - 1
    table.add_row("tokens", f"{result.tokens / 1e6:,.2f} M, and {padding:.0%} of padding")
    table.add_row("steps", f"{result.steps:,} of {result.global_batch:,} rows")
    table.add_row("operations", f"{result.flops:.2g}")
    if result.seconds is None:
        time = "not known: no peak speed for this device"
    else:
        minutes, hours = max(1, round(result.seconds / 60)), result.seconds / 3600
        time = f"{minutes} min" if hours < 1.5 else f"{hours:.1f} h"
        time += f" if {UTILISATION:.0%} of the device's peak is reached"
    table.add_row("time", time)
    return table
