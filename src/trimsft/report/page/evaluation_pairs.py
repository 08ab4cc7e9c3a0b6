"""Two runs side by side: differences with their intervals, exactly as `trimsft compare` finds them.

    pairs = compared_pairs(runs, ["gsm8k", "math500"], ["average", "greedy"], first=(1, 4))
    pairs[1, 4]["average"]["math500"]       # Difference(value=2.1, low=0.3, high=3.9, ...), in points

Each pair of runs is there once, the earlier run first: seen from the other run the interval is its mirror.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimsft.report.page.sources import Run, percent
from trimsft.scoring.compare import AVERAGE, Comparison, compare_pairs
from trimsft.scoring.scores import BenchmarkScore

FEW = 8
"""Runs of which every two are compared; among more, each with those of the first pair alone."""


@dataclass(frozen=True)
class Difference:
    """The second run minus the first, in points."""

    value: float
    low: float
    high: float
    p_holm: float
    """Of the sign-flip test, corrected for all benchmarks of the metric."""
    mark: str
    """An arrow where the difference is significant."""
    before: float
    after: float

    def numbers(self) -> list[float]:
        """For the page's script: value, low, high as they are shown, p, whether it is marked."""
        rounded = [round(number, 1) for number in (self.value, self.low, self.high)]
        return [*rounded, float(f"{self.p_holm:.3g}"), int(bool(self.mark))]


Table = dict[str, dict[str, Difference]]
"""Metric -> benchmark, or "average" -> difference."""


def compared_pairs(
    runs: Sequence[Run], benchmarks: Sequence[str], metrics: Sequence[str], first: tuple[int, int] | None
) -> dict[tuple[int, int], Table]:
    """Every two runs that were asked the same problems of a benchmark; the first pair as it is given."""
    scored = [place for place, run in enumerate(runs) if run.counts]
    pairs = list(itertools.combinations(scored, 2))
    if first and len(scored) > FEW:
        pairs = [pair for pair in pairs if set(pair) & set(first)]
    alike: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for a, b in pairs:
        alike.setdefault(_comparable(runs[a], runs[b], benchmarks, metrics), []).append((a, b))
    found: dict[tuple[int, int], Table] = {}
    for (problems, known), group in alike.items():
        shared = [name for name, _ in problems]
        if shared and known:
            found |= _compared(runs, group, shared, known, whole=len(shared) == len(benchmarks))
    return found


def mirrored(table: Table) -> Table:
    """The same seen from the other run."""
    return {
        metric: {
            name: Difference(-d.value, -d.high, -d.low, d.p_holm, _arrow(-d.value) if d.mark else "", d.after, d.before)
            for name, d in row.items()
        }
        for metric, row in table.items()
    }


def _comparable(a: Run, b: Run, benchmarks: Sequence[str], metrics: Sequence[str]) -> tuple[Any, ...]:
    """The benchmarks of which both were asked the same problems, with those, and the metrics that both have."""
    shared = tuple(
        (name, _ids(a.counts[name]))
        for name in benchmarks
        if name in a.counts and name in b.counts and _ids(a.counts[name]) == _ids(b.counts[name])
    )
    known = tuple(
        metric
        for metric in metrics
        if all(run.interval(name, metric) is not None for run in (a, b) for name, _ in shared)
    )
    return shared, known


def _compared(
    runs: Sequence[Run],
    pairs: Sequence[tuple[int, int]],
    shared: Sequence[str],
    metrics: Sequence[str],
    *,
    whole: bool,
) -> dict[tuple[int, int], Table]:
    """Pairs with the same problems; `whole`: all benchmarks of the page, else their mean would pass for that."""
    scores = {place: [runs[place].counts[name] for name in shared] for pair in pairs for place in pair}
    found = compare_pairs(
        [(scores[a], scores[b]) for a, b in pairs],
        metrics,
        names=[(runs[a].label, runs[b].label) for a, b in pairs],
    )
    return {
        pair: {
            metric: {one.benchmark: _difference(one) for one in row if whole or one.benchmark != AVERAGE}
            for metric, row in of_pair.items()
        }
        for pair, of_pair in zip(pairs, found, strict=True)
    }


def _difference(found: Comparison) -> Difference:
    points = percent(found.difference)
    mark = _arrow(points.value) if found.significant else ""
    return Difference(points.value, points.low, points.high, found.p_holm, mark, 100 * found.before, 100 * found.after)


def _arrow(value: float) -> str:
    return "↑" if value > 0 else "↓"


def _ids(score: BenchmarkScore) -> frozenset[str]:
    return frozenset(problem.problem for problem in score.per_problem)
