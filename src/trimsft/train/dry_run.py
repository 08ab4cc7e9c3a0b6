"""`trimsft train --dry-run`: one measured step on the longest rows, on this device.
With `--gpus 2xA6000`: the arithmetic of `trimsft.plan` for GPUs that need not be here.
"""

import copy
import os
import platform
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from trl import get_peft_config

from trimsft import plan
from trimsft.errors import UsageError
from trimsft.runs import RunDirectory
from trimsft.train.config import Settings, has_flash_attention, load_data, load_tokenizer
from trimsft.train.run import make_trainer


class _Clock(TrainerCallback):  # type: ignore[misc]
    """Times the last step: the first one also makes state and compiles."""

    before = seconds = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds, self.before = now - self.before, now


def measure_step(settings: Settings) -> dict[str, Any]:
    """Train two steps on the longest rows; refuse what the training would refuse."""
    args, clock, model = copy.copy(settings.args), _Clock(), settings.model
    cuda = torch.cuda.is_available() and not args.use_cpu
    if "flash" in str(model.attn_implementation) and not (cuda and has_flash_attention()):
        model = replace(model, attn_implementation="sdpa")  # a laptop may try a recipe for a GPU
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
    return {
        "device": torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU",
        "attention": trainer.model.config._attn_implementation,
        "steps": int(steps),
        "rows": len(longest),
        "longest": max(lengths.to_pylist()),  # in tokens
        "seconds": clock.seconds,  # of one step
        "hours": int(steps) * clock.seconds / 3600,  # at most
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,  # of this process
    }


def plan_run(settings: Settings, gpus: str) -> dict[str, Any]:
    """Prepare the data as the training would, and refuse what cannot fit; no weights are loaded."""
    count, device = plan.read_gpus(gpus)
    args = settings.args
    train, _ = load_data(settings, load_tokenizer(settings))
    if "input_ids" not in train.column_names:
        raise UsageError("does not count rows with images", field="gpus", hint="measure: --dry-run alone")
    whole = pc.list_value_length(train.with_format("arrow")["input_ids"]).to_pylist()
    lengths = [min(length, args.max_length or length) for length in whole]
    training = as_plan(settings, args.max_length if args.packing else max(lengths), count)
    plan.require_room(training, device)
    step = args.global_batch or training.rows * args.gradient_accumulation_steps * count
    epochs = args.max_steps * step / len(lengths) if args.max_steps > 0 else args.num_train_epochs
    tokens = sum(lengths) * epochs  # prompts included, padding not
    return {
        "gpus": gpus,
        "parameters": training.shape.parameters,
        "trained": training.shape.trained,
        "tokens": tokens,
        "gib": plan.peak_gib(training, device),  # of each
        "hours": plan.training_hours(training, device, tokens) / count,
        "downloads": [plan.describe_download(str(settings.model.model_name_or_path))],
    }


def as_plan(settings: Settings, length: int, gpus: int) -> plan.Training:
    """Return what decides the memory of a process; FSDP as it was launched or as `fsdp` says."""
    args, model = settings.args, settings.model
    if model.load_in_4bit or model.load_in_8bit:
        raise UsageError("does not count quantised weights", field="gpus", hint="measure: --dry-run alone")
    options = {"revision": model.model_revision, "trust_remote_code": args.trust_remote_code}
    config = plan.config_of(model.model_name_or_path, **options, field="model_name_or_path")
    dtype = getattr(config, "dtype", None) if model.dtype in (None, "auto") else getattr(torch, model.dtype)
    optimizer, size = str(getattr(args.optim, "value", args.optim)), (dtype or torch.float32).itemsize
    states = 0.0 if optimizer in ("sgd", "adafactor") else 2 / size if "8bit" in optimizer else 2.0
    rows = args.per_device_train_batch_size if args.global_batch is None else max(1, args.global_batch // gpus)
    return plan.Training(
        shape=plan.shape_of(config, get_peft_config(model)),
        rows=min(rows, args.per_device_train_batch_size),
        length=length,
        gpus=gpus,
        sharded=bool(args.fsdp) or os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true",
        dtype_bytes=size,
        # without a GPU here bf16 was turned off, which says nothing about those named
        mixed=bool(args.bf16 or args.fp16 or (size == 4 and not torch.accelerator.is_available())),
        states=states,
        accumulates=args.gradient_accumulation_steps > 1,
        checkpointing=bool(args.gradient_checkpointing),
        liger=bool(args.use_liger_kernel),
        low_memory=args.low_memory,
    )
