"""`scores.json`, the last file of an evaluation: a benchmark's scores and the grader that gave them.

{"grader": {"kind": "strict", "version": "3", "ignored_rules": []}, "benchmark": "math500", "problems": 500,
 "average": {"value": 0.61, "low": 0.57, "high": 0.65}, ..., "per_problem": [...]}
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.runs import RunDirectory, write_whole
from trimsft.scoring.scores import BenchmarkScore

SCORES = "scores.json"


def write_scores(folder: Path, scores: BenchmarkScore, grader: Mapping[str, Any]) -> None:
    """Write the scores of a benchmark, and how its samples were graded, into its folder."""
    content = {"grader": grader, **scores.as_dict()}
    write_whole(folder / SCORES, (json.dumps(content, indent=1) + "\n").encode())


def read_scores(folder: Path) -> tuple[BenchmarkScore, str]:
    """The scores in the folder of a benchmark, and the kind and version of the grader that gave them."""
    path = folder / SCORES
    try:
        content = json.loads(path.read_bytes())
        grader = content.pop("grader")
        return BenchmarkScore.from_dict(content), f"{grader['kind']} {grader['version']}"
    except FileNotFoundError:
        raise RunError(f"{folder}: holds no scores", hint="finish it with trimsft eval") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: not readable as scores ({error})", hint="make it again with trimsft eval") from error


def load_run(path: str | Path, benchmarks: Sequence[str] = ()) -> list[BenchmarkScore]:
    """The scores of a run directory, of these benchmarks or of all; refuses scores by different graders."""
    run = RunDirectory(path)
    if not run.eval_dir.is_dir():
        raise RunError(f"{path}: holds no evaluation", hint="make one with trimsft eval")
    evaluated = run.evaluations()
    if not evaluated:
        raise RunError(f"{path}: holds no scores", hint="finish its evaluation with trimsft eval")
    names = list(benchmarks) or evaluated
    if missing := next((name for name in names if name not in evaluated), None):
        raise RunError(f"{path}: holds no scores of {missing!r}", hint=f"it has {', '.join(evaluated)}")
    read = [read_scores(run.eval_dir / name) for name in names]
    graders = sorted({grader for _, grader in read})
    if len(graders) > 1:
        raise RunError(f"{path}: was graded by {' and '.join(graders)}", hint="grade it again with one of them")
    return [scores for scores, _ in read]
