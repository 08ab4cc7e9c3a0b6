"""An engine that says what it is told to say, for tests and rehearsals: no model, no waiting unless asked.

ScriptedEngine({"What is 1+1?": "\\\\boxed{2}"})
ScriptedEngine(lambda request: f"seed {request.seed}", delay=0.01, fails=lambda request: "the server is tired")
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trimsft.evaluate.engines import Completion, Request

Script = Mapping[str, str] | Callable[[Request], str]


class ScriptedEngine:
    """Answers from a function or a table of prompts; an answer longer than `max_tokens` words is cut."""

    name = "scripted"
    tokenizer = None

    def __init__(
        self,
        script: Script,
        *,
        delay: float = 0.0,
        fails: Callable[[Request], str | None] = lambda request: None,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self._script = script
        self._delay = delay
        self._fails = fails
        self.identity: Mapping[str, Any] = dict(identity or {})
        self.details: Mapping[str, Any] = {}
        self.requests: list[Request] = []  # everything that was asked, in order

    def check(self, requests: Sequence[Request]) -> None:
        pass

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        for index, request in enumerate(requests):
            self.requests.append(request)
            time.sleep(self._delay)
            if error := self._fails(request):
                yield Completion(index, "", 0, "error", error)
                continue
            script = self._script
            words = (script(request) if callable(script) else script[request.prompt]).split(" ")
            kept = words[: request.sampling.max_tokens]
            yield Completion(index, " ".join(kept), len(kept), "stop" if len(kept) == len(words) else "length")
