"""Scores of the page: a table for each metric, with the arrows of `trimsft compare`.

The reference is the first run of SFT if there is another run, else the first run. An arrow marks a significant
difference from it: the sign-flip test on the same problems, with Holm's correction over the benchmarks of the metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trimsft.data.visible import visible
from trimsft.evaluate.compare import AVERAGE, Comparison, compare_runs, correct_for_many
from trimsft.intervals import Interval
from trimsft.report.comparison import content_conflict, other_graders, other_protocol
from trimsft.report.page.answers import default_pair
from trimsft.report.runs import Run
from trimsft.report.score_tables import arrow, in_order, score_table
from trimsft.tables import Table

Compared = Mapping[str, Mapping[str, Comparison]]
"""By metric and benchmark (or `AVERAGE`)."""


def score_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the template shows, and the rows of the first screen for the script."""
    scored = [run for run in runs if run.scores]
    benchmarks = in_order({name for run in scored for name in run.scores})
    every = [score for run in scored for score in run.scores.values()]
    drawn = min((score.samples for score in every), default=0)
    # the temperatures at which all runs were sampled on all benchmarks, beside that of the samples
    further = sorted(set.intersection(*(set(score.at_temperature) for score in every))) if every else []
    metrics = {"greedy": "greedy"} if scored else {}
    if drawn:
        others = [*(f"T={at:g}" for at in further), f"pass@{drawn}", f"majority@{drawn}"]
        metrics = {f"average@{drawn}": "average", **metrics, **{name: name for name in others}}
    pair = default_pair(runs)
    reference = None if pair is None else runs[pair[0]]
    compared: dict[str, Compared] = {}
    for run in scored:
        if reference and run is not reference:
            compared[run.label] = _compared(reference, run, benchmarks, list(metrics.values()))
    tables = {}
    for shown, metric in metrics.items():
        known = {
            run.label: [score for score in run.scores.values() if score.known_as(metric) in score.metrics]
            for run in scored
        }
        comparisons = [one for by_metric in compared.values() for one in by_metric.get(metric, {}).values()]
        tables[metric] = replace(score_table(known, metric, comparisons=comparisons), title=shown)
    at = {"greedy": 0.0, "average": every[0].temperature if every else 1.0} | {f"T={one:g}": one for one in further}
    return {
        "tables": {table.title: table for table in tables.values()},
        "over": f"mean of {len(benchmarks)} benchmarks" if len(benchmarks) > 1 else "".join(benchmarks),
        "reference": reference and reference.label,
        "notes": _notes(scored, runs, benchmarks),
        "rows": _first_screen(tables, compared, at),
    }


def _first_screen(
    tables: Mapping[str, Table], compared: Mapping[str, Compared], temperatures: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return for each run the last column: sampled, greedy, their arrows, and the curve over the temperature.

    An arrow is empty where the difference is not significant, and None where there is no comparison.
    """
    rows: dict[str, dict[str, Any]] = {}
    for metric, table in tables.items():
        for name, *_, last in table.rows:
            row = rows.setdefault(name.text, {"label": visible(name.text), "curve": [], "arrows": {}})
            one = compared.get(name.text, {}).get(metric, {}).get(table.header[-1])
            row["arrows"][metric] = one and arrow(one)
            row[metric] = None
            if isinstance(last.data, Interval):
                row[metric] = [100 * end for end in (last.data.value, last.data.low, last.data.high)]
                row["curve"] += [[temperatures[metric], *row[metric]]] if metric in temperatures else []
    return [row | {"curve": sorted(row["curve"])} for row in rows.values()]


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


# ---- what a reader must know beside them


def _notes(scored: Sequence[Run], runs: Sequence[Run], benchmarks: Sequence[str]) -> list[str]:
    """Say why a run is not in the tables, has no mean there, or cannot be compared."""
    if not scored:
        return []
    absent = [run.label for run in runs if not run.scores]
    notes = [f"Not evaluated: {', '.join(absent)}."] if absent else []
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
