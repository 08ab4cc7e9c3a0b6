"""What a reader of scores must know beside them: which cells are missing, and who gives no answer at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimsft.scoring.scores import BenchmarkScore
from trimsft.study.cells import Cell
from trimsft.study.tables.summaries import Setting, Summary, in_common, labels_of

MANY = 0.05
"""Of the samples; below, a missing answer is like a wrong one."""
MOST_NAMED = 8


def missing_note(cells: Sequence[Cell]) -> list[str]:
    """Which of the cells asked for are not finished."""
    if not cells:
        return []
    more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
    return [f"Not finished, and so left out: {', '.join(cell.name for cell in cells[:3])}{more}."]


def partial_note(results: Mapping[Cell, Sequence[BenchmarkScore]], benchmarks: Sequence[str]) -> list[str]:
    """Which cells lack some of the benchmarks: a score is over the seeds that have it, and so is a mean of scores."""
    lacking = {cell: set(benchmarks) - {score.benchmark for score in results[cell]} for cell in results}
    cells = [cell.name for cell, names in lacking.items() if names]
    if not cells:
        return []
    names = [name for name in benchmarks if any(name in lacks for lacks in lacking.values())]
    more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
    return [
        f"Not finished on {', '.join(names)}: {', '.join(cells[:3])}{more}; each score is over the seeds that have it."
    ]


def unanswered_note(summaries: Mapping[Setting, Summary]) -> list[str]:
    """Settings whose samples often end without an answer: what they lack is the format, or an end."""
    shares = {
        setting: summary.interval("no_answer", *in_common([summary])).value for setting, summary in summaries.items()
    }
    many = sorted((setting for setting, share in shares.items() if share >= MANY), key=lambda s: -shares[s])
    if not many:
        return []
    labels = labels_of(summaries)
    named = ", ".join(f"{labels[setting]} {100 * shares[setting]:.0f} %" for setting in many[:MOST_NAMED])
    more = f", and {len(many) - MOST_NAMED} more" if len(many) > MOST_NAMED else ""
    return [f"Samples without an answer, where they are {100 * MANY:.0f} % or more: {named}{more}."]
