"""How runs were asked and graded: whether their scores may be set side by side, and what a reader must know if so.

other_protocol(sft, trim, ["math500"], "average")   # ["sampling.temperature 0.6 (sft: 1.0)"]
other_graders([sft, trim])                          # {"trim": "trim was graded by strict 2, sft by strict 3"}
content_conflict(sft, trim, "math500")              # the id of a problem whose text or answer differs, or None
"""

from collections.abc import Sequence

from trimsft.report.page.details import flat
from trimsft.report.runs import Run

_OTHERWISE = ("benchmark", "problems.", "details.", "seed", "greedy", "temperature", "engine.")
"""Settings that differ between runs for good reason, or say which problems were asked; names of the engine apart."""
_OF_THE_ENGINE = ("engine.name", "engine.dtype")
_OF_SAMPLES = ("samples", "sampling.temperature", "sampling.top_p", "sampling.top_k")
_LONG = 60
AGAIN = "grade again with trimsft eval, which generates nothing anew"


def other_protocol(one: Run, other: Run, benchmarks: Sequence[str], metric: str) -> list[str]:
    """Name the settings of the other run that differ on these benchmarks, as far as this metric depends on them."""
    differences: dict[str, None] = {}
    for benchmark in benchmarks:
        was, now = (flat(run.settings(benchmark)) for run in (one, other))
        if not was or not now:
            differences["not known, since settings.json is missing"] = None
            continue
        for name in sorted(was | now):
            before, after = was.get(name, "not set"), now.get(name, "not set")
            is_of_metric = not name.startswith(_OTHERWISE) and not (metric == "greedy" and name in _OF_SAMPLES)
            if before != after and (is_of_metric or name in _OF_THE_ENGINE):
                is_short = len(after) + len(before) < _LONG
                text = f"{name} {after} ({one.label}: {before})" if is_short else f"{name} is another text"
                differences[text] = None
    return list(differences)


def other_graders(runs: Sequence[Run]) -> dict[str, str]:
    """Describe, by label, which runs were graded otherwise than the first."""
    graded = [run for run in runs if run.recorded]
    other: dict[str, str] = {}
    for first, run in ((graded[0], run) for run in graded[1:]):
        for name in run.recorded.keys() & first.recorded.keys():
            ours, theirs = run.recorded[name].grader, first.recorded[name].grader
            if ours != theirs:
                other[run.label] = f"{run.label} was graded by {ours}, {first.label} by {theirs}"
    return other


def notes_of_graders(runs: Sequence[Run]) -> list[str]:
    """Return what the graders of these runs have noticed."""
    recorded = ((run, name, one) for run in runs for name, one in run.recorded.items())
    return [f"{run.label}, {name}: {note}." for run, name, one in recorded for note in one.grader.notes]


def content_conflict(one: Run, other: Run, benchmark: str) -> str | None:
    """Return the first problem that has the same id in both runs, and another text or answer."""
    mine, theirs = (run.problems.get(benchmark, {}) for run in (one, other))
    return next((name for name, asked in mine.items() if name in theirs and theirs[name] != asked), None)
