"""Scores of the page: a table for each metric, and how each run differs from the reference, as in `trimsft compare`.

The reference is the first run of SFT if there is another run, else the first run. An arrow marks a significant
difference from it: the sign-flip test on the same problems, with Holm's correction over the benchmarks of the metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimsft.data.visible import visible
from trimsft.evaluate.compare import AVERAGE, Comparison, compare_runs, correct_for_many
from trimsft.evaluate.scores import best_temperature, temperatures_of
from trimsft.intervals import Interval
from trimsft.report.comparison import content_conflict, other_graders, other_protocol
from trimsft.report.page.answers import default_pair
from trimsft.report.runs import Run
from trimsft.report.score_tables import in_order

Compared = Mapping[str, Mapping[str, Comparison]]
"""By metric and benchmark (or `AVERAGE`)."""


def score_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the template shows, and the rows of the first screen for the script."""
    scored = [run for run in runs if run.scores]
    benchmarks = in_order({name for run in scored for name in run.scores})
    columns = [*benchmarks, AVERAGE] if len(benchmarks) > 1 else benchmarks
    drawn = min((score.samples for run in scored for score in run.scores.values()), default=0)
    metrics = {"greedy": "greedy"} if scored else {}
    if drawn:
        others = [*(f"T={at:g}" for at in _further(scored)), f"pass@{drawn}", f"majority@{drawn}"]
        metrics = {f"average@{drawn}": "average", **metrics, **{name: name for name in others}}
    pair = default_pair(runs)
    reference = None if pair is None else runs[pair[0]]
    compared: dict[str, Compared] = {}
    for run in scored:
        if reference and run is not reference:
            compared[run.label] = _compared(reference, run, benchmarks, list(metrics.values()))
    tables = []
    for shown, metric in metrics.items():
        rows = []
        for run in scored:
            marks = [_arrow(compared.get(run.label, {}).get(metric, {}).get(column)) for column in columns]
            rows.append((visible(run.label), list(zip(_cells(run, benchmarks, metric), marks, strict=True))))
        tables.append({"metric": shown, "rows": rows})
    differences = [
        (visible(label), [by_metric.get(metric, {}).get(columns[-1]) for metric in metrics.values()])
        for label, by_metric in compared.items()
        if by_metric
    ]
    return {
        "tables": tables,
        "columns": [visible(name) for name in columns],
        "over": f"mean of {len(benchmarks)} benchmarks" if len(benchmarks) > 1 else visible("".join(benchmarks)),
        "reference": reference and visible(reference.label),
        "differences": differences,
        "notes": [visible(note) for note in _notes(scored, runs, benchmarks)],
        "rows": [*_first_screen(tables), *_at_best(reference, benchmarks)],
        "temperatures": _over_temperature(scored, benchmarks),
        "drawn": drawn,
    }


def _cells(run: Run, benchmarks: Sequence[str], metric: str) -> list[Interval | None]:
    """Return a metric in percent on each benchmark, and its mean where there are several."""
    cells = [run.interval_percent(name, metric) for name in benchmarks]
    return cells if len(benchmarks) < 2 else [*cells, run.mean_intervals_percent(benchmarks, [metric]).get(metric)]


def _further(runs: Sequence[Run]) -> list[float]:
    """Return the temperatures at which all runs were sampled on all benchmarks, beside that of the samples."""
    sampled = [set(score.at_temperature) for run in runs for score in run.scores.values()]
    return sorted(set.intersection(*sampled)) if sampled else []


def _first_screen(tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each run the last column: sampled, greedy, and their arrows."""
    rows: dict[str, dict[str, Any]] = {}
    for table in tables:
        kind = {"average": "sampled", "greedy": "greedy"}.get(table["metric"].partition("@")[0], "")
        for label, cells in table["rows"] if kind else ():
            interval, mark = cells[-1]
            row = rows.setdefault(label, {"label": label, "sampled": None, "greedy": None, "marks": [None, None]})
            row[kind] = interval and [interval.value, interval.low, interval.high]
            row["marks"][kind == "greedy"] = mark
    return list(rows.values())


def _at_best(reference: Run | None, benchmarks: Sequence[str]) -> list[dict[str, Any]]:
    """Return SFT at its best temperature as a row of its own, where it was sampled at several."""
    if reference is None or reference.objective != "sft" or not _further([reference]):
        return []
    best = best_temperature(list(reference.scores.values()))
    one = _cells(reference, benchmarks, f"T={best:g}")[-1]
    row = {
        "label": visible(f"{reference.label} at T={best:g}"),
        "best": f"{best:g}",
        "greedy": None,
        "marks": [None] * 2,
    }
    # the greedy answer stands there anyway
    return [row | {"sampled": [one.value, one.low, one.high]}] if one and best else []


def _over_temperature(runs: Sequence[Run], benchmarks: Sequence[str]) -> list[dict[str, Any]]:
    """Return the chart of accuracy over temperature; 0 is the greedy answer."""
    lines = {}
    for run in runs if _further(runs) else ():
        known = {at: _cells(run, benchmarks, f"T={at:g}")[-1] for at in temperatures_of(list(run.scores.values()))}
        if points := [[at, round(one.value, 2)] for at, one in known.items() if one]:
            lines[visible(run.label)] = points
    title = "Right answers over the sampling temperature (0: greedy)"
    return [{"title": title, "x": "temperature", "y": "percent", "lines": lines}] if lines else []


# ---- every run against the reference


def _compared(a: Run, b: Run, benchmarks: Sequence[str], metrics: Sequence[str]) -> Compared:
    """Return the differences of b from a on benchmarks that asked both the same problems and graded both alike."""
    shared = []
    for name in benchmarks:
        if name in a.scores and name in b.scores:
            asked = [{problem.problem for problem in run.scores[name].per_problem} for run in (a, b)]
            same_grader = a.scores[name].grader == b.scores[name].grader
            if asked[0] == asked[1] and same_grader and content_conflict(a, b, name) is None:
                shared.append(name)
    known = [one for one in metrics if all(one in run.scores[name].metrics for run in (a, b) for name in shared)]
    if not shared or not known:
        return {}
    ours, theirs = ([run.scores[name] for name in shared] for run in (a, b))
    # without all benchmarks of the page, a mean would pass for that of all
    kept = {*shared, *([AVERAGE] if len(shared) == len(benchmarks) else [])}
    compared = compare_runs(ours, {b.label: theirs}, known, name=a.label)
    by_metric = {metric: correct_for_many([one for one in compared if one.metric == metric]) for metric in known}
    return {metric: {one.benchmark: one for one in row if one.benchmark in kept} for metric, row in by_metric.items()}


def _arrow(comparison: Comparison | None) -> str | None:
    """Return the mark of a difference, empty where it is not significant; None where there is no comparison."""
    if comparison is None or not comparison.significant:
        return None if comparison is None else ""
    return " ↑" if comparison.difference.value > 0 else " ↓"


# ---- what a reader must know beside them


def _notes(scored: Sequence[Run], runs: Sequence[Run], benchmarks: Sequence[str]) -> list[str]:
    """Say why a run is not in the tables, has no mean there, or cannot be compared."""
    if not scored:
        return []
    absent = [run.label for run in runs if not run.scores]
    notes = [f"Not evaluated: {', '.join(absent)}."] if absent else []
    graders = sorted({str(one.grader) for run in scored for one in run.scores.values()})
    if len(graders) > 1:
        notes.append(f"Not all were graded alike ({', '.join(graders)}): what differs may be the grader.")
    for run in scored:
        if lacking := [name for name in benchmarks if name not in run.scores]:
            notes.append(f"{run.label} has no average: it was not evaluated on {', '.join(lacking)}.")
    notes += other_graders(runs).values()
    first, *others = scored
    for run in others:
        shared = [name for name in benchmarks if name in first.scores and name in run.scores]
        if otherwise := other_protocol(first, run, shared, "average"):
            what = "; ".join(otherwise)
            notes.append(f"Protocol of {run.label}: {what}. A difference to {first.label} may be due to that.")
        if clashes := [name for name in shared if content_conflict(first, run, name) is not None]:
            where = ", ".join(clashes)
            notes.append(f"{run.label} was asked other problems than {first.label} under the same ids: {where}.")
    return notes
