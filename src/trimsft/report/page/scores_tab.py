"""What the page says of evaluations: scores as in the paper's Table 1, two runs compared, the problems that flipped.

`evaluation_parts(runs)` gives the variables of evaluation.html.j2. Two of them are the page's own: `sections`, id and
name of each section for the list at the top, and `data`, what evaluation.js finds in the element `data-evaluation`.

Two runs are compared exactly as `trimsft compare` does it:

    pairs = compared_pairs(runs, ["gsm8k", "math500"], ["average", "greedy"], first=(1, 4))
    pairs[1, 4]["average"]["math500"]       # Difference(value=2.1, low=0.3, high=3.9, ...), in points

Each pair of runs is there once, the earlier run first: seen from the other run the interval is its mirror.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimsft.data.visible import visible
from trimsft.evaluate.compare import AVERAGE, Comparison, compare_pairs
from trimsft.intervals import Interval
from trimsft.report.page.answers_tab import BUDGET, LONGEST, ProblemRow, default_pair, flips, pack_answers, problem_rows
from trimsft.report.page.charts import number, run_lines, score_chart
from trimsft.report.protocol import content_conflict, notes_of_graders, other_graders, other_protocol
from trimsft.report.runs import Run, in_percent
from trimsft.report.score_tables import in_order
from trimsft.runs.secrets import without_folders

LISTED = 20  # flips in the list that needs no script
FEW = 8  # runs of which every two are compared; among more, each with those of the first pair alone


def evaluation_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of evaluation.html.j2."""
    benchmarks = in_order({name for run in runs for name in run.scores})
    metrics, pair = _metrics(runs), default_pair(runs)
    columns = [*benchmarks, AVERAGE] if len(benchmarks) > 1 else benchmarks
    rows = problem_rows(runs, benchmarks)
    pairs = compared_pairs(runs, benchmarks, list(metrics.values()), pair)
    packed = pack_answers(rows, runs, pair, BUDGET)
    tables = _score_tables(runs, benchmarks, metrics)
    without_samples = ([name for name in run.scores if not run.has_samples(name)] for run in runs)
    lacking = {place: names for place, names in enumerate(without_samples) if names}
    graders = {str(one.grader) for run in runs for one in run.recorded.values()}
    return {
        "sections": [("scores", "Scores")] * bool(tables) + [("answers", "Answers")] * (pair is not None),
        "data": {
            "runs": [visible(run.label) for run in runs],
            "folders": [visible(without_folders(str(run.folder))) for run in runs],
            "evaluated": [place for place, run in enumerate(runs) if run.scores],
            "pair": pair,
            "columns": [visible(name) for name in columns],
            "metrics": list(metrics),
            "scores": {table["metric"]: _score_data(table["rows"]) for table in tables},
            "differences": {f"{a},{b}": _difference_data(table, metrics, columns) for (a, b), table in pairs.items()},
            "unrecorded": {place: [columns.index(name) for name in names] for place, names in lacking.items()},
            "problems": [_problem_data(row, columns) for row in rows],
            "answers": packed.data(),
        },
        "pairs": pairs,
        "benchmarks": benchmarks,
        "columns": columns,
        "graders": sorted(graders),
        "score_tables": tables,
        "score_chart": _chart(runs, tables),
        "score_notes": _score_notes(runs, benchmarks),
        "sample_notes": _sample_notes(runs, lacking),
        "pair": None if pair is None else [runs[place].label for place in pair],
        "difference_rows": _difference_rows(pairs, pair, metrics, columns),
        **_flip_parts(rows, pair),
        "left_out": packed.left_out(rows, runs),
    }


# ---- scores


def _metrics(runs: Sequence[Run]) -> dict[str, str]:
    """Return the metrics by the name they are shown with, for as many samples as all runs have."""
    drawn = min((score.samples for run in runs for score in run.scores.values()), default=0)
    if not drawn:
        return {"greedy": "greedy"}
    votes = [f"pass@{drawn}", f"majority@{drawn}"]
    return {f"average@{drawn}": "average", "greedy": "greedy", **{name: name for name in votes}}


def _score_tables(runs: Sequence[Run], benchmarks: Sequence[str], metrics: Mapping[str, str]) -> list[dict[str, Any]]:
    """For each metric the rows (label, intervals), and the highest figure of each column as it is shown."""
    scored = [run for run in runs if run.scores]
    several = len(benchmarks) > 1
    means = {run.label: run.mean_intervals_percent(benchmarks, list(metrics.values())) for run in scored if several}
    tables = []
    for shown, metric in metrics.items() if scored else ():
        rows = []
        for run in scored:
            cells = [run.interval_percent(benchmark, metric) for benchmark in benchmarks]
            rows.append((run.label, cells + ([means[run.label].get(metric)] if several else [])))
        best = []  # the highest figure as it is shown, where there is more than one to choose from
        for column in zip(*(cells for _, cells in rows), strict=True):
            values = [cell.value for cell in column if cell is not None]
            best.append(number(max(values)) if len(values) > 1 else None)
        tables.append({"metric": shown, "rows": rows, "best": best})
    return tables


def _chart(runs: Sequence[Run], tables: Sequence[Mapping[str, Any]]) -> Any:
    """The last column, sampled and greedy."""
    if not tables:
        return None
    last = {table["metric"]: {label: cells[-1] for label, cells in table["rows"]} for table in tables}
    sampled = next((name for name in last if name.startswith("average@")), "sampled")
    return score_chart(
        {run.label: (last.get(sampled, {}).get(run.label), last["greedy"][run.label]) for run in runs if run.scores},
        (sampled, "greedy"),
        run_lines(runs),
    )


def _score_data(rows: Sequence[tuple[str, Sequence[Interval | None]]]) -> list[list[Any]]:
    """[label, [value, low, high] or null of each column]."""
    return [
        [visible(label), *(cell and [round(x, 4) for x in (cell.value, cell.low, cell.high)] for cell in cells)]
        for label, cells in rows
    ]


# ---- what evaluations lack


def _score_notes(runs: Sequence[Run], benchmarks: Sequence[str]) -> list[str]:
    """Say why a run is not in the tables of scores, or has no mean there; nothing where no run is evaluated."""
    if not benchmarks:
        return []
    absent = [run.label for run in runs if not run.scores]
    notes = [f"Not evaluated, so not in the tables: {', '.join(absent)}."] if absent else []
    for run in runs if len(benchmarks) > 1 else ():
        lacking = [name for name in benchmarks if name not in run.scores]
        if run.scores and lacking:
            notes.append(f"{run.label} has no average: it was not evaluated on {', '.join(lacking)}.")
    notes += list(other_graders(runs).values())
    notes += notes_of_graders(runs)
    first, *others = [run for run in runs if run.scores]
    for run in others:
        shared = [name for name in benchmarks if name in first.scores and name in run.scores]
        if otherwise := other_protocol(first, run, shared, "average"):
            notes.append(
                f"Protocol of {run.label}: {'; '.join(otherwise)}. A difference to {first.label} may be due to that."
            )
        clashes = [name for name in shared if content_conflict(first, run, name) is not None]
        if clashes:
            notes.append(
                f"{run.label} was asked other problems than {first.label} under the same ids: {', '.join(clashes)}."
            )
    return [visible(note) for note in notes]


def _sample_notes(runs: Sequence[Run], lacking: Mapping[int, Sequence[str]]) -> list[str]:
    """A sentence for all runs that lack samples of the same benchmarks."""
    together: dict[tuple[str, ...], list[str]] = {}
    for place, names in lacking.items():
        together.setdefault(tuple(names), []).append(runs[place].label)
    return [
        visible(
            f"{', '.join(labels)}: counts of every problem, but no texts on {', '.join(names)}, since "
            f"samples.jsonl is missing there."
        )
        for names, labels in together.items()
    ]


# ---- two runs


@dataclass(frozen=True)
class Difference:
    """The second run minus the first, in points."""

    value: float
    low: float
    high: float
    p_holm: float  # of the sign-flip test, corrected for all benchmarks of the metric
    significant: bool

    @property
    def mark(self) -> str:
        """An arrow where the difference is significant."""
        return ("↑" if self.value > 0 else "↓") if self.significant else ""

    @classmethod
    def of(cls, comparison: Comparison) -> Difference:
        points = in_percent(comparison.difference)
        return cls(points.value, points.low, points.high, comparison.p_holm, comparison.significant)

    def mirrored(self) -> Difference:
        """The same seen from the other run."""
        return Difference(-self.value, -self.high, -self.low, self.p_holm, self.significant)

    def numbers(self) -> list[float]:
        """For the page's script: value, low, high as they are shown, p, whether it is marked."""
        rounded = [round(x, 1) for x in (self.value, self.low, self.high)]
        return [*rounded, float(f"{self.p_holm:.3g}"), int(self.significant)]


Table = dict[str, dict[str, Difference]]  # metric -> benchmark, or "average" -> difference


def compared_pairs(
    runs: Sequence[Run], benchmarks: Sequence[str], metrics: Sequence[str], first: tuple[int, int] | None
) -> dict[tuple[int, int], Table]:
    """Every two runs that were asked the same problems of a benchmark; the first pair as it is given."""
    scored = [place for place, run in enumerate(runs) if run.scores]
    pairs = list(itertools.combinations(scored, 2))
    if first and len(scored) > FEW:
        pairs = [pair for pair in pairs if set(pair) & set(first)]
    alike: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for a, b in pairs:
        alike.setdefault(_comparable(runs[a], runs[b], benchmarks, metrics), []).append((a, b))
    compared: dict[tuple[int, int], Table] = {}
    for (problems, known), group in alike.items():
        shared = [name for name, _ in problems]
        if shared and known:
            # without all benchmarks of the page, a mean would pass for that of all
            compared |= _compared(runs, group, shared, known, with_mean=len(shared) == len(benchmarks))
    return compared


def _comparable(a: Run, b: Run, benchmarks: Sequence[str], metrics: Sequence[str]) -> tuple[Any, ...]:
    """The benchmarks that asked both the same problems and graded both alike, and the metrics that both have."""
    asked = [
        {name: frozenset(problem.problem for problem in counts.per_problem) for name, counts in run.scores.items()}
        for run in (a, b)
    ]
    shared = tuple(
        (name, asked[0][name])
        for name in benchmarks
        if name in asked[0]
        and asked[0][name] == asked[1].get(name)
        and a.recorded[name].grader == b.recorded[name].grader
        and content_conflict(a, b, name) is None
    )
    known = tuple(
        metric
        for metric in metrics
        if all(run.interval_percent(name, metric) is not None for run in (a, b) for name, _ in shared)
    )
    return shared, known


def _compared(
    runs: Sequence[Run],
    pairs: Sequence[tuple[int, int]],
    shared: Sequence[str],
    metrics: Sequence[str],
    *,
    with_mean: bool,
) -> dict[tuple[int, int], Table]:
    scores = {place: [runs[place].scores[name] for name in shared] for pair in pairs for place in pair}
    compared = compare_pairs(
        [(scores[a], scores[b]) for a, b in pairs], metrics, names=[(runs[a].label, runs[b].label) for a, b in pairs]
    )
    return {
        pair: {
            metric: {one.benchmark: Difference.of(one) for one in row if with_mean or one.benchmark != AVERAGE}
            for metric, row in of_pair.items()
        }
        for pair, of_pair in zip(pairs, compared, strict=True)
    }


def _difference_rows(
    pairs: Mapping[tuple[int, int], Table],
    pair: tuple[int, int] | None,
    metrics: Mapping[str, str],
    columns: Sequence[str],
) -> list[tuple[str, list[Difference | None]]]:
    """The differences of the first pair, by metric; empty where it cannot be compared."""
    if pair is None:
        return []
    table = pairs.get(pair)
    if table is None:
        turned = pairs.get((pair[1], pair[0]), {})
        table = {metric: {name: one.mirrored() for name, one in row.items()} for metric, row in turned.items()}
    return [
        (shown, [table[metric].get(column) for column in columns])
        for shown, metric in metrics.items()
        if metric in table
    ]


def _difference_data(table: Table, metrics: Mapping[str, str], columns: Sequence[str]) -> list[list[Any]]:
    """For each metric, what `Difference.numbers` says of each column, or null."""
    return [
        [difference and difference.numbers() for difference in map(table.get(metric, {}).get, columns)]
        for metric in metrics.values()
    ]


# ---- problems that flipped


def _flip_parts(rows: Sequence[ProblemRow], pair: tuple[int, int] | None) -> dict[str, Any]:
    """Return the list of flips for readers without a script."""
    if pair is None:
        return {"flips": [], "flipped": 0, "asked": 0}
    flipped = flips(rows, *pair)
    return {
        "flips": [(row, *(row.outcomes[place] for place in pair)) for row in flipped[:LISTED]],
        "flipped": len(flipped),
        "asked": sum(all(row.outcomes[place] for place in pair) for row in rows),
        "longest": LONGEST,
    }


def _problem_data(row: ProblemRow, columns: Sequence[str]) -> list[Any]:
    """[benchmark, number, id, [right, samples, vote, greedy] or null of each run]."""
    outcomes = [
        outcome
        and [outcome.right, outcome.samples, outcome.vote, None if outcome.greedy is None else int(outcome.greedy)]
        for outcome in row.outcomes
    ]
    return [columns.index(row.benchmark), row.number, visible(row.name), *outcomes]
