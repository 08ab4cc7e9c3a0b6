"""An engine that says what it is told to say, and evaluations with it, which a test can kill:
`python -m tests.evaluate.scripted FOLDER DELAY`, or `python -m tests.evaluate.scripted eval ...` for the command.

ScriptedEngine(lambda request: f"seed {request.seed}", delay=0.01, fails=lambda request: "the server is tired")
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimsft.evaluate.benchmarks import Problem, read_problems
from trimsft.evaluate.engines import Completion, Request
from trimsft.evaluate.prompts import make_prompts
from trimsft.evaluate.run import Evaluation, fill
from trimsft.evaluate.samples import Key, Sample, SampleRecord
from trimsft.evaluate.settings import EvalSettings

PROBLEMS = [Problem(f"p{number}", f"What is {number}+1?", str(number + 1)) for number in range(6)]


class ScriptedEngine:
    """Answers from a function; an answer longer than `max_tokens` words is cut."""

    name = "scripted"
    tokenizer: Any = None
    details: Mapping[str, Any] = {}

    def __init__(
        self,
        script: Callable[[Request], str],
        *,
        delay: float = 0.0,
        fails: Callable[[Request], str | None] = lambda request: None,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self._script, self._delay, self._fails = script, delay, fails
        self.identity: Mapping[str, Any] = dict(identity or {})
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
            words = self._script(request).split(" ")
            kept = words[: request.sampling.max_tokens]
            yield Completion(index, " ".join(kept), len(kept), "stop" if len(kept) == len(words) else "length")


def answer(request: Request) -> str:
    """A text that depends on the seed, and is long enough to be torn."""
    return f"seed {request.seed} at {request.sampling.temperature} " + "and so on " * 300


def evaluation(problems: list[Problem] = PROBLEMS, prompts: Any = None, **protocol: Any) -> Evaluation:
    settings = EvalSettings(**{"model": "m", "benchmarks": ("mine",), "samples": 3} | protocol)
    prompts = prompts or make_prompts([problem.problem for problem in problems], template="plain")
    return Evaluation("mine", problems, settings, prompts=prompts)


def run(folder: Path, delay: float = 0.0) -> tuple[int, ScriptedEngine]:
    engine = ScriptedEngine(answer, delay=delay)
    return fill(SampleRecord(folder), evaluation(), engine), engine


def all_requests(**protocol: Any) -> dict[Key, Request]:
    asked = evaluation(**protocol)
    return asked.requests(asked.protocol().keys(asked.problems))


def complete(folder: Path) -> list[Sample]:
    """Every sample that the settings ask for; refused where some are missing."""
    record = SampleRecord(folder)
    wanted = record.protocol().keys(read_problems(record.folder / "problems.jsonl"))
    samples = {sample.key: sample for sample in record}
    record.require_complete(wanted)
    return [samples[key] for key in wanted]


if __name__ == "__main__":
    if sys.argv[1] == "eval":
        from trimsft import cli
        from trimsft.evaluate import run as module

        module.make_engine = lambda settings: ScriptedEngine(answer, delay=0.05)  # type: ignore[assignment]
        cli.main()
    run(Path(sys.argv[1]), float(sys.argv[2]))
