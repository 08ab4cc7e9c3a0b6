"""An engine in a process of its own, which sees its own GPUs only.

    WorkerEngine(LocalModel("runs/trim/model"), gpus="1")      # CUDA_VISIBLE_DEVICES=1

The process reads lines of JSON and answers in lines of JSON; it ends when nobody is left to read them:

    {"model": "runs/trim/model", "engine": "auto", ...}   ->  {"name": "vllm", "identity": {...}, "details": {...}}
    {"check": [request, ...]}                             ->  {}
    {"generate": [request, ...]}                          ->  {"index": 3, "text": ...}  ...  {}
    whatever fails                                        ->  {"failure": {"problem": "...", "field": "top_k", ...}}
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

from trimsft.evaluate.engines.base import Completion, EngineError, Request, Sampling
from trimsft.evaluate.engines.elsewhere import Elsewhere, facts_of
from trimsft.evaluate.engines.local import VISIBLE, LocalModel
from trimsft.processes import Child, answers, error_as_data, error_from, messages


class WorkerEngine(Elsewhere):
    """A model in another process of this machine."""

    def __init__(self, model: LocalModel, gpus: str | None = None) -> None:
        super().__init__(model)
        self._gpus = gpus
        self._worker: _Worker | None = _Worker(model, gpus)

    def check(self, requests: Sequence[Request]) -> None:
        self._started().ask({"check": [asdict(request) for request in requests]})

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        worker = self._started()
        answer = worker.ask({"generate": [asdict(request) for request in requests]})
        while answer:
            yield Completion(**answer)
            answer = worker.read()

    def close(self) -> None:
        """End the process, whatever it is doing; whoever asks again gets a new one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _ask_facts(self) -> Mapping[str, Any]:
        return self._started().facts

    def _started(self) -> _Worker:
        if self._worker is None:
            self._worker = _Worker(self._model, self._gpus)
        return self._worker


class _Worker:
    """The process of a model."""

    def __init__(self, model: LocalModel, gpus: str | None) -> None:
        self._where = f"GPU {gpus}" if gpus is not None else "its process"
        self._process = Child(__name__, None if gpus is None else {VISIBLE: gpus})
        self._process.send(asdict(model))

    @property
    def facts(self) -> dict[str, Any]:
        """What the loaded model is; why it could not be loaded is raised, each time."""
        if isinstance(self._loaded, EngineError):
            raise self._loaded
        return self._loaded

    @cached_property
    def _loaded(self) -> dict[str, Any] | EngineError:
        try:
            return self.read()
        except EngineError as error:  # there is no second line to wait for
            return error

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        _ = self.facts
        self._process.send(question)
        return self.read()

    def read(self) -> dict[str, Any]:
        """The next line; what it says of an error is raised."""
        answer = self._process.read()
        if answer is None:
            reason = self._process.last_words() or f"ended with code {self._process.wait()}"
            raise EngineError(f"{self._where}: {reason}", field="engine")
        if "failure" in answer:  # a completion has a field `error`
            raise error_from(answer["failure"], EngineError)
        return answer

    def close(self) -> None:
        self._process.close()


# ---- the process


def main() -> int:
    say = answers()
    engine = None
    for question in messages():
        try:
            if engine is None:
                engine = LocalModel(**question).load()
                say(**facts_of(engine))
            elif "check" in question:
                engine.check([_request(one) for one in question["check"]])
                say()
            else:
                for completion in engine.generate([_request(one) for one in question["generate"]]):
                    say(**asdict(completion))
                say()
        except Exception as error:
            say(failure=error_as_data(error))
    return 0


def _request(fields: dict[str, Any]) -> Request:
    sampling = fields.pop("sampling")
    tokens, messages = fields.pop("tokens"), fields.pop("messages")
    sampling |= {name: tuple(sampling[name]) for name in ("stop", "stop_tokens")}
    return Request(
        **fields,
        sampling=Sampling(**sampling),
        tokens=None if tokens is None else tuple(tokens),
        messages=None if messages is None else tuple(messages),
    )


if __name__ == "__main__":
    sys.exit(main())
