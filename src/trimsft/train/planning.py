"""`trimsft train --dry-run --gpus 2xA6000`: the arithmetic of `trimsft.plan` on the settings of a training.

plan_run(settings, "2xA6000").gib
"""

import os
from dataclasses import dataclass

import pyarrow.compute as pc
import torch
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
from trimsft.train.preview import prepare
from trimsft.train.settings import Settings, load_tokenizer


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a training takes on GPUs that need not be here."""

    gpus: str
    parameters: int
    trained: int
    gib: float  # of each GPU, at the peak of a step
    tokens: float  # of the whole training, prompts included, padding not
    hours: float
    downloads: list[str]

    def lines(self) -> list[str]:
        part = "" if self.trained == self.parameters else f", {self.trained / 1e6:,.1f} M of them trained"
        return [
            f"{self.parameters / 1e6:,.0f} M parameters{part}, {self.tokens / 1e6:,.2f} M tokens",
            f"on {self.gpus}: about {self.gib:,.3g} GiB of each, {self.hours:,.2g} h at {UTILISATION:.0%} of the peak",
            *self.downloads,
        ]


def plan_run(settings: Settings, gpus: str) -> RunPlan:
    """Prepare the data as the training would, and refuse what cannot fit; nothing is written, no weights are loaded."""
    count, device = read_gpus(gpus)
    args = settings.args
    prepared = prepare(settings, load_tokenizer(settings), max_length=args.max_length)
    lengths = pc.list_value_length(prepared.with_format("arrow")["labels"]).to_pylist()
    plan = as_plan(settings, args.max_length if args.packing else max(lengths), count)
    require_room(plan, device)
    step = args.global_batch or plan.rows * args.gradient_accumulation_steps * count
    epochs = args.max_steps * step / len(lengths) if args.max_steps > 0 else args.num_train_epochs
    tokens = sum(lengths) * epochs
    return RunPlan(
        gpus=gpus,
        parameters=plan.shape.parameters,
        trained=plan.shape.trained,
        gib=peak_gib(plan, device),
        tokens=tokens,
        hours=training_hours(plan, device, tokens) / count,
        downloads=[describe_download(str(settings.model.model_name_or_path))],
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
