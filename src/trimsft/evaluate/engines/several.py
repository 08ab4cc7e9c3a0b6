"""Several engines as one: a process for each GPU, or several servers; whoever records knows one engine only.

engine = SeveralEngines([ServerEngine("http://a:8000", "m"), ServerEngine("http://b:8000", "m")])

All samples of a prompt go to the same engine, which may share the work on the prompt among them. An engine that fails,
or refuses everything it is asked, is left out, and the others take over what it had.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from trimsft.errors import one_line
from trimsft.evaluate.engines.base import Completion, Engine, EngineError, Request

LOST_AFTER = 5
"""Failures in a row after which an engine is left out."""

_Told: TypeAlias = "tuple[int, Completion | Exception | None]"
"""The number of an engine and its next completion; what it failed with; or None at its end."""


class SeveralEngines:
    """Engines that would all give the same answers."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        first, *others = engines
        for other in others:
            if (other.name, dict(other.identity)) != (first.name, dict(first.identity)):
                ours, theirs = ({"engine": one.name, **one.identity} for one in (first, other))
                names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
                differ = "; ".join(f"{name} {ours.get(name)!r} and {theirs.get(name)!r}" for name in names)
                raise EngineError(f"engines that share an evaluation must be alike, and they differ: {differ}")
        self._engines = dict(enumerate(engines))  # those that are left
        self._lost: list[str] = []
        self.name, self.identity = first.name, first.identity
        self.tokenizer = first.tokenizer

    @property
    def details(self) -> Mapping[str, Any]:
        each = [engine.details for engine in self._engines.values()]
        addresses = {"addresses": [one["address"] for one in each]} if "address" in each[0] else {}
        return {**each[0], **addresses, "engines": len(each)}

    def check(self, requests: Sequence[Request]) -> None:
        for engine in self._engines.values():
            engine.check(requests)

    def close(self) -> None:
        """End the processes of all engines that are left."""
        for engine in self._engines.values():
            engine.close()

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        left = list(range(len(requests)))
        while left:
            if not self._engines:
                raise EngineError(f"no engine is left: {'; '.join(self._lost)}", field="engine")
            answered: set[int] = set()
            for completion in self._round(requests, left):
                answered.add(completion.index)
                yield completion
            left = [index for index in left if index not in answered]

    def _round(self, requests: Sequence[Request], indices: Sequence[int]) -> Iterator[Completion]:
        """Give each engine its share; what an engine that is lost has not answered is for the next round."""
        told: queue.SimpleQueue[_Told] = queue.SimpleQueue()
        stop = threading.Event()
        shares = dict(zip(self._engines, share(requests, indices, len(self._engines)), strict=True))
        for number, own in shares.items():
            work = (number, self._engines[number], [requests[index] for index in own], told, stop)
            threading.Thread(target=_listen, args=work, daemon=True).start()
        talking = set(shares)
        try:
            while talking:
                number, said = told.get()
                if isinstance(said, Completion):
                    yield replace(said, index=shares[number][said.index])
                    continue
                talking.remove(number)
                if said is not None:
                    self._engines.pop(number).close()
                    self._lost.append(one_line(said))
        finally:
            stop.set()
            for number in talking:
                self._engines[number].close()  # so that nobody waits for it


def share(requests: Sequence[Request], indices: Sequence[int], parts: int) -> list[list[int]]:
    """Indices for each part, prompt by prompt in turn."""
    by_prompt: dict[Any, list[int]] = {}
    for index in indices:
        by_prompt.setdefault((requests[index].prompt, requests[index].tokens), []).append(index)
    shares: list[list[int]] = [[] for _ in range(parts)]
    for place, own in enumerate(by_prompt.values()):
        shares[place % parts].extend(own)
    return shares


def _listen(
    number: int, engine: Engine, requests: Sequence[Request], told: queue.SimpleQueue[_Told], stop: threading.Event
) -> None:
    """Pass on what an engine says, and how it ended; failures only when it is clear that it goes on."""
    failures: list[Completion] = []
    try:
        for completion in engine.generate(requests) if requests else ():
            if stop.is_set():
                return
            failures.append(completion)
            if completion.finish != "error":
                _pass_on(number, failures, told)
            elif len(failures) == LOST_AFTER:
                raise EngineError(f"{LOST_AFTER} failures in a row, the last: {completion.error}", field="engine")
        _pass_on(number, failures, told)
        told.put((number, None))
    except Exception as error:
        told.put((number, error))


def _pass_on(number: int, completions: list[Completion], told: queue.SimpleQueue[_Told]) -> None:
    for completion in completions:
        told.put((number, completion))
    completions.clear()
