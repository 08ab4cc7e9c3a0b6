"""Scores of the page: a table for each metric, and how each run differs from the reference, as in `trimsft compare`.

The reference is the first run of SFT if there is another run, else the first run. An arrow marks a significant
difference from it: the sign-flip test on the same problems, with Holm's correction over the benchmarks of the metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimsft.data.visible import visible
from trimsft.evaluate.compare import AVERAGE, Comparison, compare_pairs
from trimsft.evaluate.scores import best_temperature, macros, temperatures_of
from trimsft.intervals import Interval
from trimsft.report.page.answers import default_pair
from trimsft.report.protocol import content_conflict, notes_of_graders, other_graders, other_protocol
from trimsft.report.runs import Run, in_percent
from trimsft.report.score_tables import in_order

Row = tuple[Interval | None, str | None]
"""A score in percent, and its arrow; None where the run cannot be compared with the reference."""


def score_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the template shows, and the rows of the first screen for the script."""
    scored = [run for run in runs if run.scores]
    benchmarks = in_order({name for run in scored for name in run.scores})
    metrics = _metrics(scored)
    columns = [*benchmarks, AVERAGE] if len(benchmarks) > 1 else benchmarks
    pair = default_pair(runs)
    reference = None if pair is None else runs[pair[0]]
    compared = {} if reference is None else _compared(reference, scored, benchmarks, list(metrics.values()))
    means = {run.label: _means(run, benchmarks, list(metrics.values())) for run in scored}
    tables = []
    for shown, metric in metrics.items():
        rows = []
        for run in scored:
            found = compared.get(run.label, {}).get(metric, {})
            cells = [*(run.interval_percent(name, metric) for name in benchmarks), means[run.label].get(metric)]
            marks = [_arrow(found.get(column)) for column in columns]
            rows.append((visible(run.label), list(zip(cells, marks, strict=False))))
        tables.append({"metric": shown, "rows": rows})
    return {
        "tables": tables,
        "columns": [visible(name) for name in columns],
        "over": f"mean of {len(benchmarks)} benchmarks" if len(benchmarks) > 1 else visible("".join(benchmarks)),
        "reference": reference and visible(reference.label),
        "differences": [
            (visible(label), [by_metric.get(metric, {}).get(columns[-1]) for metric in metrics.values()])
            for label, by_metric in compared.items()
        ],
        "notes": _notes(scored, runs, benchmarks),
        "rows": [*_first_screen(tables), *_at_best(reference, benchmarks)],
        "temperatures": _over_temperature(scored, benchmarks),
        "drawn": min((score.samples for run in scored for score in run.scores.values()), default=0),
    }


def _metrics(runs: Sequence[Run]) -> dict[str, str]:
    """Return the metrics by the name they are shown with, for as many samples as all runs have."""
    if not runs:
        return {}
    drawn = min(score.samples for run in runs for score in run.scores.values())
    greedy = {"greedy": "greedy"}
    if not drawn:
        return greedy
    further = [f"T={at:g}" for at in _further(runs)]
    others = [*further, f"pass@{drawn}", f"majority@{drawn}"]
    return {f"average@{drawn}": "average", **greedy, **{name: name for name in others}}


def _further(runs: Sequence[Run]) -> list[float]:
    """Return the temperatures at which all runs were sampled on all benchmarks, beside that of the samples."""
    sampled = [set(score.at_temperature) for run in runs for score in run.scores.values()]
    return sorted(set.intersection(*sampled)) if sampled else []


def _means(run: Run, benchmarks: Sequence[str], metrics: Sequence[str]) -> Mapping[str, Interval]:
    return run.mean_intervals_percent(benchmarks, metrics) if len(benchmarks) > 1 else {}


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
    if not (one := _over(reference, [best], benchmarks).get(best)):
        return []
    return [{
        "label": visible(f"{reference.label} at T={best:g}"),
        "best": f"{best:g}" if best else "0 (greedy)",
        "sampled": [one.value, one.low, one.high],
        "greedy": None,
        "marks": [None, None],
    }]  # fmt: skip


def _over(run: Run, temperatures: Sequence[float], benchmarks: Sequence[str]) -> dict[float, Interval]:
    """Return the mean over all benchmarks at each temperature; nothing where the run lacks a benchmark."""
    if not set(benchmarks) <= set(run.scores):
        return {}
    means = macros([run.scores[name] for name in benchmarks], [f"T={at:g}" for at in temperatures])
    return {at: in_percent(one) for at, one in zip(temperatures, means.values(), strict=True)}


def _over_temperature(runs: Sequence[Run], benchmarks: Sequence[str]) -> list[dict[str, Any]]:
    """Return the chart of accuracy over temperature; 0 is the greedy answer."""
    lines = {}
    for run in runs if _further(runs) else ():
        known = temperatures_of(list(run.scores.values()))
        if means := _over(run, known, benchmarks):
            lines[visible(run.label)] = [[at, round(one.value, 2)] for at, one in means.items()]
    title = "Right answers over the sampling temperature (0: greedy)"
    return [{"title": title, "x": "temperature", "y": "percent", "lines": lines}] if lines else []


# ---- every run against the reference


def _compared(
    reference: Run, runs: Sequence[Run], benchmarks: Sequence[str], metrics: Sequence[str]
) -> dict[str, dict[str, dict[str, Comparison]]]:
    """Return by run, metric and benchmark (or `AVERAGE`) the difference from the reference, where it can be had."""
    alike: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        if run is not reference:
            alike.setdefault(_comparable(reference, run, benchmarks, metrics), []).append(run)
    compared: dict[str, dict[str, dict[str, Comparison]]] = {}
    for (shared, known), group in alike.items():
        if not shared or not known:
            continue
        scores = {run.label: [run.scores[name] for name in shared] for run in (reference, *group)}
        names = [(reference.label, run.label) for run in group]
        found = compare_pairs([(scores[a], scores[b]) for a, b in names], known, names=names)
        # without all benchmarks of the page, a mean would pass for that of all
        kept = {*shared, *([AVERAGE] if len(shared) == len(benchmarks) else [])}
        for run, by_metric in zip(group, found, strict=True):
            compared[run.label] = {
                metric: {one.benchmark: one for one in row if one.benchmark in kept}
                for metric, row in by_metric.items()
            }
    return compared


def _comparable(a: Run, b: Run, benchmarks: Sequence[str], metrics: Sequence[str]) -> tuple[Any, ...]:
    """Return the benchmarks that asked both the same problems and graded both alike, and the metrics both have."""
    shared = []
    for name in benchmarks:
        if name not in a.scores or name not in b.scores:
            continue
        asked = [{problem.problem for problem in run.scores[name].per_problem} for run in (a, b)]
        same_grader = a.recorded[name].grader == b.recorded[name].grader
        if asked[0] == asked[1] and same_grader and content_conflict(a, b, name) is None:
            shared.append(name)
    known = [
        metric
        for metric in metrics
        if all(run.interval_percent(name, metric) is not None for run in (a, b) for name in shared)
    ]
    return tuple(shared), tuple(known)


def _arrow(comparison: Comparison | None) -> str | None:
    if comparison is None:
        return None
    if not comparison.significant:
        return ""
    return " ↑" if comparison.difference.value > 0 else " ↓"


# ---- what a reader must know beside them


def _notes(scored: Sequence[Run], runs: Sequence[Run], benchmarks: Sequence[str]) -> list[str]:
    """Say why a run is not in the tables, has no mean there, or cannot be compared."""
    if not scored:
        return []
    absent = [run.label for run in runs if not run.scores]
    notes = [f"Not evaluated: {', '.join(absent)}."] if absent else []
    graders = sorted({str(one.grader) for run in scored for one in run.recorded.values()})
    if len(graders) > 1:
        notes.append(f"Not all were graded alike ({', '.join(graders)}): what differs may be the grader.")
    for run in scored:
        lacking = [name for name in benchmarks if name not in run.scores]
        if lacking:
            notes.append(f"{run.label} has no average: it was not evaluated on {', '.join(lacking)}.")
    notes += [*other_graders(runs).values(), *notes_of_graders(runs)]
    first, *others = scored
    for run in others:
        shared = [name for name in benchmarks if name in first.scores and name in run.scores]
        if otherwise := other_protocol(first, run, shared, "average"):
            what = "; ".join(otherwise)
            notes.append(f"Protocol of {run.label}: {what}. A difference to {first.label} may be due to that.")
        if clashes := [name for name in shared if content_conflict(first, run, name) is not None]:
            where = ", ".join(clashes)
            notes.append(f"{run.label} was asked other problems than {first.label} under the same ids: {where}.")
    return [visible(note) for note in notes]
