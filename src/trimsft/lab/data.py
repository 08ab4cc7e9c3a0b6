"""Files of the lab, in the forms that training and evaluation read.

A row of training, with what was done to it; spans are of characters in the solution:

    {"problem": "Start with 7. Add 5. ...", "solution": "Step 1: 7 + 5 = 13.\\n...", "answer": "36", "tier": "lab-easy",
     "style": "steps", "slips": 1, "slip_spans": [[16, 18]], "fillers": 0, "filler_spans": []}

A row of a benchmark:

    {"id": "lab-easy-0", "problem": "Start with 7. Add 5. ...", "answer": "36"}
"""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError
from trimsft.lab.arithmetic import TIERS, LabProblem, draw_problems, find_tier
from trimsft.lab.styles import FAR, TARGET, UNFAMILIAR, write_solution
from trimsft.options import check_options, option
from trimsft.runs.files import write_whole

BENCHMARK_COUNT = 100


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """A fine-tuning set and its imperfections."""

    rows: int = option(1200, help="Rows of the set.", least=1)
    seed: int = 0
    slip_rate: float = option(0.05, help="Chance of a step to end in a wrong result, carried on.", least=0, most=1)
    filler_rate: float = option(0.1, help="Chance of a step to be followed by an empty phrase.", least=0, most=1)
    unfamiliar_share: float = option(0.0, help="Share of solutions in a format new to the base.", least=0, most=1)
    tiers: tuple[str, ...] = tuple(TIERS)  # drawn from equally often

    def __post_init__(self) -> None:
        check_options(self)
        if not self.tiers:
            raise UsageError(f"must name at least one of {', '.join(TIERS)}", field="tiers", value=self.tiers)
        for tier in self.tiers:
            find_tier(tier)


def training_rows(settings: FineTuning) -> Iterator[dict[str, Any]]:
    """Return the rows of a fine-tuning set.

    Problem, style, slips and filler are drawn apart: sets that differ in one setting have the same problems.
    """
    streams = {tier: draw_problems(tier, f"fine-tuning/{settings.seed}", "training") for tier in settings.tiers}
    rng = random.Random(f"fine-tuning/{settings.seed}")
    for number in range(settings.rows):
        problem = next(streams[rng.choice(settings.tiers)])
        style = UNFAMILIAR if rng.random() < settings.unfamiliar_share else TARGET
        row_rng = random.Random(f"fine-tuning/{settings.seed}/{number}")
        slip_rate, filler_rate = settings.slip_rate, settings.filler_rate
        solution = write_solution(problem, style, row_rng, slip_rate=slip_rate, offsets=FAR, filler_rate=filler_rate)
        yield {
            "problem": problem.problem,
            "solution": solution.text,
            "answer": problem.answer,
            "tier": problem.tier,
            "style": style,
            "slips": len(solution.slips),
            "slip_spans": [list(span) for span in solution.slips],
            "fillers": len(solution.fillers),
            "filler_spans": [list(span) for span in solution.fillers],
        }


def benchmark(tier: str, count: int = BENCHMARK_COUNT) -> list[LabProblem]:
    """Return the problems of a benchmark, all different; a longer one begins with the shorter."""
    if count < 1:
        raise UsageError("must be at least 1", field="count", value=count)
    seen: dict[str, LabProblem] = {}
    for problem in draw_problems(tier, "benchmark", "benchmark"):
        seen.setdefault(problem.problem, problem)
        if len(seen) == count:
            break
    return [replace(problem, id=f"{tier}-{number}") for number, problem in enumerate(seen.values())]


def write_training(path: str | Path, settings: FineTuning) -> Path:
    """Write a fine-tuning set as JSON Lines, for `trimsft train --dataset_name`."""
    return _write(path, training_rows(settings))


def write_benchmark(path: str | Path, tier: str, count: int = BENCHMARK_COUNT) -> Path:
    """Write a benchmark as JSON Lines, for `trimsft eval`."""
    return _write(path, ({"id": p.id, "problem": p.problem, "answer": p.answer} for p in benchmark(tier, count)))


def _write(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    return write_whole(Path(path), "".join(json.dumps(row) + "\n" for row in rows).encode())
