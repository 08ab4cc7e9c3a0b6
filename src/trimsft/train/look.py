"""Looking before training: `trimsft data preview` and `trimsft train --dry-run`."""

from __future__ import annotations

import copy
import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc
import torch
from rich.console import Console
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM
from transformers.trainer_utils import IntervalStrategy

from trimsft.errors import DataError, UsageError
from trimsft.head import IGNORED
from trimsft.text.lengths import Keep, measure_lengths
from trimsft.train.estimate import Estimate, describe, estimate, peak_flops, plan_from
from trimsft.train.inputs import failed, load_data, load_tokenizer, refusing, say_on_stderr
from trimsft.train.preview import preview, preview_as_json
from trimsft.train.settings import Settings, parse
from trimsft.train.trainer import TrimSFTTrainer

logger = logging.getLogger("trimsft")


def preview_main(arguments: Sequence[str], *, count: int, show_ids: bool, as_json: bool) -> int:
    """`trimsft data preview`: the first examples as the trainer will see them, before truncation and after."""
    say_on_stderr()
    try:
        settings = parse(arguments)
        tokenizer = load_tokenizer(settings)
        prepared = _prepared(settings, tokenizer, max_length=None)
        limit = settings.args.max_length
        keep: Keep = "start" if settings.args.truncation_mode == "keep_start" else "end"
        if as_json:
            sys.stdout.write(
                json.dumps(preview_as_json(prepared, tokenizer, count=count, max_length=limit, keep=keep)) + "\n"
            )
        else:
            console = Console(highlight=False)
            preview(
                prepared,
                tokenizer,
                count=count,
                console=console,
                max_length=limit,
                keep=keep,
                show_ids=show_ids,
            )
            console.print(f"all rows: {measure_lengths(prepared, limit, keep=keep)}", soft_wrap=True)
    except (UsageError, DataError) as error:
        return failed(error, 2)
    return 0


def dry_run(settings: Settings) -> int:
    """Print what the training would take; nothing is written."""
    prepared = _prepared(settings, load_tokenizer(settings), max_length=settings.args.max_length)
    if settings.args.process_index == 0:
        with refusing():
            Console(highlight=False).print(describe(_estimate(settings, prepared)))
    return 0


def _prepared(settings: Settings, tokenizer: Any, *, max_length: int | None) -> Any:
    """The data as the training would prepare it, by the trainer itself with a model of next to no size."""
    train, _ = load_data(settings, tokenizer)
    tiny = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
    )
    args = copy.copy(settings.args)
    args.model_init_kwargs, args.packing, args.report_to = None, False, []
    args.max_length, args.eval_strategy = max_length, IntervalStrategy.NO
    with refusing(), tempfile.TemporaryDirectory() as folder:  # Trainer makes its folder at once
        args.output_dir = folder
        return TrimSFTTrainer(
            LlamaForCausalLM(tiny), args, train_dataset=train.dataset, processing_class=tokenizer
        ).train_dataset


def say_estimate(settings: Settings, dataset: Any) -> None:
    """One line before a training starts; a model that there is no estimate for gets none."""
    try:
        result = _estimate(settings, dataset)
    except Exception as error:  # whatever it stumbles over, the training itself may be fine
        logger.info("no estimate: %s", error)
        return
    memory = f"{result.total_bytes / 2**30:.1f} GiB a process"
    if result.fits is False:
        logger.warning(
            "estimate: %s, more than this device has; a smaller per_device_train_batch_size, gradient_checkpointing "
            "or more GPUs would help",
            memory,
        )
    else:
        logger.info("estimate: %s, %s steps, %s tokens", memory, f"{result.steps:,}", f"{result.tokens:,}")


def _estimate(settings: Settings, dataset: Any) -> Estimate:
    model = AutoConfig.from_pretrained(
        settings.model.model_name_or_path,
        revision=settings.model.model_revision,
        trust_remote_code=settings.args.trust_remote_code,
    )
    labels = dataset.with_format("arrow")["labels"]
    flat = pc.list_flatten(labels)
    plan = plan_from(
        model,
        settings.args,
        settings.model,
        lengths=pc.list_value_length(labels).to_pylist(),
        trained_tokens=pc.sum(pc.not_equal(flat, IGNORED)).as_py(),
    )
    if not torch.cuda.is_available():
        return estimate(plan)
    device = torch.cuda.get_device_properties(settings.args.device)
    return estimate(plan, device_bytes=device.total_memory, device_flops=peak_flops(device.name))
