"""A copy of the model on each GPU, in a process each, as one engine: `Copies(settings, gpus=["0", "1"])`.

All samples of a prompt go to the same copy, which reads it once for all of them. Where a copy fails, the evaluation
ends with its error; the same command goes on from what is recorded.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Generator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, cast

from trimsft.data.encode import load_tokenizer
from trimsft.errors import TrimSFTError, one_line
from trimsft.evaluate.engines import Completion, EngineError, Request, load_engine
from trimsft.runs import find_weights

if TYPE_CHECKING:
    from trimsft.evaluate.settings import EvalSettings

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

    def __init__(self, settings: "EvalSettings", gpus: Sequence[str]) -> None:
        """`gpus`: the GPUs of each copy, such as "0" or "0,1"."""
        self.tokenizer = load_tokenizer(find_weights(settings.model), revision=settings.revision)
        self._processes: dict[Connection, BaseProcess] = {}
        context = multiprocessing.get_context("spawn")
        for visible in gpus:
            pipe, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, settings, visible))
            process.start()
            theirs.close()  # so that its end is noticed here
            self._processes[pipe] = process
        (self.name, self.identity, details), *_ = [self._receive(pipe) for pipe in self._processes]
        self.details: dict[str, Any] = {**details, "engines": len(gpus)}

    def check(self, requests: Sequence[Request]) -> None:
        pipe = next(iter(self._processes))
        pipe.send(("check", requests))
        self._receive(pipe)

    def generate(self, requests: Sequence[Request]) -> Generator[Completion, None, None]:
        by_prompt: dict[Any, list[int]] = {}
        for index, request in enumerate(requests):
            by_prompt.setdefault((request.prompt, request.tokens), []).append(index)
        prompts, shares = list(by_prompt.values()), dict[Connection, list[int]]()
        for part, pipe in enumerate(self._processes):
            shares[pipe] = [index for own in prompts[part :: len(self._processes)] for index in own]
            pipe.send(("generate", [requests[index] for index in shares[pipe]]))
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

    def _receive(self, pipe: Connection) -> Any:
        """Return the next answer of a copy; an error is raised, and ends all copies."""
        try:
            answer = pipe.recv()
        except (EOFError, ConnectionResetError):
            problem = "a copy of the model ended; what it printed stands above"
            hint = "a script that starts processes needs if __name__ == '__main__':"
            answer = EngineError(problem, field="engine", hint=hint)
        if isinstance(answer, Exception):
            self.close()
            raise answer
        return answer


def _work(pipe: Connection, settings: "EvalSettings", gpus: str) -> None:
    """Answer in a process of its own, until the other end of the pipe is gone, in the middle of its work too."""
    os.dup2(2, 1)  # what libraries print is no part of the results
    os.environ[VISIBLE] = gpus
    with contextlib.suppress(EOFError, BrokenPipeError):
        try:
            engine = load_engine(settings)
            pipe.send((engine.name, dict(engine.identity), dict(engine.details)))
            while True:
                task, requests = pipe.recv()
                for completion in getattr(engine, task)(requests) or ():
                    pipe.send(completion)
                pipe.send(None)
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:
            pipe.send(error if isinstance(error, TrimSFTError) else EngineError(one_line(error)))
