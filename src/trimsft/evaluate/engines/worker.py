"""An engine in a process of its own, which sees its own GPUs only.

    WorkerEngine(LocalModel("runs/trim/model"), gpus="1")      # CUDA_VISIBLE_DEVICES=1

The process reads lines of JSON and answers in lines of JSON; it ends when nobody is left to read them:

    {"model": "runs/trim/model", "engine": "auto", ...}   ->  {"name": "vllm", "identity": {...}, "details": {...}}
    {"check": [request, ...]}                             ->  {}
    {"generate": [request, ...]}                          ->  {"index": 3, "text": ...}  ...  {}
    whatever fails                                        ->  {"problem": "...", "field": "max_tokens", "hint": null}
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from trimsft.errors import TrimSFTError, one_line
from trimsft.evaluate.engines.base import Completion, EngineError, Request, Sampling
from trimsft.evaluate.engines.elsewhere import Elsewhere, facts_of
from trimsft.evaluate.engines.local import VISIBLE, LocalModel


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
    """The process and the two ends of its pipes."""

    def __init__(self, model: LocalModel, gpus: str | None) -> None:
        package = str(Path(__file__).parents[3])
        paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        seen = {} if gpus is None else {VISIBLE: gpus}
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._where = f"GPU {gpus}" if gpus is not None else "its process"
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **seen, "PYTHONPATH": paths},
            start_new_session=True,  # so that it ends with the processes that vLLM has started in it
        )
        self._send(asdict(model))

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
        self._send(question)
        return self.read()

    def read(self) -> dict[str, Any]:
        """The next line; what it says of an error is raised."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EngineError(f"{self._where}: {self._last_words()}", field="engine")
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise EngineError(answer["problem"], field=answer["field"], hint=answer["hint"])
        return answer

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # nothing of it is to be saved
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout, self._log):
            assert end is not None
            end.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # it died, and its last words are in the log
            pass

    def _last_words(self) -> str:
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended with code {code}"


# ---- the process


def main() -> int:
    # what libraries print must not be taken for an answer
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    questions = _questions()
    engine = None

    def say(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    for question in questions:
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
        except TrimSFTError as error:
            say(problem=error.problem, field=error.field, hint=error.hint)
        except Exception as error:
            say(problem=one_line(error), field=None, hint=None)
    return 0


def _questions() -> Iterator[dict[str, Any]]:
    """The lines of stdin; at its end, in the middle of an answer too, the process ends with all that it has started."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(lines.get())


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
