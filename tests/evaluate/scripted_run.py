"""An evaluation with a scripted engine that a test can kill: `python -m tests.evaluate.scripted_run FOLDER DELAY`."""

import sys
from pathlib import Path
from typing import Any

from trimsft.evaluate.engines import ScriptedEngine
from trimsft.evaluate.engines.base import Request
from trimsft.evaluate.generate import Evaluation, Outcome, fill
from trimsft.evaluate.problem_files import Problem
from trimsft.evaluate.prompts import make_prompts
from trimsft.evaluate.samples import SampleRecord

PROBLEMS = [Problem(f"p{number}", f"What is {number}+1?", str(number + 1)) for number in range(6)]


def answer(request: Request) -> str:
    """A text that depends on the seed, and is long enough to be torn."""
    return f"seed {request.seed} at {request.sampling.temperature} " + "and so on " * 300


def evaluation(**changes: Any) -> Evaluation:
    prompts = make_prompts([problem.problem for problem in PROBLEMS], template="plain")
    return Evaluation(**{"benchmark": "mine", "problems": PROBLEMS, "prompts": prompts, "samples": 3} | changes)


def run(folder: Path, delay: float = 0.0, **options: Any) -> tuple[Outcome, ScriptedEngine]:
    engine = ScriptedEngine(answer, delay=delay)
    return fill(SampleRecord(folder), evaluation(), engine, **options), engine


if __name__ == "__main__":
    run(Path(sys.argv[1]), float(sys.argv[2]))
