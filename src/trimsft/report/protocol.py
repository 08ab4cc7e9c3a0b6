"""How runs were asked and graded: whether their scores may be set side by side, and what a reader must know if so.

other_protocol(sft, trim, ["math500"], "average")   # ["sampling.temperature 0.6 (sft: 1.0)"]
other_graders([sft, trim])                          # {"trim": "trim was graded by strict 2, sft by strict 3"}
content_conflict(sft, trim, "math500")              # the id of a problem whose text or answer differs, or None
"""

from collections.abc import Sequence

from trimsft.errors import RunError
from trimsft.evaluate.scores import GradedBy
from trimsft.grading import GRADER_VERSION
from trimsft.report.page.details import flat
from trimsft.report.runs import Run

_OTHERWISE = ("benchmark", "problems.", "details.", "seed", "greedy", "temperature", "engine.")
"""Settings that differ between runs for good reason, or say which problems were asked; names of the engine apart."""
_OF_THE_ENGINE = ("engine.name", "engine.dtype")
_OF_SAMPLES = ("samples", "sampling.temperature", "sampling.top_p", "sampling.top_k")
_UNSET = ("", "None", "0", "False")  # what a setting that an older record lacks is taken to be
_LONG = 60
AGAIN = "grade again with trimsft eval, which generates nothing anew"


def other_protocol(one: Run, other: Run, benchmarks: Sequence[str], metric: str) -> list[str]:
    """Name the settings of the other run that differ on these benchmarks, as far as this metric depends on them."""
    where: dict[str, list[str]] = {}
    for benchmark in benchmarks:
        if lacking := [run.label for run in (one, other) if not run.settings(benchmark)]:
            missing = f"not known, since settings.json is missing ({' and '.join(lacking)})"
            where.setdefault(missing, []).append(benchmark)
            continue
        was, now = (_protocol(run, benchmark, metric) for run in (one, other))
        for name in sorted(was | now):
            before, after = was.get(name, ""), now.get(name, "")
            if before != after and not {before, after} <= set(_UNSET):
                where.setdefault(_difference(name, after, before, one.label), []).append(benchmark)
    return [text if len(on) == len(benchmarks) else f"{text} on {', '.join(on)}" for text, on in where.items()]


def _protocol(run: Run, benchmark: str, metric: str) -> dict[str, str]:
    settings = flat(run.settings(benchmark))
    unread = _OF_SAMPLES if metric == "greedy" else ()
    return {
        name: value
        for name, value in settings.items()
        if name in _OF_THE_ENGINE or (not name.startswith(_OTHERWISE) and name not in unread)
    }


def _difference(name: str, after: str, before: str, label: str) -> str:
    if len(after) + len(before) > _LONG:
        return f"{name} is another text"
    return f"{name} {after or 'not set'} ({label}: {before or 'not set'})"


def other_graders(runs: Sequence[Run]) -> dict[str, str]:
    """Describe, by label, which runs were graded otherwise than the first."""
    graders = {run.label: sorted({str(one.grader) for one in run.recorded.values()}) for run in runs if run.recorded}
    (first, expected), *others = graders.items() if graders else [("", [])]
    other = {
        label: f"{label} was graded by {' and '.join(found)}, {first} by {' and '.join(expected)}"
        for label, found in others
        if found != expected
    }
    return _other_gradings(runs) | other


def _other_gradings(runs: Sequence[Run]) -> dict[str, str]:
    """Describe, by label, whose answers were found or compared otherwise than those of the first run."""
    other: dict[str, str] = {}
    for first, run in ((runs[0], run) for run in runs[1:]):
        for name in (name for name in run.recorded if name in first.recorded):
            was, now = (one.recorded[name].grader.grading or "math" for one in (first, run))
            if was != now:
                other.setdefault(run.label, f"{run.label} was graded on {name} by {now}, {first.label} by {was}")
    return other


def notes_of_graders(runs: Sequence[Run]) -> list[str]:
    """Return the notes of the graders of these runs, and which of them were of another version than this one."""
    notes = [
        f"{run.label}, {name}: {note}."
        for run in runs
        for name, recorded in run.recorded.items()
        for note in recorded.grader.notes
    ]
    old = [run.label for run in runs if any(_is_outdated(one.grader) for one in run.recorded.values())]
    again = f"Graded by another version of the grader than this one ({', '.join(old)}): {AGAIN}."
    return [*notes, again] if old else notes


def _is_outdated(grader: GradedBy) -> bool:
    """Tell whether it is an earlier version of ours; a user's own scorer, module:function, has its own versions."""
    return ":" not in grader.kind and grader.version != GRADER_VERSION


# ---- problems, told apart by what they say


def content_conflict(one: Run, other: Run, benchmark: str) -> str | None:
    """The first problem that has the same id in both runs, and another text or answer."""
    mine, theirs = (run.problems.get(benchmark, {}) for run in (one, other))
    return next((name for name, asked in mine.items() if name in theirs and theirs[name] != asked), None)


def refuse_other_problems(one: Run, other: Run, benchmark: str) -> None:
    """Refuse runs that mean different problems by the same id."""
    if clash := content_conflict(one, other, benchmark):
        problem = f"problem {clash!r} of {benchmark!r} has another text or answer in {one.label} than in {other.label}"
        raise RunError(problem, field="runs", hint="evaluate both on the same problems")
