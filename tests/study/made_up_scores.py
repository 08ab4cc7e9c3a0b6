"""Scores of cells that nobody trained, for the tests of sweeps and tables."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tests.evaluate.graded import score_of
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder

BENCHMARKS = ("easy", "hard")
SHIFTS = {"base": -0.5, "sft": 0.0, "fsft": -2.0, "dft": 1.0, "trim": 1.8}
"""In log-odds, in the order that the paper finds."""
PROBLEMS = 24


def counts(shift: float, noise: int, problems: int = PROBLEMS) -> list[int]:
    """Correct samples of 8; difficulties are always the same, the shift is in log-odds."""
    difficulty = np.random.default_rng(5).normal(0, 1.2, size=problems)
    return np.random.default_rng(noise).binomial(8, 1 / (1 + np.exp(-difficulty - shift))).tolist()


def scores(shift: float, noise: int = 0, harder: float = 1.0) -> list[BenchmarkScore]:
    """Scores of both benchmarks, "hard" being harder."""
    shifts = {"easy": shift, "hard": shift - harder}
    return [score_of(name, counts(by, noise + 1000 * n), resamples=20) for n, (name, by) in enumerate(shifts.items())]


def exact(share: float, problems: int = 8, benchmarks: tuple[str, ...] = BENCHMARKS) -> list[BenchmarkScore]:
    """The same share of correct samples on every problem: no noise at all."""
    return [score_of(name, [round(8 * share)] * problems, resamples=20) for name in benchmarks]


def results(shifts: Mapping[Cell, float]) -> dict[Cell, list[BenchmarkScore]]:
    return {each: scores(shift, noise) for noise, (each, shift) in enumerate(shifts.items())}


def cell(objective: str, seed: int = 0, model: str = "lab", **fields: float) -> Cell:
    return Cell(model=model, objective=objective, seed=seed, fields=tuple(fields.items()))


def main_results(
    seeds: int = 3, shifts: Mapping[str, float] = SHIFTS, model: str = "lab"
) -> dict[Cell, list[BenchmarkScore]]:
    """Cells of the study `main`: a base, and every method with so many seeds."""
    return results(
        {
            cell(name, seed, model): shift
            for name, shift in shifts.items()
            for seed in (range(seeds) if name != "base" else (0,))
        }
    )


def write_run(place: StudyFolder, cell: Cell, found: list[BenchmarkScore]) -> None:
    """A run directory with these scores."""
    for score in found:
        folder = place.run(cell) / "eval" / score.benchmark
        folder.mkdir(parents=True)
        (folder / "scores.json").write_text(json.dumps(asdict(score)))


def folder_of(path: Path) -> list[str]:
    """Names of all files below, sorted."""
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
