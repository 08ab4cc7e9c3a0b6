"""What the page says of evaluations: scores as in the paper's Table 1, two runs compared, the problems that flipped.

`evaluation_parts(runs)` gives the variables of evaluation.html.j2. Two of them are the page's own: `sections`, id and
name of each section for the list at the top, and `data`, what evaluation.js finds in the element `data-evaluation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trimsft.report.page.charts import score_chart
from trimsft.report.page.evaluation_answers import (
    BUDGET,
    LONGEST,
    Packed,
    answers_of,
    pack_answers,
    recorded,
)
from trimsft.report.page.evaluation_gaps import sample_notes, score_notes, unrecorded
from trimsft.report.page.evaluation_pairs import Table, compared_pairs, mirrored
from trimsft.report.page.numbers import number
from trimsft.report.page.problems import ProblemRow, default_pair, flips, problem_rows
from trimsft.report.page.sources import Run
from trimsft.scoring.intervals import Interval
from trimsft.scoring.compare import AVERAGE
from trimsft.text.visible import visible

_ORDER = ("math500", "olympiadbench", "minerva", "amc", "aime24", "lab-easy", "lab-medium", "lab-hard")
"""Benchmarks whose columns have a usual order; others follow by name."""
LISTED = 20
"""Flips in the list that needs no script."""
OPENED = 2
"""Gains, and losses, whose answers are shown without a script."""


def evaluation_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of evaluation.html.j2."""
    benchmarks = _benchmarks(runs)
    metrics = _metrics(runs)
    pair = default_pair(runs)
    rows = problem_rows(runs, benchmarks)
    pairs = compared_pairs(runs, benchmarks, list(metrics.values()), pair)
    packed = pack_answers(rows, runs, pair, BUDGET)
    tables = _score_tables(runs, benchmarks, metrics)
    columns = [*benchmarks, AVERAGE] if len(benchmarks) > 1 else benchmarks
    return {
        "sections": [("scores", "Scores")] * bool(tables) + [("answers", "Answers")] * (pair is not None),
        "data": _data(runs, columns, metrics, pair, pairs, rows, packed, tables),
        "benchmarks": benchmarks,
        "columns": columns,
        "graders": _graders(runs),
        "score_tables": tables,
        "score_chart": _chart(runs, tables),
        "score_notes": score_notes(runs, benchmarks),
        "sample_notes": sample_notes(runs),
        "pair": None if pair is None else [runs[place].label for place in pair],
        "difference_rows": _difference_rows(pairs, pair, metrics, columns),
        **_flip_parts(rows, runs, pair),
        "left_out": _left_out(rows, runs, packed),
    }


def _benchmarks(runs: Sequence[Run]) -> list[str]:
    found = sorted({name for run in runs for name in run.scores})
    return sorted(found, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def _graders(runs: Sequence[Run]) -> list[str]:
    found = [score.get("grader") for run in runs for score in run.scores.values()]
    return sorted({f"{grader.get('kind')} {grader.get('version')}" for grader in found if grader})


# ---- scores


def _metrics(runs: Sequence[Run]) -> dict[str, str]:
    """What is shown, by the name it is shown with: for as many samples as all runs have."""
    drawn = min((int(score["samples"]) for run in runs for score in run.scores.values()), default=0)
    if not drawn:
        return {"greedy": "greedy"}
    votes = [f"pass@{drawn}", f"majority@{drawn}"]
    return {f"average@{drawn}": "average", "greedy": "greedy", **{name: name for name in votes}}


def _score_tables(runs: Sequence[Run], benchmarks: Sequence[str], metrics: Mapping[str, str]) -> list[dict[str, Any]]:
    scored = [run for run in runs if run.scores]
    means = {run.label: run.mean_intervals(benchmarks, list(metrics.values())) for run in scored if len(benchmarks) > 1}
    return [_score_table(scored, benchmarks, *names, means) for names in metrics.items()] if scored else []


def _score_table(
    runs: Sequence[Run],
    benchmarks: Sequence[str],
    shown: str,
    metric: str,
    means: Mapping[str, Mapping[str, Interval]],
) -> dict[str, Any]:
    rows = []
    for run in runs:
        cells = [run.interval(benchmark, metric) for benchmark in benchmarks]
        cells += [means[run.label].get(metric)] if means else []
        rows.append((run.label, cells))
    best = [_highest([cells[column] for _, cells in rows]) for column in range(len(rows[0][1]))]
    return {"metric": shown, "rows": rows, "best": best}


def _highest(cells: Sequence[Interval | None]) -> str | None:
    """The highest figure as it is shown, where there is more than one to choose from."""
    values = [cell.value for cell in cells if cell is not None]
    return number(max(values)) if len(values) > 1 else None


def _chart(runs: Sequence[Run], tables: Sequence[Mapping[str, Any]]) -> Any:
    """The last column, sampled and greedy."""
    if not tables:
        return None
    last = {table["metric"]: {label: cells[-1] for label, cells in table["rows"]} for table in tables}
    sampled = next((name for name in last if name.startswith("average@")), "sampled")
    return score_chart(
        {run.label: (last.get(sampled, {}).get(run.label), last["greedy"][run.label]) for run in runs if run.scores},
        (sampled, "greedy"),
    )


# ---- two runs


def _difference_rows(
    pairs: Mapping[tuple[int, int], Table],
    pair: tuple[int, int] | None,
    metrics: Mapping[str, str],
    columns: Sequence[str],
) -> list[tuple[str, list[Any]]]:
    """Of the first pair, by metric; empty where it cannot be compared."""
    if pair is None:
        return []
    found = pairs.get(pair) or mirrored(pairs.get((pair[1], pair[0]), {}))
    return [
        (shown, [found[metric].get(column) for column in columns])
        for shown, metric in metrics.items()
        if metric in found
    ]


def _flip_parts(rows: Sequence[ProblemRow], runs: Sequence[Run], pair: tuple[int, int] | None) -> dict[str, Any]:
    """The list of flips, and a few problems with all answers, for readers without a script."""
    if pair is None:
        return {"flips": [], "flipped": 0, "asked": 0, "opened": []}
    found = flips(rows, *pair)
    changes = {id(row): row.change(*pair) for row in found}
    written = [row for row in found if any(recorded(runs, row, place) for place in pair)]
    gained = [row for row in written if changes[id(row)] > 0][:OPENED]
    lost = [row for row in written if changes[id(row)] < 0][:OPENED]
    return {
        "flips": [(row, *(row.outcomes[place] for place in pair)) for row in found[:LISTED]],
        "flipped": len(found),
        "asked": sum(all(row.outcomes[place] for place in pair) for row in rows),
        "opened": [_opened(row, [runs[place] for place in pair]) for row in gained + lost],
        "longest": LONGEST,
    }


def _opened(row: ProblemRow, runs: Sequence[Run]) -> dict[str, Any]:
    sides = []
    for run in runs:
        samples = [sample for sample in run.samples(row.benchmark) if sample["problem"] == row.name]
        sides.append((run.label, answers_of(samples)))
    return {"row": row, "sides": sides}


def _left_out(rows: Sequence[ProblemRow], runs: Sequence[Run], packed: Packed) -> dict[str, int]:
    """How many problems have answers, and how many of them have none, or not those of every run, on the page."""
    there = {place: sum(recorded(runs, row, run) for run in range(len(runs))) for place, row in enumerate(rows)}
    written = [place for place, count in there.items() if count]
    none = sum(place not in packed.problems for place in written)
    partly = sum(len(packed.problems[place]["runs"]) < there[place] for place in written if place in packed.problems)
    cut = Counter(
        sample[5] > 0
        for problem in packed.problems.values()
        for run in problem["runs"].values()
        for sample in run["samples"]
    )
    return {"problems": len(written), "none": none, "partly": partly, "cut": cut[True]}


# ---- for the script


def _data(
    runs: Sequence[Run],
    columns: Sequence[str],
    metrics: Mapping[str, str],
    pair: tuple[int, int] | None,
    pairs: Mapping[tuple[int, int], Table],
    rows: Sequence[ProblemRow],
    packed: Packed,
    tables: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    return {
        "runs": [visible(run.label) for run in runs],
        "folders": [visible(run.folder) for run in runs],
        "evaluated": [place for place, run in enumerate(runs) if run.scores],
        "pair": pair,
        "columns": [visible(name) for name in columns],
        "metrics": list(metrics),
        "scores": {
            table["metric"]: [[visible(label), *map(_triple, cells)] for label, cells in table["rows"]]
            for table in tables
        },
        "differences": {
            f"{a},{b}": [
                [found[metric][name].numbers() if name in found.get(metric, {}) else None for name in columns]
                for metric in metrics.values()
            ]
            for (a, b), found in pairs.items()
        },
        "unrecorded": {place: [columns.index(name) for name in names] for place, names in unrecorded(runs).items()},
        "problems": [_problem_data(row, columns) for row in rows],
        "answers": packed.data(),
    }


def _problem_data(row: ProblemRow, columns: Sequence[str]) -> list[Any]:
    """[benchmark, number, id, [right, samples, vote, greedy] or null of each run]."""
    outcomes = [
        None
        if found is None
        else [found.right, found.samples, found.vote, None if found.greedy is None else int(found.greedy)]
        for found in row.outcomes
    ]
    return [columns.index(row.benchmark), row.number, visible(row.name), *outcomes]


def _triple(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [round(x, 4) for x in (interval.value, interval.low, interval.high)]
