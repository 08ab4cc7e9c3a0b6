"""Several engines as one: a copy of the model on each GPU, each in a process of its own, or several servers.

engine = SeveralEngines([WorkerEngine(model, gpus="0"), WorkerEngine(model, gpus="1")])
engine = SeveralEngines([ServerEngine("http://a:8000", "m"), ServerEngine("http://b:8000", "m")])

All samples of a prompt go to the same engine, which reads it once for all of them. Where an engine fails, the others
finish their share before the error is raised; the same command goes on from there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from trimsft.data.encode import load_tokenizer
from trimsft.errors import TrimSFTError, one_line
from trimsft.evaluate.engines import Completion, Engine, EngineError, LocalModel, Request, load_engine

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        return [device.strip() for device in named.split(",") if device.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


class SeveralEngines:
    """Engines that would all give the same answers."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        first, *others = self._engines = engines
        for other in others:
            if (other.name, dict(other.identity)) != (first.name, dict(first.identity)):
                ours, theirs = ({"engine": one.name, **one.identity} for one in (first, other))
                names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
                differ = "; ".join(f"{name} {ours.get(name)!r} and {theirs.get(name)!r}" for name in names)
                raise EngineError(f"engines that share an evaluation must be alike, and they differ: {differ}")
        self.name, self.identity, self.tokenizer = first.name, first.identity, first.tokenizer

    @property
    def details(self) -> Mapping[str, Any]:
        each = [engine.details for engine in self._engines]
        addresses = {"addresses": [one["address"] for one in each]} if "address" in each[0] else {}
        return {**each[0], **addresses, "engines": len(each)}

    def check(self, requests: Sequence[Request]) -> None:
        for engine in self._engines:
            engine.check(requests)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        said: queue.SimpleQueue[Completion | Exception | None] = queue.SimpleQueue()
        stop, errors, left = threading.Event(), list[Exception](), len(self._engines)
        for work in zip(self._engines, share(requests, left), strict=True):
            threading.Thread(target=_ask, args=(*work, requests, said, stop), daemon=True).start()
        try:
            while left:
                answer = said.get()
                if isinstance(answer, Completion):
                    yield answer
                else:
                    left -= 1
                    errors += [answer] if answer is not None else []
        finally:
            stop.set()
            if left:
                self.close()  # so that no thread waits for it
        if errors:
            raise errors[0]


def share(requests: Sequence[Request], parts: int) -> list[list[int]]:
    """Split the positions of requests, prompt by prompt in turn."""
    by_prompt: dict[Any, list[int]] = {}
    for index, request in enumerate(requests):
        by_prompt.setdefault((request.prompt, request.tokens, str(request.messages)), []).append(index)
    shares: list[list[int]] = [[] for _ in range(parts)]
    for place, own in enumerate(by_prompt.values()):
        shares[place % parts].extend(own)
    return shares


def _ask(
    engine: Engine,
    own: Sequence[int],
    requests: Sequence[Request],
    said: queue.SimpleQueue[Completion | Exception | None],
    stop: threading.Event,
) -> None:
    """Pass on the completions of an engine, and at last its error or None."""
    try:
        for completion in engine.generate([requests[index] for index in own]) if own else ():
            if stop.is_set():
                return
            said.put(replace(completion, index=own[completion.index]))
        said.put(None)
    except Exception as error:
        said.put(error)


class WorkerEngine:
    """A model in another process of this machine, which sees these GPUs only."""

    def __init__(self, model: LocalModel, gpus: str | None = None) -> None:
        self._model, self._gpus = model, gpus
        self._process: SpawnProcess | None = None
        self._start()  # loading begins at once, and is waited for when something is asked

    @property
    def name(self) -> str:
        return str(self._loaded()["name"])

    @property
    def identity(self) -> Mapping[str, Any]:
        return dict(self._loaded()["identity"])

    @property
    def details(self) -> Mapping[str, Any]:
        return dict(self._loaded()["details"])

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(self._model.model, revision=self._model.revision)

    def check(self, requests: Sequence[Request]) -> None:
        self._ask("check", requests)
        self._read()

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        self._ask("generate", requests)
        while (completion := self._read()) is not None:
            yield completion

    def close(self) -> None:
        """End the process, whatever it is doing; the next question starts another."""
        if self._process is not None:
            assert self._process.pid is not None
            self._process.kill()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with what it has started, as vLLM does
            self._process.join()
            self._pipe.close()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._model, self._gpus))
        self._process.start()
        theirs.close()  # so that its end is noticed here
        self._facts: Mapping[str, Any] = {}

    def _loaded(self) -> Mapping[str, Any]:
        if self._process is None:
            self._start()
        self._facts = self._facts or self._read()
        return self._facts

    def _ask(self, kind: str, requests: Sequence[Request]) -> None:
        self._loaded()
        with contextlib.suppress(BrokenPipeError):  # the answer says that it has ended
            self._pipe.send((kind, list(requests)))

    def _read(self) -> Any:
        """Return the next answer; an error is raised."""
        assert self._process is not None
        try:
            while not self._pipe.poll(1.0):  # a process that it has started may hold the pipe open
                if not self._process.is_alive() and not self._pipe.poll():
                    raise EOFError
            answer = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            where = f"GPU {self._gpus}" if self._gpus is not None else "its process"
            hint = "what it printed stands above; a script that starts processes needs if __name__ == '__main__':"
            problem = f"{where}: ended with code {self._process.exitcode}"
            raise EngineError(problem, field="engine", hint=hint) from None
        if isinstance(answer, Exception):
            raise answer
        return answer


def _work(pipe: Connection, model: LocalModel, gpus: str | None) -> None:
    """Answer questions in a process of its own, which ends with whoever started it, in the middle of its work too."""
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(2, 1)  # what libraries print is no part of the results
    if gpus is not None:
        os.environ[VISIBLE] = gpus
    engine: Engine | None = None
    while True:
        try:
            if engine is None:
                engine = load_engine(model)
                pipe.send({"name": engine.name, "identity": dict(engine.identity), "details": dict(engine.details)})
            kind, requests = pipe.recv()
            if kind == "check":
                engine.check(requests)
            else:
                for completion in engine.generate(requests):
                    pipe.send(completion)
            pipe.send(None)
        except EOFError:
            return
        except Exception as error:
            pipe.send(error if isinstance(error, TrimSFTError) else EngineError(one_line(error)))
            if engine is None:
                return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
