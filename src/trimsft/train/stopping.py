"""Ctrl-C, SIGTERM and SIGHUP while a model trains: the step is finished, a checkpoint saved, and the same command
continues.

with Stopping() as stopping:
    trainer.add_callback(stopping)
    trainer.train()     # raises KeyboardInterrupt, Stopped or HungUp once the checkpoint is saved
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import distributed
from transformers import TrainerCallback

from trimsft.signals import Handler, heed, interruption, restore

SAME_SIGNAL_SECONDS = 1.0  # `timeout` and some launchers send one request twice, to the process and to its group


class Stopping(TrainerCallback):  # type: ignore[misc]
    """Heeds signals that ask to end, also SIGINT that was inherited as ignored; a second one ends all at once.

    Outside of the training loop and of saving already the first one does.
    """

    def __init__(self) -> None:
        self.there = "nothing is saved yet, the same command begins anew"
        """What there is to continue from."""
        self.has_begun = False  # whether the training loop was entered
        self._work = ""  # what is brought to its end before a signal is obeyed
        self._asked = 0  # the number of the signal
        self._asked_at = 0.0
        self._agreed = 0
        self._steps_since = 0  # how many were begun since all ranks have agreed
        self._group: Any = None
        self._process = os.getpid()
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Stopping:
        self._before = heed(self._heed)
        return self

    def __exit__(self, *failure: object) -> None:
        restore(self._before)
        if self._group is not None and distributed.is_initialized():
            distributed.destroy_process_group(self._group)
        self._group = None

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a forked worker that loads data, which a terminal asks as well: the training still needs it
        if not self._work:
            raise interruption(number, f"; {self.there}")
        if not self._asked:
            self._asked, self._asked_at = number, time.monotonic()
            if int(os.environ.get("RANK", "0")) == 0:
                # not by logging: the signal may have come in the middle of a write to the same stream
                os.write(2, f"trimsft: stopping after {self._work}; once more stops at once\n".encode())
        elif time.monotonic() - self._asked_at > SAME_SIGNAL_SECONDS:
            raise interruption(number, f"; {self.there}")

    @contextmanager
    def finishing(self, work: str) -> Iterator[None]:
        """Bring some work to its end before a signal that comes meanwhile is obeyed."""
        self._work = work
        yield
        self._work = ""
        if self._asked:
            raise interruption(self._asked, f"; {self.there}")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if distributed.is_available() and distributed.is_initialized():
            # a group of its own: a collective on the GPU would have to wait for the GPU
            self._group = distributed.new_group(backend="gloo", timeout=args.ddp_timeout_delta)
        self._work, self.has_begun = "this step, with a checkpoint", True

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps_since += self._agreed > 0
        if self._steps_since > 1:  # `save_strategy="best"` saves nothing after an evaluation that was not the best
            raise interruption(self._agreed, f"; {self.there}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._agreed = self._asked
        if self._group is not None:
            # a signal may reach the ranks at different steps, or only one of them: all stop after the same step;
            # between two processes of one busy machine this took 0.25 ms
            highest = torch.tensor(self._asked)
            distributed.all_reduce(highest, op=distributed.ReduceOp.MAX, group=self._group)
            self._agreed = int(highest)
        if self._agreed:
            control.should_save = True

    on_evaluate = on_step_end  # an evaluation may take long, and nothing is saved after it unless it is asked for

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        place = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        self.there = f"the same command continues from {place}"
        if self._agreed:
            step = f"step {state.global_step} of {state.max_steps}"
            raise interruption(self._agreed, f" after {step}; {place} is saved, the same command continues from it")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._work = ""
