"""`trimsft train --dry-run`: one measured step on the longest rows, on the device that is here; nothing is left behind.

measure_step(settings).seconds, measure_step(settings).peak_gib
"""

import copy
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

from trimsft.runs import RunDirectory
from trimsft.train.attention import FIELD, missing_attention
from trimsft.train.run import make_trainer
from trimsft.train.settings import Settings


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """The second of two steps, since the first one also makes the optimizer's state and whatever is compiled."""

    device: str
    steps: int  # of the whole training
    rows: int  # of a step, over all processes
    longest: int  # tokens of the longest row
    seconds: float
    peak_gib: float | None  # of this process; None without CUDA
    instead_of: str | None = None  # the attention of the training, which is not installed here

    def lines(self) -> list[str]:
        memory = "" if self.peak_gib is None else f", at most {self.peak_gib:,.1f} GiB in use"
        attention = [] if self.instead_of is None else [f"with sdpa, since {self.instead_of} is not installed here"]
        return [
            *attention,
            f"one step measured on {self.device}: its longest {self.rows:,} rows, up to {self.longest:,} tokens",
            f"{self.seconds:,.3g} s{memory}",
            f"{self.steps:,} steps take at most {self.steps * self.seconds / 3600:,.2g} h like that",
        ]


class _Clock(TrainerCallback):  # type: ignore[misc]
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        _wait()
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        _wait()
        self.seconds = time.perf_counter() - self.began


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure_step(settings: Settings) -> MeasuredStep:
    """Train two steps on the longest rows in a folder that is removed; refuse what the training would refuse.

    Flash attention that is not installed is not: the training may be meant for another machine.
    """
    args, model, instead_of = copy.copy(settings.args), copy.copy(settings.model), missing_attention(settings)
    if instead_of is not None:
        model.attn_implementation = "sdpa"
        args.model_init_kwargs = args.model_init_kwargs and {**args.model_init_kwargs, FIELD: "sdpa"}
    args.save_strategy, args.eval_strategy, args.logging_strategy = SaveStrategy.NO, *[IntervalStrategy.NO] * 2
    args.report_to, args.eval_on_start, args.push_to_hub, args.load_best_model_at_end = [], False, False, False
    args.disable_tqdm, args.resume_from_checkpoint = True, None
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(replace(settings, args=args, model=model), RunDirectory(Path(folder) / "run"))
        *_, steps = trainer.set_initial_training_values(args, trainer.get_train_dataloader())
        rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        lengths = pc.list_value_length(trainer.train_dataset.with_format("arrow")["labels"])
        longest = pc.sort_indices(lengths, sort_keys=[("", "descending")]).to_pylist()[:rows]
        trainer.train_dataset = trainer.train_dataset.select(longest * 2)
        args.max_steps = 2
        clock = _Clock()
        trainer.add_callback(clock)
        trainer.train()
    cuda = torch.cuda.is_available() and not args.use_cpu
    return MeasuredStep(
        device=torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
        steps=int(steps),
        rows=len(longest),
        longest=max(lengths.to_pylist()),
        seconds=clock.seconds,
        peak_gib=torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
        instead_of=instead_of,
    )
