"""Means over seeds with their intervals, paired differences to SFT, and Markdown of them.

An interval is for other problems and other trainings (`trimsft.intervals.interval_over_runs`). Differences are
taken problem by problem and seed by seed: two objectives are compared on the same rows, in the same order.

Shapes: P problems, S seeds; strata are groups of problems that count the same, such as the tiers of the lab.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trimsft.intervals import Array, Interval, interval_over_runs

Strata = Sequence[Array]  # each [P, S], shares
Runs = Mapping[int, Sequence[Array]]
"""Of each seed the values of the problems, one array [P] for each stratum."""


def mean_over(runs: Runs) -> Interval | None:
    return interval_over_runs(_strata(runs, sorted(runs)), (0.0, 1.0)) if runs else None


def difference(runs: Runs, other: Runs) -> Interval | None:
    """Over the seeds that both have; None where there is none."""
    seeds = sorted(runs.keys() & other.keys())
    if not seeds:
        return None
    pairs = zip(_strata(runs, seeds), _strata(other, seeds), strict=True)
    return interval_over_runs([ours - theirs for ours, theirs in pairs], (-1.0, 1.0))


def _strata(runs: Runs, seeds: Sequence[int]) -> list[Array]:
    return [np.stack(columns, axis=1) for columns in zip(*(runs[seed] for seed in seeds), strict=True)]


def over_conditions(conditions: Sequence[Runs]) -> Runs:
    """The mean of each problem over conditions, for the seeds that all of them have: the problems are the same."""
    seeds = set.intersection(*({*runs} for runs in conditions))
    return {
        seed: [np.mean(same, axis=0) for same in zip(*(r[seed] for r in conditions), strict=True)] for seed in seeds
    }


# ---- Markdown


def percent(interval: Interval | None) -> str:
    """94.2 [93.1, 95.0], in percent."""
    if interval is None:
        return ""
    return f"{100 * interval.value:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
