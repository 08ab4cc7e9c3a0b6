"""What evaluations lack, so that the page can say so: runs without scores, without a benchmark, without samples."""

from __future__ import annotations

from collections.abc import Sequence

from trimsft.report.page.sources import Run
from trimsft.text.visible import visible


def score_notes(runs: Sequence[Run], benchmarks: Sequence[str]) -> list[str]:
    """Why a run is not in the tables of scores, or has no mean there; nothing where no run is evaluated."""
    if not benchmarks:
        return []
    absent = [run.label for run in runs if not run.scores]
    notes = [f"Not evaluated, so not in the tables: {', '.join(absent)}."] if absent else []
    for run in runs if len(benchmarks) > 1 else ():
        lacking = [name for name in benchmarks if name not in run.scores]
        uncounted = [name for name in run.scores if name not in run.counts]
        if run.scores and lacking:
            notes.append(f"{run.label} has no average: it was not evaluated on {', '.join(lacking)}.")
        elif uncounted:
            named = ", ".join(uncounted)
            notes.append(f"{run.label} has no average: scores.json of {named} lacks counts of every problem.")
    return [visible(note) for note in notes]


def unrecorded(runs: Sequence[Run]) -> dict[int, list[str]]:
    """Place of a run -> its benchmarks that have scores, but no samples.jsonl."""
    found = {place: [name for name in run.scores if not run.has_samples(name)] for place, run in enumerate(runs)}
    return {place: names for place, names in found.items() if names}


def sample_notes(runs: Sequence[Run]) -> list[str]:
    """A sentence for all runs that lack samples of the same benchmarks."""
    together: dict[tuple[str, ...], list[str]] = {}
    for place, names in unrecorded(runs).items():
        together.setdefault(tuple(names), []).append(runs[place].label)
    return [
        visible(
            f"{', '.join(labels)}: counts of every problem, but no texts on {', '.join(names)}, since "
            f"samples.jsonl is missing there."
        )
        for names, labels in together.items()
    ]
