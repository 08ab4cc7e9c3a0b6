"""`trimsft train --dry-run`: one measured step on the longest rows, on the device that is here; nothing is left behind.
With `--gpus 2xA6000`: the arithmetic of `trimsft.plan` on the settings, for GPUs that need not be here.

measure_step(settings).figures["seconds"]
plan_run(settings, "2xA6000").figures["gib"]
"""

import copy
import os
import platform
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from trl import get_peft_config

from trimsft.errors import UsageError
from trimsft.plan import (
    UTILISATION,
    Training,
    config_of,
    describe_download,
    peak_gib,
    read_gpus,
    require_room,
    shape_of,
    training_hours,
)
from trimsft.runs import RunDirectory
from trimsft.train.config import Settings, has_flash_attention, load_data, load_tokenizer
from trimsft.train.run import make_trainer


@dataclass(frozen=True)
class DryRun:
    """Result of a dry run: figures for a program, and lines for a person."""

    figures: dict[str, Any]
    lines: list[str]


class _Clock(TrainerCallback):  # type: ignore[misc]
    """Times the last step: the first one also makes the optimizer's state and whatever is compiled."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began = self._now()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds = self._now() - self.began

    def _now(self) -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()


def measure_step(settings: Settings) -> DryRun:
    """Train two steps on the longest rows in a folder that is removed; refuse what the training would refuse."""
    args, clock, model = copy.copy(settings.args), _Clock(), settings.model
    cuda = torch.cuda.is_available() and not args.use_cpu
    asked = str(model.attn_implementation)
    without = "flash" in asked and not (cuda and has_flash_attention())
    if without:  # a laptop is to try a recipe that is meant for a GPU
        model = replace(model, attn_implementation="sdpa")
    args.save_strategy, args.eval_strategy, args.logging_strategy = SaveStrategy.NO, *[IntervalStrategy.NO] * 2
    args.report_to, args.eval_on_start, args.push_to_hub, args.load_best_model_at_end = [], False, False, False
    args.logging_first_step, args.resume_from_checkpoint = False, None
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(replace(settings, args=args, model=model), RunDirectory(Path(folder) / "run"))
        *_, steps = trainer.set_initial_training_values(args, trainer.get_train_dataloader())
        rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        lengths = pc.list_value_length(trainer.train_dataset.with_format("arrow")["labels"])
        longest = pc.sort_indices(lengths, sort_keys=[("", "descending")]).to_pylist()[:rows]
        trainer.train_dataset = trainer.train_dataset.select(longest * 2)
        args.max_steps = 2
        trainer.add_callback(clock)
        trainer.train()
    device = torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    tokens, seconds = max(lengths.to_pylist()), clock.seconds
    gib = torch.cuda.max_memory_allocated() / 2**30 if cuda else None  # of this process
    memory = "" if gib is None else f", at most {gib:,.1f} GiB in use"
    return DryRun(
        {"device": device, "steps": int(steps), "rows": len(longest), "longest": tokens, "seconds": seconds}
        | {"peak_gib": gib},
        [
            f"one step measured on {device}: its longest {len(longest):,} rows, up to {tokens:,} tokens",
            f"{seconds:,.3g} s{memory}",
            f"{steps:,} steps take at most {steps * seconds / 3600:,.2g} h like that",
            *([f"measured with sdpa in place of {asked}"] if without else []),
        ],
    )


def plan_run(settings: Settings, gpus: str) -> DryRun:
    """Prepare the data as the training would, and refuse what cannot fit; nothing is written, no weights are loaded."""
    count, device = read_gpus(gpus)
    args = settings.args
    train, _ = load_data(settings, load_tokenizer(settings))
    if "input_ids" not in train.column_names:
        raise UsageError("does not count rows with images", field="gpus", hint="measure: --dry-run alone")
    whole = pc.list_value_length(train.with_format("arrow")["input_ids"]).to_pylist()
    lengths = [min(length, args.max_length or length) for length in whole]
    plan = as_plan(settings, args.max_length if args.packing else max(lengths), count)
    require_room(plan, device)
    step = args.global_batch or plan.rows * args.gradient_accumulation_steps * count
    epochs = args.max_steps * step / len(lengths) if args.max_steps > 0 else args.num_train_epochs
    tokens = sum(lengths) * epochs  # prompts included, padding not
    gib, hours = peak_gib(plan, device), training_hours(plan, device, tokens) / count
    parameters, trained = plan.shape.parameters, plan.shape.trained
    download = describe_download(str(settings.model.model_name_or_path))
    part = "" if trained == parameters else f", {trained / 1e6:,.1f} M of them trained"
    return DryRun(
        {"gpus": gpus, "parameters": parameters, "trained": trained, "gib": gib, "tokens": tokens, "hours": hours}
        | {"downloads": [download]},
        [
            f"{parameters / 1e6:,.0f} M parameters{part}, {tokens / 1e6:,.2f} M tokens",
            f"on {gpus}: about {gib:,.3g} GiB of each, {hours:,.2g} h at {UTILISATION:.0%} of the peak",
            download,
        ],
    )


def as_plan(settings: Settings, length: int, gpus: int) -> Training:
    """Return what decides the memory of a process; FSDP as it was launched or as `fsdp` says."""
    args, model = settings.args, settings.model
    if model.load_in_4bit or model.load_in_8bit:
        raise UsageError("does not count quantised weights", field="gpus", hint="measure: --dry-run alone")
    options = {"revision": model.model_revision, "trust_remote_code": args.trust_remote_code}
    config = config_of(model.model_name_or_path, **options, field="model_name_or_path")
    dtype = getattr(config, "dtype", None) if model.dtype in (None, "auto") else getattr(torch, model.dtype)
    optimizer, size = str(getattr(args.optim, "value", args.optim)), (dtype or torch.float32).itemsize
    states = 0.0 if optimizer in ("sgd", "adafactor") else 2 / size if "8bit" in optimizer else 2.0
    rows = args.per_device_train_batch_size if args.global_batch is None else max(1, args.global_batch // gpus)
    return Training(
        shape=shape_of(config, get_peft_config(model)),
        rows=min(rows, args.per_device_train_batch_size),
        length=length,
        gpus=gpus,
        sharded=bool(args.fsdp) or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true",
        dtype_bytes=size,
        # on a machine without a GPU bf16 was turned off, which says nothing about the GPUs that are named
        mixed=bool(args.bf16 or args.fp16 or (size == 4 and not torch.accelerator.is_available())),
        states=states,
        accumulates=args.gradient_accumulation_steps > 1,
        checkpointing=bool(args.gradient_checkpointing),
        liger=bool(args.use_liger_kernel),
        low_memory=args.low_memory,
    )
