"""A study against the number of its cells: the tables of finished ones, whose scores nobody trained.

Eight settings with as many seeds as the size needs, one benchmark of 100 problems with 8 samples.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.growth.measuring import Measured

OBJECTIVES = ("sft", "fsft", "dft", "trim", "trim-e", "trim-h", "auto-trim", "eaft")
PROBLEMS, SAMPLES = 100, 8


def collect(cells: int, folder: Path) -> dict[str, float]:
    """Read the cells, write the tables of the study: `trimsft study show`."""
    from trimsft.study.studies import STUDIES
    from trimsft.study.tables.writing import write_study

    study = STUDIES["objectives"]
    for count in (len(OBJECTIVES), cells):  # the first one for the imports
        scale, made, out = _make(count, folder)
        with Measured() as cost:
            write_study(study, scale, made, out)
    return cost.as_dict()


def _make(cells: int, folder: Path) -> tuple[Any, list[Any], Path]:
    from trimsft.evaluate.metrics import ProblemScore
    from trimsft.evaluate.records import write_scores
    from trimsft.evaluate.scores import score_counts
    from trimsft.grading import GRADER_VERSION
    from trimsft.study.cells import Cell
    from trimsft.study.folder import StudyFolder
    from trimsft.study.scales import SCALES

    place = StudyFolder(folder / f"study-{cells}")
    scale = replace(SCALES["lab"], benchmarks=("easy",))
    made = [Cell(model="lab", objective=OBJECTIVES[n % 8], seed=n // 8) for n in range(cells)]
    if not place.out.exists():
        place.settle(scale)
        place.remember(made, {"scores"})
        for seed, cell in enumerate(made):
            right = np.random.default_rng(seed).binomial(SAMPLES, 0.6, size=PROBLEMS).tolist()
            problems = [
                ProblemScore(
                    f"p{n:03}", SAMPLES, r, (r,) * (r > 0), (SAMPLES - r,) * (r < SAMPLES), 0, 0, 480, r > 4, False
                )
                for n, r in enumerate(right)
            ]
            of_cell = place.run(cell) / "eval" / "easy"
            of_cell.mkdir(parents=True)
            scores = score_counts("easy", problems, {"correct": sum(right)}, resamples=100)
            write_scores(of_cell, scores, {"kind": "strict", "version": GRADER_VERSION})
            (of_cell / "settings.json").write_text(json.dumps({"samples": SAMPLES}))
    return scale, made, place.out
