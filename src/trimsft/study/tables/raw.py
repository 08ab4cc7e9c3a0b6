"""Scores as they are, for programs: by setting and benchmark with the score of every seed, and by problem.

problems.csv    cell             benchmark  samples  correct    no_answer  greedy
                lab/sft/seed0    lab-easy   8        8 6 7 ...  0 0 1 ...  1 1 0 ...

One row for each cell and benchmark; a column of counts has one number for each problem, in the order of their ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.report.figures.style import csv_of
from trimsft.runs.files import write_whole
from trimsft.study.cells import Cell
from trimsft.study.tables.score_rows import ScoreRow

if TYPE_CHECKING:
    from trimsft.scoring.scores import BenchmarkScore

_COLUMNS = ("cell", "benchmark", "samples", "correct", "no_answer", "greedy")


def write_problems(path: Path, results: Mapping[Cell, Sequence[BenchmarkScore]]) -> Path:
    """What every score and interval can be had again from, but for votes."""
    rows = [_counts(cell, score) for cell, scores in results.items() for score in scores]
    return write_whole(path, csv_of(_COLUMNS, rows))


def _counts(cell: Cell, score: BenchmarkScore) -> list[Any]:
    problems = score.per_problem
    greedy = "" if problems[0].greedy is None else " ".join(str(int(bool(p.greedy))) for p in problems)
    return [
        *(cell.name, score.benchmark, score.samples),
        " ".join(str(problem.correct) for problem in problems),
        " ".join(str(problem.no_answer) for problem in problems),
        greedy,
    ]


def write_rows(name: str, record: Mapping[str, Any], rows: Sequence[ScoreRow], folder: Path) -> list[Path]:
    """NAME.csv, flat, and NAME.json with everything."""
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    content = json.dumps(record, indent=1, allow_nan=False)
    return [
        write_whole(folder / f"{name}.csv", csv_of(names, [[row.get(name) for name in names] for row in flat])),
        write_whole(folder / f"{name}.json", f"{content}\n".encode()),
    ]


def _flat(row: ScoreRow) -> dict[str, Any]:
    record = row.as_dict()
    difference = None if row.difference is None else row.difference.value
    return record | {
        "seeds": len(row.seeds),
        "by_seed": " ".join(f"{v:.6g}" for v in row.by_seed),
        "difference": difference,
    }
