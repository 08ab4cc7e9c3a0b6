"""Types and ranges of every field of a training, TRL's own among them, checked before anything is made of them.

check_fields(TrimSFTConfig, {"learning_rate": float("nan")})    # UsageError: learning_rate: must be a number, got nan
"""

import dataclasses
import functools
import typing
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from enum import Enum
from typing import Any

from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_pt_utils import AcceleratorConfig

from trimsft.errors import UsageError
from trimsft.options import Option, check_path, check_value, unknown_name
from trimsft.runs.parsing import ParseError, parse_json

LARGEST = 2**31 - 1
"""Of whole numbers without another bound."""
_count, _size = Option(least=1), Option(least=1, most=10**6)
_not_negative, _positive = Option(least=0), Option(above=0)
_share, _decay = Option(least=0, most=1), Option(least=0, below=1)
_seed, _workers = Option(least=0, most=2**32 - 1), Option(least=0, most=1024)

BOUNDS: dict[str, Option] = {
    # how long, and how large the steps are
    "num_train_epochs": _positive, "max_steps": _count, "per_device_train_batch_size": _size,
    "gradient_accumulation_steps": _size, "global_batch": _size,
    # the optimizer
    "learning_rate": _not_negative, "warmup_steps": _not_negative, "weight_decay": _not_negative,
    "adam_beta1": _decay, "adam_beta2": _decay, "adam_epsilon": _not_negative, "max_grad_norm": _not_negative,
    "label_smoothing_factor": _share, "neftune_noise_alpha": _not_negative, "router_aux_loss_coef": _not_negative,
    # the head
    "bandwidth": _positive, "gamma": _not_negative, "skip_below": _not_negative,
    # data
    "max_length": _count, "pad_to_multiple_of": replace(_size, choices=("auto", "none", "null")),
    "dataset_num_proc": replace(_workers, least=1), "dataloader_num_workers": _workers,
    "dataloader_prefetch_factor": _count, "sample": _count,
    "packing_strategy": Option(choices=("bfd", "bfd_split", "wrapped", "bfd-requeue")),
    # random numbers
    "seed": _seed, "data_seed": _seed, "sample_seed": _seed,
    # logging, saving, evaluation
    "logging_steps": _not_negative, "save_steps": _not_negative, "eval_steps": _not_negative,
    "save_total_limit": _count, "eval_delay": _not_negative, "per_device_eval_batch_size": _size,
    "eval_accumulation_steps": _count, "torch_empty_cache_steps": _count,
    "report_to": Option(choices=("all", "none", *INTEGRATION_TO_CALLBACK)),
    # several processes
    "ddp_timeout": _count, "ddp_bucket_cap_mb": _count, "local_rank": Option(least=-1),
    # adapters
    "lora_r": _count, "lora_alpha": _count, "lora_dropout": _share,
    # `TrimSFTConfig` has a better word for it
    "loss_type": Option(),
}  # fmt: skip
"""What a field allows beside its type; numbers must be finite anyway."""
ENTRIES = {
    "accelerator_config": {field.name for field in dataclasses.fields(AcceleratorConfig)},
    "gradient_checkpointing_kwargs": {
        "use_reentrant",
        "preserve_rng_state",
        "determinism_check",
        "debug",
        "early_stop",
    },
}
"""Names in dictionaries, where all that are allowed are known."""
FILES = {"accelerator_config", "fsdp_config", "deepspeed"}
"""Dictionaries that may stand in a file, named in their place."""
OPAQUE = {"optim_args", "lora_target_modules", "lora_task_type", "torch_compile_backend", "torch_compile_mode", "debug"}
"""What only the libraries can judge, beside dictionaries."""
PATHS = {
    "output_dir", "model_name_or_path", "dataset_name", "dataset_test_file", "benchmarks_dir", "chat_template_path",
    "resume_from_checkpoint", "reference",
}  # fmt: skip
"""What is, or may be, files and folders, joined by commas."""
NOT_SET = {"max_steps": -1, "debug": None}
"""What means that a field is not set, beside its type and bounds."""
EVERY = {"logging_steps": "logging_strategy", "save_steps": "save_strategy", "eval_steps": "eval_strategy"}
"""The strategy that makes use of a number of steps."""
WRITTEN = (bool, int, float, str, list, tuple, dict, date, type(None))
"""What a command line or YAML can hold; other objects are made in Python, and the libraries' own concern."""


def check_fields(kind: type, values: Mapping[str, Any]) -> None:
    """Refuse values that the fields of a dataclass, or what is made of them, cannot take."""
    hints = _hints(kind)
    for field in dataclasses.fields(kind):
        name, value, hint = field.name, values.get(field.name), hints[field.name]
        is_set = name in values and not (name in NOT_SET and value == NOT_SET[name])
        is_bare = value is field.metadata.get("const", NOT_SET)  # what an option without a value means: fsdp=True
        if is_set and not is_bare and isinstance(value, WRITTEN):
            if name == "pad_to_multiple_of" and isinstance(value, str) and value.isdecimal():
                value = int(value)
            check_value(name, value, hint, _bounds(field, hint, value))
            _check_entries(name, value, hint)
            for path in str(value).split(",") if name in PATHS and value else ():
                check_path(name, path)
    for steps, strategy in EVERY.items():
        if values.get(steps) == 0 and values.get(strategy, "no") == "steps":
            raise UsageError("must be above 0", field=steps, value=0, hint=f"or set {strategy} to 'no'")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _bounds(field: "dataclasses.Field[Any]", hint: Any, value: Any) -> Option:
    names = [member.value for one in typing.get_args(hint) if _is_enum(one) for member in one]
    choices = tuple(names or field.metadata.get("choices") or ())
    known = BOUNDS.get(field.name, Option(choices=choices))
    return replace(known, most=LARGEST) if isinstance(value, int) and known.most is None else known


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _check_entries(name: str, value: Any, hint: Any) -> None:
    """The names in a dictionary, which may be given as JSON."""
    if not _holds_entries(hint):
        return
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = parse_json(value)
        except ParseError as error:
            raise UsageError(f"is not JSON ({error})", field=name, value=value) from error
    is_text = isinstance(value, str) and name not in FILES
    if is_text or (isinstance(value, dict) and not all(isinstance(entry, str) for entry in value)):
        raise UsageError("must be names and values", field=name, value=value, hint='write them as {"name": 2}')
    if isinstance(value, dict) and name in ENTRIES:
        for entry in value:
            if entry not in ENTRIES[name]:
                raise unknown_name(name, entry, sorted(ENTRIES[name]))


def _holds_entries(hint: Any) -> bool:
    return dict in [typing.get_origin(one) or one for one in typing.get_args(hint)]


def doubtful(kinds: Iterable[type], given: Iterable[str]) -> list[str]:
    """Which of the given fields only the libraries that use them can judge."""
    hints = {name: hint for kind in kinds for name, hint in _hints(kind).items()}
    return [name for name in given if name in OPAQUE or _holds_entries(hints.get(name))]
