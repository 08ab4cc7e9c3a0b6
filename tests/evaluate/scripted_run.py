"""Evaluations with a scripted engine, which a test can kill: `python -m tests.evaluate.scripted_run FOLDER DELAY`."""

import sys
from pathlib import Path
from typing import Any

from trimsft.evaluate.engines import Request
from trimsft.evaluate.generate import Evaluation, Progress, fill
from trimsft.evaluate.problems import Problem
from trimsft.evaluate.prompts import make_prompts
from trimsft.evaluate.samples import Key, Sample, SampleRecord
from trimsft.evaluate.settings import EvalSettings

from .scripted import ScriptedEngine

PROBLEMS = [Problem(f"p{number}", f"What is {number}+1?", str(number + 1)) for number in range(6)]


def answer(request: Request) -> str:
    """A text that depends on the seed, and is long enough to be torn."""
    return f"seed {request.seed} at {request.sampling.temperature} " + "and so on " * 300


def evaluation(problems: list[Problem] = PROBLEMS, prompts: Any = None, **protocol: Any) -> Evaluation:
    settings = EvalSettings(**{"model": "m", "benchmarks": ("mine",), "samples": 3} | protocol)
    prompts = prompts or make_prompts([problem.problem for problem in problems], template="plain")
    return Evaluation("mine", problems, settings, prompts=prompts)


def run(folder: Path, delay: float = 0.0) -> tuple[Progress, ScriptedEngine]:
    engine = ScriptedEngine(answer, delay=delay)
    return fill(SampleRecord(folder), evaluation(), engine), engine


def all_requests(**protocol: Any) -> dict[Key, Request]:
    asked = evaluation(**protocol)
    return asked.requests(asked.protocol(ScriptedEngine(answer)).keys(asked.problems))


def complete(folder: Path) -> list[Sample]:
    """Every sample that the settings ask for; refused where some are missing."""
    record = SampleRecord(folder)
    wanted, samples = record.protocol().keys(record.problems()), {sample.key: sample for sample in record}
    record.require_complete(wanted)
    return [samples[key] for key in wanted]


def command_line(delay: float) -> None:
    """`trimsft` itself, with an engine that takes its time."""
    from trimsft import cli
    from trimsft.evaluate import run as module

    module.make_engine = lambda settings: ScriptedEngine(answer, delay=delay)  # type: ignore[assignment]
    cli.main()


if __name__ == "__main__":
    if sys.argv[1] == "eval":
        command_line(0.05)
    run(Path(sys.argv[1]), float(sys.argv[2]))
