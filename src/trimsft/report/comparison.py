"""`trimsft compare`: from the scores of runs to tables, and whether they may be set side by side.

result = compare(CompareSettings(runs=(Path("runs/sft"), Path("runs/trim"))))
print(result.render("markdown"))
result.comparisons[0].difference, result.comparisons[0].significant
other_protocol(sft, trim, ["math500"], "average")   # ["sampling.temperature 0.6 (sft: 1.0)"]
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import RunError, UsageError
from trimsft.options import check_options, option
from trimsft.runs import by_dotted_name
from trimsft.tables import FORMATS, Table, Tabular

if TYPE_CHECKING:
    from trimsft.evaluate.compare import Comparison
    from trimsft.evaluate.scores import BenchmarkScore
    from trimsft.report.runs import Run

OTHERWISE = "†"  # stands behind the name of a run that was asked otherwise than the baseline


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """The runs to compare, the metric, and the format of the result."""

    runs: tuple[Path, ...] = option(help="Run directories; the first is the baseline.", argument="RUN")
    metric: str | None = option(
        None,
        help="Metric to compare: average, greedy, T=0.6, pass@K or majority@K (default: average, greedy, and the "
        "temperature where the first run is right most often).",
    )
    benchmark: tuple[str, ...] = option(
        (),
        help="Compare on this benchmark only; repeat it for several (default: all that every run has scores of).",
        flags=("--benchmark", "-b"),
    )
    published: tuple[str, ...] = option(
        (),
        metavar="NAME=PERCENT",
        help="A published score to hold the runs against, such as math500=74.2; repeat it for several.",
    )
    style: str = option("terminal", help="How the tables are shown.", flags=("--format",), choices=(*FORMATS, "json"))

    def __post_init__(self) -> None:
        check_options(self)
        if len(self.runs) < (1 if self.published_shares else 2):
            raise UsageError("must be two or more", field="runs", value=" ".join(map(str, self.runs)))

    @property
    def published_shares(self) -> dict[str, float]:
        """Return the published scores by benchmark."""
        shares = {}
        for entry in self.published:
            name, _, number = entry.rpartition("=")
            with contextlib.suppress(ValueError):
                shares[name] = float(number) / 100
            if not name or not 0 <= shares.get(name, -1) <= 1:
                raise UsageError("must be NAME=PERCENT, such as math500=74.2", field="published", value=entry)
        return shares


@dataclass(frozen=True)
class Compared(Tabular):
    """Scores of runs beside each other, and the differences to the first one."""

    shown: Sequence[Table]
    comparisons: Sequence[Comparison]
    protocol: Mapping[str, Sequence[str]]
    """In what a candidate was asked otherwise than the baseline; candidates asked alike are not in it."""
    left_out: Sequence[str] = ()
    """Which benchmarks and problems are not compared, and who lacks them: a sentence for each."""

    def render(self, style: str) -> str:
        """Return all tables in one of `FORMATS`; as JSON the comparisons."""
        if style == "json":
            listed = [
                {**one.as_dict(), "protocol": list(self.protocol.get(one.candidate, ()))} for one in self.comparisons
            ]
            return json.dumps(listed, indent=1)
        return "\n".join(map(FORMATS[style], self.tables))

    @property
    def tables(self) -> Sequence[Table]:
        return self.shown


def compare(settings: CompareSettings) -> Compared:
    """Compare runs problem by problem."""
    from trimsft.evaluate.compare import compare_at_equal_accuracy, compare_runs
    from trimsft.evaluate.scores import load_run
    from trimsft.report.runs import Run
    from trimsft.report.score_tables import comparison_table, published_table, score_table, temperature_table

    names = [path.resolve().name for path in settings.runs]
    if len(set(names)) < len(names):  # the folders' names repeat
        names = [str(path) for path in settings.runs]
    scores = {name: load_run(path, settings.benchmark) for name, path in zip(names, settings.runs, strict=True)}
    evaluated = {run: [one.benchmark for one in of_run] for run, of_run in scores.items()}
    common, left_out = [], []
    for benchmark in dict.fromkeys(itertools.chain.from_iterable(evaluated.values())):
        if lacking := [run for run, of_run in evaluated.items() if benchmark not in of_run]:
            left_out.append(f"Left out: {benchmark}; no scores of {' and '.join(lacking)}.")
        else:
            common.append(benchmark)
    if not common:
        has = "; ".join(f"{run} has {', '.join(of_run)}" for run, of_run in evaluated.items())
        raise RunError(f"share no benchmark: {has}", field="runs", hint="evaluate all of them on the same one")
    scores = {name: [one for one in of_run if one.benchmark in common] for name, of_run in scores.items()}
    runs = [Run(name, path.expanduser(), tuple(common)) for name, path in zip(names, settings.runs, strict=True)]
    baseline, *candidates = runs
    for difference in other_graders(runs).values():
        again = "grade again with trimsft eval, which generates nothing anew"
        raise RunError(f"{difference}, so their scores do not compare", field="runs", hint=again)
    for run, name in itertools.product(candidates, common):
        if clash := content_conflict(baseline, run, name):
            problem = f"problem {clash!r} of {name!r} has another text or answer in {baseline.label}"
            raise RunError(f"{problem} than in {run.label}", field="runs", hint="evaluate both on the same problems")
    scores = _on_common_problems(scores, left_out)
    metrics, notes = ([settings.metric], []) if settings.metric else _metrics(baseline.label, scores)
    others = {run.label: scores[run.label] for run in candidates}
    comparisons = compare_runs(scores[baseline.label], others, metrics, name=baseline.label)
    protocols = {run.label: other_protocol(baseline, run, common, metrics[0]) for run in candidates}
    protocol = {label: differing for label, differing in protocols.items() if differing}
    notes += [
        f"{OTHERWISE} Protocol of {label}: {'; '.join(differing)}. A difference may be due to that."
        for label, differing in protocol.items()
    ]
    shown = [one for one in comparisons if one.metric == metrics[0]]
    tables = [_noted(score_table(scores, metrics[0], comparisons=shown), protocol, [*notes, *left_out])]
    if over_temperature := temperature_table(scores):
        tables.append(over_temperature)
    if published := settings.published_shares:
        if unknown := next((name for name in published if name not in common), None):
            raise UsageError("is no benchmark of the runs", field="published", value=unknown)
        tables.append(published_table(scores, published, metrics[0]))
    if comparisons:
        tables.append(_noted(comparison_table(comparisons), protocol, notes))
    if equal := compare_at_equal_accuracy(scores[baseline.label], others, name=baseline.label):
        title = f"At equal accuracy: problems of which as many samples are right as of {baseline.label}"
        tables.append(replace(_noted(comparison_table(equal), protocol, ()), title=title))
    return Compared(tables, comparisons, protocol, left_out)


def _on_common_problems(
    scores: Mapping[str, Sequence[BenchmarkScore]], left_out: list[str]
) -> dict[str, list[BenchmarkScore]]:
    """Return the scores on the problems that all runs have; add a note to `left_out` where one has more."""
    common: dict[str, list[BenchmarkScore]] = {run: [] for run in scores}
    for of_runs in zip(*scores.values(), strict=True):
        asked = [{one.problem for one in score.per_problem} for score in of_runs]
        shared, name = set.intersection(*asked), of_runs[0].benchmark
        more = [f"{run} has {len(ids)}" for run, ids in zip(scores, asked, strict=True) if ids != shared]
        if more and not shared:
            raise RunError(f"share no problem of {name}", field="runs", hint="evaluate all of them on the same ones")
        if more:
            left_out.append(f"On {name} only the {len(shared)} problems that all runs have: {', '.join(more)}.")
        for run, score in zip(scores, of_runs, strict=True):
            common[run].append(score.only(shared) if more else score)
    return common


def _metrics(baseline: str, scores: Mapping[str, Sequence[BenchmarkScore]]) -> tuple[list[str], list[str]]:
    """Return what is compared: the samples, the greedy answers, and the baseline's best temperature; and notes on it.

    A user gets a sharper distribution for nothing with a lower temperature: a difference that is gone where the
    baseline is best is no better model.
    """
    from trimsft.evaluate.scores import best_temperature, temperatures_of

    reference = scores[baseline]
    known = [temperatures_of(of_run) for of_run in scores.values()]
    usual = ["average"] if all(one.samples for of_run in scores.values() for one in of_run) else []
    metrics = [*usual, *(["greedy"] if all(0 in temperatures for temperatures in known) else [])]
    best = best_temperature(reference)
    lacking = [run for run, temperatures in zip(scores, known, strict=True) if best not in temperatures]
    note = f"{baseline} is right most often at T={best:g}" + (" (greedy)" if best == 0 else "")
    if lacking:
        return metrics, [f"{note}, where {' and '.join(lacking)} has no answers."]
    metric = reference[0].known_as(f"T={best:g}")
    return [*metrics, *([metric] if metric not in metrics else [])], [f"{note}."]


def _noted(table: Table, marked: Collection[str], notes: Sequence[str]) -> Table:
    """Return the table with these notes, and the rows of these runs marked."""
    rows = [
        (replace(first, text=f"{first.text} {OTHERWISE}"), *others) if first.text in marked else (first, *others)
        for first, *others in table.rows
    ]
    return replace(table, rows=tuple(rows), notes=(*table.notes, *notes))


# ---- how runs were asked and graded

_MAY_DIFFER = ("benchmark", "problems.", "details.", "seed", "greedy", "temperature", "engine.")
"""Settings that differ between runs for good reason, or say which problems were asked; two of the engine apart."""
_OF_THE_ENGINE = ("engine.name", "engine.dtype")
_OF_SAMPLES = ("samples", "sampling.temperature", "sampling.top_p", "sampling.top_k")


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
            may_differ = name.startswith(_MAY_DIFFER) and name not in _OF_THE_ENGINE
            if before != after and not may_differ and not (metric == "greedy" and name in _OF_SAMPLES):
                is_short = len(after) + len(before) < 60
                text = f"{name} {after} ({one.label}: {before})" if is_short else f"{name} is another text"
                differences[text] = None
    return list(differences)


def other_graders(runs: Sequence[Run]) -> dict[str, str]:
    """Describe, by label, which runs were graded otherwise than the first."""
    graded = [run for run in runs if run.scores]
    other: dict[str, str] = {}
    for first, run in ((graded[0], run) for run in graded[1:]):
        for name in run.scores.keys() & first.scores.keys():
            ours, theirs = run.scores[name].grader, first.scores[name].grader
            if ours != theirs:
                other[run.label] = f"{run.label} was graded by {ours}, {first.label} by {theirs}"
    return other


def content_conflict(one: Run, other: Run, benchmark: str) -> str | None:
    """Return the first problem that has the same id in both runs, and another text or answer."""
    mine, theirs = (run.problems.get(benchmark, {}) for run in (one, other))
    return next((name for name, asked in mine.items() if name in theirs and theirs[name] != asked), None)


def flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings as texts by name, without empty objects.

    >>> flat({"sampling": {"temperature": 1.0, "stop": ["Q:", "A:"]}, "engine": {}})
    {'sampling.temperature': '1.0', 'sampling.stop': 'Q:, A:'}
    """
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in by_dotted_name(settings)
        if not isinstance(value, Mapping)
    }
