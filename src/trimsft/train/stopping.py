"""Ctrl-C, SIGTERM and SIGHUP while a model trains: the step is finished, a checkpoint saved, and the same command
resumes from it.

with Stopping() as stopping:
    trainer.add_callback(stopping)
    trainer.train()     # raises errors.Interrupted once the checkpoint is saved
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from trimsft.errors import Handler, handle_signals, interruption

SAME_SIGNAL_SECONDS = 1.0  # `timeout` and some launchers send one request twice, to the process and to its group


class Stopping(TrainerCallback):  # type: ignore[misc]
    """Obeys signals that ask to end; a second Ctrl-C ends all at once.

    SIGTERM may come any number of times: from Slurm, from a launcher, and again at the time limit. Outside of the
    training loop and of saving the first signal ends all.
    """

    def __init__(self) -> None:
        self.resume_hint = "nothing is saved yet; rerun the command to start again"
        self.has_begun = False  # whether the training loop was entered
        self._work = ""  # what is brought to its end before a signal is obeyed
        self._signal, self._signal_time = 0, 0.0
        self._agreed = 0  # the signal that all ranks have agreed on
        self._group: Any = None
        self._process = os.getpid()
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Stopping:
        self._before = handle_signals(self._handle)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._group is not None and distributed.is_initialized():
            distributed.destroy_process_group(self._group)
        self._group = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a forked worker that loads data, which a terminal asks as well: the training still needs it
        if not self._work:
            raise interruption(number, f"; {self.resume_hint}")
        if not self._signal:
            self._signal, self._signal_time = number, time.monotonic()
            at_once = "; press Ctrl-C again to stop at once" if number == signal.SIGINT else ""
            if os.environ.get("RANK", "0") == "0":
                # not by logging: the signal may have come in the middle of a write to the same stream
                os.write(2, f"trimsft: stopping after {self._work}{at_once}\n".encode())
        elif number == signal.SIGINT and time.monotonic() - self._signal_time > SAME_SIGNAL_SECONDS:
            raise interruption(number, f"; {self.resume_hint}")

    @contextmanager
    def finishing(self, work: str) -> Iterator[None]:
        """Bring some work to its end before a signal that comes meanwhile is obeyed."""
        self._work = work
        yield
        self._work = ""
        if self._signal:
            raise interruption(self._signal, f"; {self.resume_hint}")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if distributed.is_available() and distributed.is_initialized():
            # a group of its own: a collective on the GPU would have to wait for the GPU
            self._group = distributed.new_group(backend="gloo", timeout=args.ddp_timeout_delta)
        self._work, self.has_begun = "this step, with a checkpoint", True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._agreed = self._signal
        if self._group is not None:
            # a signal may reach the ranks at different steps, or only one of them: all stop after the same step
            highest = torch.tensor(self._signal)
            distributed.all_reduce(highest, op=distributed.ReduceOp.MAX, group=self._group)
            self._agreed = int(highest)
        if self._agreed:
            control.should_save = True

    on_evaluate = on_step_end  # an evaluation may take long, and nothing is saved after it unless it is asked for

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        place = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        self.resume_hint = f"rerun the command to resume from {place}"
        if self._agreed:
            step = f"step {state.global_step} of {state.max_steps}"
            raise interruption(self._agreed, f" after {step}; {place} is saved; rerun the command to resume")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._work = ""


def keep_workers(loader: Any) -> Any:
    """Have processes that load data outlive SIGTERM, which Slurm sends to them, too."""
    plain: DataLoader[Any] = getattr(loader, "base_dataloader", loader)  # inside of accelerate's
    plain.worker_init_fn = partial(_begin_worker, plain.worker_init_fn)
    return loader


def _begin_worker(begin: Callable[[int], None] | None, number: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if begin is not None:
        begin(number)
