"""`TrimSFTConfig`, TRL's `SFTConfig` with the objective beside it, and all settings of a training.

parse(["--config", "recipes/qwen2.5-math-1.5b.yaml", "--objective", "dft"])
make_settings({"config": "recipes/qwen2.5-math-1.5b.yaml", "objective": "dft"})     # the same
"""

import argparse
import copy
import dataclasses
import difflib
import errno
import importlib.util
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from transformers.utils import is_kernels_available
from trl import ModelConfig, SFTConfig, TrlParser

from trimsft.data.encode import load_tokenizer as load_plain_tokenizer
from trimsft.data.encode import load_training_data
from trimsft.data.load import DataConfig
from trimsft.errors import TrimSFTError, UsageError, one_line
from trimsft.objectives import OBJECTIVES, PARAMETERS, Objective, make_objective, needs_of
from trimsft.runs import find_weights
from trimsft.runs.files import find_recipe
from trimsft.runs.parsing import parse_yaml
from trimsft.runs.secrets import is_secret, without_secrets

ALSO = {"model": "model_name_or_path", "data": "dataset_name", "out": "output_dir"}
"""Names of these fields in other commands, taken beside TRL's everywhere."""
logger = logging.getLogger("trimsft")


def _setting(default: Any, text: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, **more})


@dataclass
class TrimSFTConfig(SFTConfig):  # type: ignore[misc]
    """Everything `SFTConfig` takes, and what each token is worth.

    `objective="sft"` trains as `SFTTrainer` does.
    """

    _VALID_DICT_FIELDS = [*SFTConfig._VALID_DICT_FIELDS, "objective_parameters"]  # noqa: RUF012

    # not as `choices`: make_objective names the nearest too
    objective: str = _setting(
        "trim", f"What each token is worth: {', '.join(OBJECTIVES)}, or one of your own as my_module:MyObjective."
    )
    margin: float = _setting(
        PARAMETERS["margin"], "trim, trim-e, trim-h: the logit gap whose tokens count in full (m of the paper)."
    )
    bandwidth: float = _setting(
        PARAMETERS["bandwidth"], "trim, trim-e, trim-h: how fast weights fall off around the margin (tau)."
    )
    gamma: float = _setting(PARAMETERS["gamma"], "fsft: the focusing exponent.")
    objective_parameters: dict[str, Any] | str | None = _setting(  # noqa: RUF009
        None, 'Parameters of any objective by name, as JSON or YAML: {"alpha": 2} for p-alpha.'
    )
    global_batch: int | None = _setting(
        None,
        "Sequences of one update, over all processes: sets gradient_accumulation_steps, and "
        "per_device_train_batch_size to the largest that divides it, at most the one given.",
    )
    skip_below: float | None = _setting(
        None,
        "Tokens whose gradient scale w*(1-p) is below this are left out of the head's backward pass, as long as they "
        "do not matter together; 0 is exact. By default 1e-8 for trim, and 0 for others.",
    )
    low_memory: bool | None = _setting(
        None,
        "On CUDA: true computes logits of kept tokens twice instead of keeping their gradients, false keeps them all. "
        "By default as many are kept as have room: see docs/guides/fits_my_gpu.md.",
    )
    logging_first_step: bool = _setting(True, "Log the first step, too.")

    def __post_init__(self) -> None:
        if not isinstance(self.objective, str):
            hint = "TrimSFTTrainer(..., objective=...) takes a function or an object"
            raise UsageError("must be a name", field="objective", value=self.objective, hint=hint)
        # transformers takes 0 steps for none given, and calls a model of 0 epochs trained
        for name in ("max_steps", "num_train_epochs", "max_length", "global_batch"):
            if getattr(self, name) == 0:
                raise UsageError("must not be 0", field=name)
        if self.skip_below is not None and not self.skip_below >= 0:
            raise UsageError("must be at least 0", field="skip_below", value=self.skip_below)
        if not torch.accelerator.is_available():
            self.use_cpu = True  # or each process of a launcher would be a training of its own
        if not has_half_precision():
            self.dataloader_pin_memory = False  # there is nothing to pin it for
            if self.bf16 is None:  # type: ignore[has-type]
                self.bf16 = False  # TRL turns it on; on a CPU it is refused, or slow
        if self.bf16 is False and not self.fp16 and os.environ.get("ACCELERATE_MIXED_PRECISION") == "bf16":
            # of a file of accelerate; transformers lets bf16=True alone go before it
            os.environ["ACCELERATE_MIXED_PRECISION"] = "no"
        # a loss of weights is 0 where no token has any
        by_metric = self.load_best_model_at_end or self.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
        if by_metric and self.metric_for_best_model is None and self.objective != "sft":  # type: ignore[has-type]
            self.metric_for_best_model = "eval_nll"
        if self.greater_is_better is None and str(self.metric_for_best_model).endswith("nll"):  # type: ignore[has-type]
            self.greater_is_better = False
        super().__post_init__()
        if self.loss_type != "nll":
            instead = f"={self.loss_type!r}" if self.loss_type in OBJECTIVES else ""
            hint = f"leave it at 'nll' and set objective{instead}"
            raise UsageError("would be ignored here", field="loss_type", value=self.loss_type, hint=hint)
        self.make_objective()
        if self.global_batch is not None:
            self._share_batch(self.global_batch)

    def _share_batch(self, rows: int) -> None:
        """Give every process the same number of whole micro-batches."""
        each, left = divmod(rows, self.world_size)
        if left:
            hint = f"make it a multiple of {self.world_size}"
            problem = f"cannot be shared by {self.world_size} processes"
            raise UsageError(problem, field="global_batch", value=rows, hint=hint)
        chosen: int = self.gradient_accumulation_steps  # type: ignore[has-type]
        limit: int = min(self.per_device_train_batch_size, each)  # type: ignore[has-type]
        size = max(size for size in range(1, limit + 1) if each % size == 0)
        if chosen not in (1, each // size):
            problem = f"has no place beside global_batch={rows}, which makes it {each // size}"
            raise UsageError(problem, field="gradient_accumulation_steps", value=chosen, hint="remove one of them")
        self.per_device_train_batch_size = size
        self.gradient_accumulation_steps = each // size

    def make_objective(self) -> Objective:
        """Return the objective of these settings."""
        given = {name: getattr(self, name) for name, default in PARAMETERS.items() if getattr(self, name) != default}
        more: Any = self.objective_parameters or {}
        return make_objective(self.objective, **given, **more)


def has_half_precision() -> bool:
    """Return whether this machine has a device that computes in bfloat16."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is not None and accelerator.type != "mps"


def has_flash_attention() -> bool:
    """Return whether transformers would find FlashAttention-2, or load its kernel from the hub."""
    return importlib.util.find_spec("flash_attn") is not None or bool(is_kernels_available())


# ---- all settings of a training

KINDS = (DataConfig, TrimSFTConfig, ModelConfig)


@dataclass(frozen=True)
class Settings:
    """Everything one training needs to know."""

    data: DataConfig
    args: TrimSFTConfig
    model: ModelConfig
    overrides: dict[str, Any]
    """The values that differ from the defaults, by field: what is needed to do it again."""

    @property
    def run_path(self) -> Path:
        """The run directory: `output_dir`, or a name made of model and objective."""
        if self.args.output_dir and self.args.output_dir != "trainer_output":
            return Path(self.args.output_dir)
        objective = self.args.objective.replace(":", "+")
        return Path("runs") / f"{Path(self.model.model_name_or_path).name.lower()}-{objective}"


class Parser(TrlParser):  # type: ignore[misc]
    """TRL's parser with the names of the other commands, and errors of one line."""

    def __init__(self) -> None:
        super().__init__(KINDS, prog="trimsft train", allow_abbrev=False)
        self.add_argument("--config", help="A YAML file of fields, or a recipe by name.")
        for short, name in ALSO.items():
            action = self._option_string_actions[f"--{name}"]
            action.option_strings.append(f"--{short}")
            self._option_string_actions[f"--{short}"] = action

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def check_names(self, names: Iterable[str], *, where: str = "") -> None:
        """Refuse fields that do not exist, and name the nearest one."""
        known = [option.removeprefix("--") for option in self._option_string_actions]
        for name in map(str, names):
            bare = name.removeprefix("--")
            if bare not in known:
                near = difflib.get_close_matches(bare, known, n=1)
                dashes = name[: len(name) - len(bare)]
                hint = f"did you mean {dashes}{near[0]}?" if near else "trimsft train --help-all lists every field"
                raise UsageError(f"no such field{where}", field=name, hint=hint)


def parse(words: Sequence[str]) -> Settings:
    """Read a command line; raises `UsageError`."""
    parser = Parser()
    parser._option_string_actions["--dataset_name"].nargs = "+"  # --data a.jsonl:0.7 b.jsonl:0.3
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # what is not given is not read
    read, rest = parser.parse_known_args(words)
    parser.check_names([word.partition("=")[0] for word in rest if word.startswith("--")])
    if rest:
        raise UsageError(f"{' '.join(rest)!r} belongs to no field", hint="--model, --data or --config go before a name")
    fields = vars(read)
    if "dataset_name" in fields:
        fields["dataset_name"] = ",".join(fields["dataset_name"])
    return make_settings(fields)


def make_settings(fields: Mapping[str, Any]) -> Settings:
    """Make settings of fields by name; `config` names a recipe beneath them."""
    parser = Parser()
    own = _with_trl_names({name: os.fspath(one) if isinstance(one, Path) else one for name, one in fields.items()})
    parser.check_names(own)
    recipe = _read_recipe(parser, str(own.pop("config"))) if "config" in own else {}
    defaults = dict(vars(parser.parse_args([])))
    with refusing():
        parser.set_defaults_with_config(**recipe | own)
        raw = dict(vars(parser.parse_args([])))
    for name in ALSO.values():  # YAML and Python may hold anything
        if not isinstance(raw[name], str | None):
            raise UsageError("must be text", field=name, value=raw[name])
    raw["dataset_name"] = raw["dataset_name"] or ""
    if "bf16" not in own and not has_half_precision():
        if raw["bf16"]:
            logger.warning("bf16: true of the recipe needs a GPU; training in float32 here")
        raw["bf16"] = False  # noted, so that the run does not continue in another
    # secrets and the place of the run are left out of what is noted
    overrides = {
        name: without_secrets(copy.deepcopy(value))  # transformers changes some values in place
        for name, value in raw.items()
        if name not in ("output_dir", "config") and value != defaults[name] and not is_secret(name)
    }
    with refusing():
        made: list[Any] = [
            kind(**{field.name: raw[field.name] for field in dataclasses.fields(kind) if field.init}) for kind in KINDS
        ]
    data, args, model = made
    if not model.model_name_or_path:
        raise UsageError("is missing", field="model_name_or_path", hint="name a model of the hub or a local folder")
    model.model_name_or_path = find_weights(model.model_name_or_path)
    return Settings(data, args, model, overrides)


def _read_recipe(parser: Parser, name: str) -> dict[str, Any]:
    """Return the fields of a file or shipped recipe; its `env` goes to the environment."""
    path = find_recipe(name, field="config")
    try:
        fields = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{name!r} is not YAML: {one_line(error)}", field="config") from error
    environment = fields.pop("env", {}) if isinstance(fields, dict) else None
    if not isinstance(environment, dict):
        problem = f"{name!r} must hold fields and values, such as objective: trim, and its env names and values"
        raise UsageError(problem, field="config")
    fields = _with_trl_names(fields)
    parser.check_names(fields, where=f" in {name}")
    os.environ.update({str(key): str(value) for key, value in environment.items()})
    return fields


def _with_trl_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    for short, name in ALSO.items():
        if short in fields and name in fields:
            raise UsageError(f"is the same as {name}, which is given, too", field=short, hint="remove one of them")
    return {ALSO.get(name, name): value for name, value in fields.items()}


def load_tokenizer(settings: Settings) -> Any:
    """Return the tokenizer of the model, as TRL's trainer would make it."""
    args, model = settings.args, settings.model
    own = {"revision": model.model_revision, "trust_remote_code": args.trust_remote_code}
    tokenizer = load_plain_tokenizer(model.model_name_or_path, **own, field="model_name_or_path")
    if args.eos_token is not None:
        if args.eos_token not in tokenizer.get_vocab():
            raise UsageError("is not in the tokenizer's vocabulary", field="eos_token", value=args.eos_token)
        tokenizer.eos_token = args.eos_token
    if args.chat_template_path is not None:
        with refusing():
            tokenizer.chat_template = Path(args.chat_template_path).read_text(encoding="utf-8")
    return tokenizer


def load_data(settings: Settings, tokenizer: Any) -> tuple[Any, Any]:
    """Return the rows to train on, and those to evaluate on if that is asked for."""
    args = settings.args
    masks = {"assistant_only_loss": args.assistant_only_loss, "completion_only_loss": args.completion_only_loss}
    evaluates = args.eval_strategy != "no" or args.eval_on_start
    with_roles = "role" in needs_of(args.make_objective())
    train, test = load_training_data(settings.data, tokenizer, with_eval=evaluates, with_roles=with_roles, **masks)
    if "labels" in train.column_names:  # which say what is trained; TRL would look for messages
        args.assistant_only_loss = False
    return train, test


@contextmanager
def refusing(*, is_over: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Within, until `is_over`, what other packages raise becomes a `UsageError`."""
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, RuntimeError, ZeroDivisionError) as error:
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if isinstance(error, torch.OutOfMemoryError | TrimSFTError) or is_full or is_over():
            raise
        raise UsageError(one_line(error)) from error
