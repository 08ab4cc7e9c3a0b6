"""Ctrl-C and SIGTERM while a model trains: the step is finished, a checkpoint saved, and the same command continues.

with Stopping() as stopping:
    trainer.add_callback(stopping)
    trainer.train()     # raises KeyboardInterrupt after SIGINT, Stopped after SIGTERM, once the checkpoint is saved
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

import torch
from torch import distributed
from transformers import TrainerCallback

from trimsft.errors import Stopped

SAME_SIGNAL_SECONDS = 1.0  # `timeout` and some launchers send one request twice, to the process and to its group


class Stopping(TrainerCallback):  # type: ignore[misc]
    """Heeds SIGINT and SIGTERM, also where they were inherited as ignored; a second one ends the training at once.

    Outside of the training loop already the first one does. In a thread other than the main one Python delivers no
    signals, so nothing is changed there.
    """

    def __init__(self) -> None:
        self._asked = 0  # the number of the signal
        self._asked_at = 0.0
        self._agreed = 0
        self._is_training = False
        self._group: Any = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heed) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if not self._is_training:
            raise _interruption(number)
        if not self._asked:
            self._asked, self._asked_at = number, time.monotonic()
            if int(os.environ.get("RANK", "0")) == 0:
                # not by logging: the signal may have come in the middle of a write to the same stream
                os.write(2, b"trimsft: stopping after this step, with a checkpoint; once more stops at once\n")
        elif time.monotonic() - self._asked_at > SAME_SIGNAL_SECONDS:
            raise _interruption(number)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if distributed.is_available() and distributed.is_initialized():
            # a group of its own: a collective on the GPU would have to wait for the GPU
            self._group = distributed.new_group(backend="gloo")
        self._is_training = True

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

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._agreed:
            where = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            step = f"step {state.global_step} of {state.max_steps}"
            raise _interruption(self._agreed, f" after {step}; {where} is saved, the same command continues from it")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._is_training = False


def _interruption(number: int, how: str = "; the same command continues from the last checkpoint") -> KeyboardInterrupt:
    if number == signal.SIGTERM:
        return Stopped("terminated" + how)
    return KeyboardInterrupt("interrupted" + how)
