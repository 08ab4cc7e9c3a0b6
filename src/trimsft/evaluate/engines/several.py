"""Several engines as one: a copy of the model on each GPU, each in a process of its own, or several servers.

engine = SeveralEngines([WorkerEngine(model, gpus="0"), WorkerEngine(model, gpus="1")])
engine = SeveralEngines([ServerEngine("http://a:8000", "m"), ServerEngine("http://b:8000", "m")])

All samples of a prompt go to the same engine, which reads it once for all of them. Where an engine fails, the others
finish their share before the error is raised; the same command goes on from there.

A worker reads lines of JSON and answers in lines of JSON; it ends when nobody is left to read them:

    {"model": "runs/trim/model", "engine": "auto", ...}   ->  {"name": "vllm", "identity": {...}, "details": {...}}
    {"check": [request, ...]}                             ->  {}
    {"generate": [request, ...]}                          ->  {"index": 3, "text": ...}  ...  {}
    whatever fails                                        ->  {"failure": {"problem": "...", "field": "top_k", ...}}
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

from trimsft.data.encode import load_tokenizer
from trimsft.evaluate.engines import Completion, Engine, EngineError, LocalModel, Request, Sampling, load_engine
from trimsft.processes import Child, answers, error_as_data, error_from, messages

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
        self._child: Child | None = None
        self._facts: Mapping[str, Any] = {}
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
        self._send("check", requests)
        self._read()

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        self._send("generate", requests)
        while answer := self._read():
            yield Completion(**answer)

    def close(self) -> None:
        """End the process, whatever it is doing; the next question starts another."""
        if self._child is not None:
            self._child.close()
            self._child, self._facts = None, {}

    def _start(self) -> Child:
        self._child = Child(__name__, None if self._gpus is None else {VISIBLE: self._gpus})
        self._child.send(asdict(self._model))
        return self._child

    def _loaded(self) -> Mapping[str, Any]:
        self._facts = self._facts or self._read()
        return self._facts

    def _send(self, kind: str, requests: Sequence[Request]) -> None:
        self._loaded()
        assert self._child is not None
        self._child.send({kind: [asdict(request) for request in requests]})

    def _read(self) -> dict[str, Any]:
        """Return the next line; an error that it tells of is raised."""
        child = self._child or self._start()
        answer = child.read()
        if answer is None:
            where = f"GPU {self._gpus}" if self._gpus is not None else "its process"
            reason = child.last_words() or f"ended with code {child.wait()}"
            raise EngineError(f"{where}: {reason}", field="engine")
        if "failure" in answer:
            raise error_from(answer["failure"], EngineError)
        return answer


# ---- in the process of a worker


def main() -> int:
    say = answers()
    engine: Engine | None = None
    for question in messages():
        try:
            if engine is None:
                engine = load_engine(LocalModel(**question))
                say(name=engine.name, identity=dict(engine.identity), details=dict(engine.details))
                continue
            ((kind, requests),) = question.items()
            if kind == "check":
                engine.check([_request(**one) for one in requests])
            else:
                for completion in engine.generate([_request(**one) for one in requests]):
                    say(**asdict(completion))
            say()
        except Exception as error:
            say(failure=error_as_data(error))
            if engine is None:
                return 1
    return 0


def _request(*, sampling: dict[str, Any], tokens: Any, messages: Any, **fields: Any) -> Request:
    """Make a request of what JSON has left of one: lists are tuples again."""
    sampling = {name: tuple(value) if isinstance(value, list) else value for name, value in sampling.items()}
    tokens, messages = (None if one is None else tuple(one) for one in (tokens, messages))
    return Request(**fields, sampling=Sampling(**sampling), tokens=tokens, messages=messages)


if __name__ == "__main__":
    sys.exit(main())
