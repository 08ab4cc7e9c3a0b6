"""`TrimSFTConfig`: the settings of `TrimSFTTrainer`, TRL's `SFTConfig` with the objective beside it."""

import os
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from trl import SFTConfig

from trimsft.errors import UsageError, one_line
from trimsft.head.loss import BACKENDS
from trimsft.objectives import OBJECTIVES, PARAMETERS, Objective, make_objective, parameters_of
from trimsft.options import from_environment, unknown_name

_MIXED_PRECISION = "ACCELERATE_MIXED_PRECISION"
_LAUNCHED = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


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
    sort_micro_batches: bool = _setting(
        False,
        "Sort the rows of an update by length before they are cut into micro-batches: less padding is computed; the "
        "rows of an update, its loss and its gradients stay the same up to rounding.",
    )
    skip_below: float | None = _setting(
        None,
        "Tokens whose gradient scale w*(1-p) is below this are left out of the head's backward pass, "
        "as long as they do not matter together; 0 is exact. By default 1e-8 for trim, less than an optimizer notices, "
        "and 0 for every other objective.",
    )
    low_memory: bool | None = _setting(
        None,
        "On CUDA: true computes logits of kept tokens twice instead of keeping their gradients, false keeps them all. "
        "By default as many are kept as have room: see Memory of the head in docs/training.md.",
        nargs="?",  # without a value it means true, as with every other switch
        const=True,
    )
    head_backend: str = _setting(
        "auto", "Which implementation of the fused head; auto is right everywhere.", choices=list(BACKENDS)
    )

    def __post_init__(self) -> None:
        if not isinstance(self.objective, str):
            hint = "TrimSFTTrainer(..., objective=...) takes a function or an object"
            raise UsageError("must be a name", field="objective", value=self.objective, hint=hint)
        if self.head_backend not in BACKENDS:
            raise unknown_name("head_backend", self.head_backend, BACKENDS)
        for name, is_right, bound in (
            ("skip_below", self.skip_below is None or self.skip_below >= 0, "at least 0"),
            ("global_batch", self.global_batch is None or self.global_batch >= 1, "at least 1"),
            # transformers takes 0 steps for none given, and calls a model of 0 epochs trained
            ("max_steps", self.max_steps != 0, "at least 1"),
            ("num_train_epochs", self.num_train_epochs > 0, "above 0"),
            ("max_length", self.max_length is None or self.max_length >= 1, "at least 1"),
        ):
            if not is_right:
                raise UsageError(f"must be {bound}", field=name, value=getattr(self, name))
        self._choose_best_by_nll()
        self._choose_precision()
        self._begin_on_cpu()
        super().__post_init__()
        if self.loss_type != "nll":
            instead = f"={self.loss_type!r}" if self.loss_type in OBJECTIVES else ""
            hint = f"leave it at 'nll' and set objective{instead}"
            raise UsageError("would be ignored here", field="loss_type", value=self.loss_type, hint=hint)
        self.make_objective()
        if self.low_memory and self.head_backend not in ("auto", "triton"):
            raise _without_effect("low_memory", True, f"head_backend={self.head_backend!r}", "remove one of them")
        if self.global_batch is not None:
            self._share_batch(self.global_batch)
        if self.sort_micro_batches:
            self._require_rows_to_sort()

    def _choose_precision(self) -> None:
        """Train in float32 where there is no half precision, and let bf16=False go before what accelerate was told."""
        if not has_half_precision():
            self.dataloader_pin_memory = False  # there is nothing to pin it for
            if self.bf16 is None:  # type: ignore[has-type]
                self.bf16 = False  # TRL turns it on everywhere; on a CPU it is refused, or many times slower
        if self.bf16 is False and not self.fp16 and os.environ.get(_MIXED_PRECISION) == "bf16":
            # of a file of accelerate; transformers lets bf16=True alone go before it
            os.environ[_MIXED_PRECISION] = "no"

    def _begin_on_cpu(self) -> None:
        """Begin the process group of a launcher on a machine without a GPU, or with `use_cpu`.

        transformers would take each process for a training of its own, and leave `ddp_timeout` at half an hour.
        """
        numbers = {name: from_environment(name, default=1) for name in _LAUNCHED}  # transformers reads them, too
        if numbers["WORLD_SIZE"] < 2 or "RANK" not in os.environ:
            return
        if not torch.accelerator.is_available():
            self.use_cpu = True
        if self.use_cpu or parse_flag_from_env("ACCELERATE_USE_CPU"):
            PartialState(cpu=True, backend=self.ddp_backend, timeout=self.ddp_timeout_delta)

    def _choose_best_by_nll(self) -> None:
        """Let checkpoints, early stopping and schedules go by nll: a loss of weights is 0 where no token has any."""
        by_metric = self.load_best_model_at_end or self.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
        metric: str | None = self.metric_for_best_model  # type: ignore[has-type]
        if by_metric and metric is None and self.objective != "sft":
            metric = self.metric_for_best_model = "eval_nll"
        if self.greater_is_better is None and str(metric).endswith("nll"):  # type: ignore[has-type]
            self.greater_is_better = False

    def _share_batch(self, rows: int) -> None:
        """Give every process the same number of whole micro-batches."""
        each, left = divmod(rows, self.world_size)
        if left:
            shares = ", ".join(str(count) for count in range(1, rows + 1) if rows % count == 0)
            raise UsageError(
                f"cannot be shared by {self.world_size} processes",
                field="global_batch",
                value=rows,
                hint=f"make it a multiple of {self.world_size}, or start {shares} processes",
            )
        chosen: int = self.gradient_accumulation_steps  # type: ignore[has-type]
        limit: int = min(self.per_device_train_batch_size, each)  # type: ignore[has-type]
        size = max(size for size in range(1, limit + 1) if each % size == 0)
        if chosen not in (1, each // size):
            raise UsageError(
                f"has no place beside global_batch={rows}, which makes it {each // size}",
                field="gradient_accumulation_steps",
                value=chosen,
                hint="remove one of them",
            )
        self.per_device_train_batch_size = size
        self.gradient_accumulation_steps = each // size

    def _require_rows_to_sort(self) -> None:
        for is_so, beside in (
            (self.packing, "packing=True, where next to nothing is padded"),
            (self.padding_free, "padding_free=True, where next to nothing is padded"),
            (self.gradient_accumulation_steps == 1, "gradient_accumulation_steps=1: an update is one micro-batch"),
            (self.train_batch_size == 1, "per_device_train_batch_size=1, where a row is never padded"),
        ):
            if is_so:
                raise _without_effect("sort_micro_batches", True, beside)

    def make_objective(self) -> Objective:
        """Return the objective of these settings; a setting that it does not have must stand at its default."""
        takes = parameters_of(self.objective)
        given = {name: getattr(self, name) for name, default in PARAMETERS.items() if getattr(self, name) != default}
        for name, value in given.items():
            if name not in takes:
                raise _without_effect(name, value, f"objective={self.objective!r}")
        more = self.objective_parameters or {}
        if not isinstance(more, dict):
            hint = 'write them as {"alpha": 2}'
            raise UsageError("must be names and values", field="objective_parameters", value=more, hint=hint)
        if twice := next((name for name in more if name in given), None):
            raise UsageError(f"{twice!r} is given twice", field="objective_parameters", hint="give it once")
        try:
            return make_objective(self.objective, **given, **more)
        except (TypeError, ValueError) as error:
            if not more or (isinstance(error, UsageError) and error.field not in more):
                raise
            problem = f"are not for {self.objective!r} ({one_line(error)})"
            raise UsageError(problem, field="objective_parameters", value=more) from error


def has_half_precision() -> bool:
    """Return whether this machine has a device that computes in bfloat16."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is not None and accelerator.type != "mps"


def _without_effect(field: str, value: Any, beside: str, hint: str = "remove it") -> UsageError:
    return UsageError(f"has no effect with {beside}", field=field, value=value, hint=hint)
