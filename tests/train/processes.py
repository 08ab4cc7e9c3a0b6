"""Real processes that begin with everything imported: quick to start, and to be killed for real.

A server that has loaded torch and trl once forks each of them; what they write to stdout and stderr goes to files.
"""

import atexit
import contextlib
import gc
import multiprocessing
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.train.distributed_worker", "trimsft.train.run"])

QUIET = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
TIMEOUT = 120.0
"""Seconds after which a process of a test is stuck."""


@dataclass(frozen=True)
class Finished:
    code: int
    """As the shell sees it, but negative for a signal."""
    out: str
    err: str


class Child:
    """A running process, with all it may have started itself in a group of its own."""

    def __init__(self, target: Callable[..., None], *args: Any, log: Path, **environment: str) -> None:
        self._log = log
        self._process = processes.Process(target=_become, args=(log, QUIET | environment, target, args), daemon=False)
        self._process.start()
        atexit.register(self.end)  # after a failed test, pytest would wait for it

    def end(self) -> None:
        """Kill it, with all that it started, if it still runs."""
        while self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # not there yet
            self._process.join(0.1)

    def wait(self, timeout: float = TIMEOUT) -> Finished:
        self._process.join(timeout)
        stuck = self._process.is_alive()
        self.end()
        out, err = (self._log.with_suffix(name).read_text(errors="replace") for name in (".out", ".err"))
        assert not stuck, f"still running after {timeout:.0f} s; stderr:\n{err[-4000:]}"
        assert self._process.exitcode is not None
        return Finished(self._process.exitcode, out, err)


def command(arguments: Sequence[str], log: Path, **environment: str) -> Child:
    """`trimsft ...` as a process."""
    return Child(_run_command, list(arguments), log=log, **environment)


def two_ranks(start: Callable[..., Child], folder: Path) -> list[Finished]:
    """Two processes that find each other, told what torchrun tells them."""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    children = [start(folder / f"rank{rank}", RANK=rank, LOCAL_RANK=rank, **shared) for rank in ("0", "1")]
    return [child.wait() for child in children]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _become(log: Path, environment: dict[str, str], target: Callable[..., None], args: tuple[Any, ...]) -> None:
    os.setsid()
    os.environ.update(environment)
    log.parent.mkdir(parents=True, exist_ok=True)
    for number, name in ((1, ".out"), (2, ".err")):
        file = os.open(log.with_suffix(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
    sys.stdin = open(os.devnull)  # noqa: SIM115 -- for the life of the process
    import torch

    torch.set_num_threads(1)
    gc.freeze()  # Trainer collects garbage after each training
    target(*args)


def _run_command(arguments: list[str]) -> None:
    from trimsft.cli import main

    sys.argv = ["trimsft", *arguments]
    main()


SAVING = {
    "weights": ("transformers.Trainer", "save_model"),
    "optimizer": ("transformers.Trainer", "_save_optimizer_and_scheduler"),
    "random numbers": ("transformers.Trainer", "_save_rng_state"),
    "marker": ("trimsft.train.checkpoints", "mark_complete"),
    "name": ("trimsft.train.checkpoints", "_publish"),
    "everything": ("trimsft.train.checkpoints.AtomicCheckpoints", "_save_checkpoint"),
}
"""Moments of a save, named by what has just been written."""


def signalled(
    arguments: Sequence[str], log: Path, number: int, *, step: int, moment: str = "step", rank: int = 0, **ranks: str
) -> Child:
    """`trimsft ...` that one of its ranks sends a signal to, in a step or in the save after it."""
    return Child(_run_signalled, list(arguments), number, step, moment, rank, log=log, **ranks)


def _run_signalled(arguments: list[str], number: int, step: int, moment: str, rank: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what stands in the background
    if int(os.environ.get("RANK", "0")) == rank:
        _send_at(step, moment, number)
    _run_command(arguments)


def _send_at(step: int, moment: str, number: int) -> None:
    from transformers import Trainer

    now, sent = [0], []
    train, (owner, name) = Trainer.training_step, SAVING.get(moment, ("transformers.Trainer", "training_step"))

    def count(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        now[0] = trainer.state.global_step + 1
        return train(trainer, *args, **kwargs)

    Trainer.training_step = count
    holder = pkgutil.resolve_name(owner)
    original = getattr(holder, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if now[0] == step and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        return result

    setattr(holder, name, call)
