"""A copy of the model on each GPU, in a process each, as one engine.

engine = Copies(LocalModel("runs/trim/model"), gpus=["0", "1"])

All samples of a prompt go to the same copy, which reads it once for all of them. Where a copy fails, the evaluation
ends with its error; the same command goes on from what is recorded.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

from trimsft.data.encode import load_tokenizer
from trimsft.errors import TrimSFTError, one_line
from trimsft.evaluate.engines import Completion, EngineError, LocalModel, Request, load_engine

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        return [device.strip() for device in named.split(",") if device.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


class Copies:
    """Processes of this machine, each with a model that sees its GPUs only."""

    def __init__(self, model: LocalModel, gpus: Sequence[str]) -> None:
        """`gpus`: the GPUs of each copy, such as "0" or "0,1"."""
        self._model, self._gpus = model, gpus
        self._processes: dict[Connection, BaseProcess] = {}
        self._start()
        self.name, self.identity, details = self._facts
        self.details: Mapping[str, Any] = {**details, "engines": len(gpus)}

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(self._model.model, revision=self._model.revision)

    def check(self, requests: Sequence[Request]) -> None:
        self._start()
        first, *_ = self._processes
        first.send(("check", list(requests)))
        self._receive(first)

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        self._start()
        shares = dict(zip(self._processes, share(requests, len(self._processes)), strict=True))
        for pipe, own in shares.items():
            pipe.send(("generate", [requests[index] for index in own]))
        busy = list(shares)
        try:
            while busy:
                for pipe in cast(list[Connection], wait(busy)):
                    completion = self._receive(pipe)
                    if completion is None:
                        busy.remove(pipe)
                    else:
                        yield replace(completion, index=shares[pipe][completion.index])
        finally:
            if busy:
                self.close()  # nobody reads what the others would still say

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        for pipe, process in self._processes.items():
            process.kill()
            process.join()
            pipe.close()
        self._processes = {}

    def _start(self) -> None:
        """Start the processes, unless they are there already."""
        if self._processes:
            return
        context = multiprocessing.get_context("spawn")
        for gpus in self._gpus:
            pipe, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, self._model, gpus))
            process.start()
            theirs.close()  # so that its end is noticed here
            self._processes[pipe] = process
        self._facts, *_ = [self._receive(pipe) for pipe in self._processes]

    def _receive(self, pipe: Connection) -> Any:
        """Return the next answer of a copy; an error is raised, and ends all copies."""
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._processes[pipe].join()
            problem = f"a copy of the model ended with code {self._processes[pipe].exitcode}"
            hint = "what it printed stands above; a script that starts processes needs if __name__ == '__main__':"
            answer = EngineError(problem, field="engine", hint=hint)
        if isinstance(answer, Exception):
            self.close()
            raise answer
        return answer


def share(requests: Sequence[Request], parts: int) -> list[list[int]]:
    """Split the positions of requests, prompt by prompt in turn."""
    by_prompt: dict[Any, list[int]] = {}
    for index, request in enumerate(requests):
        by_prompt.setdefault((request.prompt, request.tokens, str(request.messages)), []).append(index)
    each = list(by_prompt.values())
    return [[index for own in each[part::parts] for index in own] for part in range(parts)]


def _work(pipe: Connection, model: LocalModel, gpus: str) -> None:
    """Answer in a process of its own, until the other end of the pipe is gone, in the middle of its work too."""
    os.dup2(2, 1)  # what libraries print is no part of the results
    os.environ[VISIBLE] = gpus
    with contextlib.suppress(EOFError, BrokenPipeError):
        try:
            engine = load_engine(model)
            pipe.send((engine.name, dict(engine.identity), dict(engine.details)))
            while True:
                kind, requests = pipe.recv()
                if kind == "check":
                    engine.check(requests)
                else:
                    for completion in engine.generate(requests):
                        pipe.send(completion)
                pipe.send(None)
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:
            pipe.send(error if isinstance(error, TrimSFTError) else EngineError(one_line(error)))
