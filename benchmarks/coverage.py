"""How often a 95 % interval of `trimsft.evaluate` holds the truth: simulated evaluations; writes JSON.

    python benchmarks/coverage.py --simulations 1000 --out results/coverage.json

scores: problems are right with chances drawn from Beta(m s, (1 - m) s), mean m; s = 0.5 is solved or not, s = 5 in
    between, "alike" gives all the same chance. Half of the wrong answers agree with each other. Every metric is there
    for one sample (greedy), 4 and 8.
differences: the second run has the same chances, or log-odds that are 0.7 higher.
several_runs: log-odds are normal with sd 1.5 over problems, all of them move by sd `spread` with the run, and each by
    sd 0.3 of its own. "problems_alone" is the interval of the runs' mean that knows of problems only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special, stats

from trimsft.evaluate.metrics import majority_curve, pass_curve
from trimsft.intervals import Interval, interval_over_runs, mean_intervals

SHARE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)
MEANS = (0.01, 0.03, 0.05, 0.5, 0.95, 0.97, 0.99)
SPREADS = ("alike", 5, 0.5)
PROBLEMS = (20, 40, 100, 200, 500)
GRID = 20_000  # chances, at even steps of their distribution, that the truth is averaged over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--simulations", type=int, default=1000, help="of each cell")
    parser.add_argument("--resamples", type=int, default=1000)
    options = parser.parse_args()
    size = (options.simulations, options.resamples)
    report = {
        "simulations": options.simulations,
        "resamples": options.resamples,
        "standard_error": math.sqrt(0.95 * 0.05 / options.simulations),
        "scores": list(_scores(*size)),
        "differences": list(_differences(*size)),
        "several_runs": list(_several_runs(*size)),
    }
    for name in ("scores", "differences", "several_runs"):
        report[f"least_coverage_of_{name}"] = min(_coverages(report[name]))
    options.out.write_text(json.dumps(report, indent=1) + "\n")


def _scores(simulations: int, resamples: int) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(0)
    for mean, spread, problems in itertools.product(MEANS, SPREADS, PROBLEMS):
        true = truths(_chances(mean, spread, (np.arange(GRID) + 0.5) / GRID))
        intervals = []
        for seed in range(simulations):
            values = sampled(generator, _chances(mean, spread, generator.random(problems)))
            columns = np.stack(list(values.values()), axis=1)
            intervals.append(mean_intervals([columns], [SHARE] * len(values), resamples=resamples, seed=seed))
        cell = {"mean": mean, "spread": spread, "problems": problems}
        yield _told({**cell, "metrics": _by_column(intervals, true)})


def _differences(simulations: int, resamples: int) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(1)
    for mean, spread, shift, problems in itertools.product((0.03, 0.5, 0.97), (5, 0.5), (0.0, 0.7), (20, 40, 200)):
        grid = _chances(mean, spread, (np.arange(GRID) + 0.5) / GRID)
        before, after = truths(grid), truths(_shifted(grid, shift))
        true = {metric: after[metric] - before[metric] for metric in ("greedy", "average@8", "pass@4 of 8")}
        intervals = []
        for seed in range(simulations):
            chances = _chances(mean, spread, generator.random(problems))
            first, second = sampled(generator, chances), sampled(generator, _shifted(chances, shift))
            columns = np.stack([second[metric] - first[metric] for metric in true], axis=1)
            intervals.append(mean_intervals([columns], [DIFFERENCE] * len(true), resamples=resamples, seed=seed))
        cell = {"mean": mean, "spread": spread, "shift": shift, "problems": problems}
        yield _told({**cell, "metrics": _by_column(intervals, true)})


def _several_runs(simulations: int, resamples: int) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(2)
    for problems, spread, runs in itertools.product((30, 83, 500), (0.0, 0.1, 0.3), (2, 3, 5, 8)):
        both, problems_alone = [], []
        for seed in range(simulations):
            odds = generator.normal(0, 1.5, (problems, 1)) + generator.normal(0, spread, (1, runs))
            odds = odds + generator.normal(0, 0.3, (problems, runs))
            values = generator.binomial(8, special.expit(odds)) / 8
            both.append(interval_over_runs([values], SHARE, resamples=resamples, seed=seed))
            column = values.mean(axis=1, keepdims=True)
            problems_alone += mean_intervals([column], [SHARE], resamples=resamples, seed=seed)
        cell = {"problems": problems, "spread": spread, "runs": runs}
        alone = _held(problems_alone, 0.5)  # the odds are symmetric about 1
        yield _told({**cell, **_held(both, 0.5), "problems_alone": alone})


# ---- problems


def _chances(mean: float, spread: str | float, levels: np.ndarray) -> np.ndarray:
    """The chances of problems at these levels (0 to 1) of their distribution."""
    if isinstance(spread, str):
        return np.full(len(levels), mean)
    return stats.beta.ppf(levels, mean * spread, (1 - mean) * spread)


def _shifted(chances: np.ndarray, shift: float) -> np.ndarray:
    return special.expit(special.logit(np.clip(chances, 1e-12, 1 - 1e-12)) + shift)


def _majority(n: int, k: int) -> np.ndarray:
    """majority@k by the number of right answers, and of wrong ones that agree."""
    table = np.zeros((n + 1, n + 1))
    for right, agreeing in itertools.product(range(n + 1), repeat=2):
        if right + agreeing <= n:
            wrong = ((agreeing,) if agreeing else ()) + (1,) * (n - right - agreeing)
            table[right, agreeing] = majority_curve((right,) if right else (), tuple(sorted(wrong)), n)[k - 1]
    return table


PASS = {(n, k): np.array([pass_curve(right, n)[k - 1] for right in range(n + 1)]) for n, k in ((4, 4), (8, 4), (8, 8))}
MAJORITY = {(n, k): _majority(n, k) for n, k in ((4, 4), (8, 4), (8, 8))}


def sampled(generator: np.random.Generator, chances: np.ndarray) -> dict[str, np.ndarray]:
    """Every metric of each problem, from 8 samples and a greedy answer."""
    outcomes = np.stack([chances, (1 - chances) / 2, (1 - chances) / 2], axis=1)
    half = generator.multinomial(4, outcomes)
    counts = {4: half, 8: half + generator.multinomial(4, outcomes)}
    return {
        "greedy": (generator.random(len(chances)) < chances).astype(float),
        **{f"average@{n}": counts[n][:, 0] / n for n in counts},
        **{f"pass@{k} of {n}": table[counts[n][:, 0]] for (n, k), table in PASS.items()},
        **{f"majority@{k} of {n}": table[counts[n][:, 0], counts[n][:, 1]] for (n, k), table in MAJORITY.items()},
    }


def truths(chances: np.ndarray) -> dict[str, float]:
    """What `sampled` is on average, exactly for these chances."""
    mean = float(chances.mean())
    true = {"greedy": mean, "average@4": mean, "average@8": mean}
    true |= {f"pass@{k} of {n}": float((1 - (1 - chances) ** k).mean()) for n, k in PASS}
    wrong = (1 - chances) / 2
    for (n, k), table in MAJORITY.items():
        states = [(right, agreeing) for right in range(n + 1) for agreeing in range(n + 1 - right)]
        ways = [math.comb(n, right) * math.comb(n - right, agreeing) for right, agreeing in states]
        odds = [(chances**right * wrong ** (n - right)).mean() for right, _ in states]
        true[f"majority@{k} of {n}"] = sum(
            float(way * chance * table[state]) for way, chance, state in zip(ways, odds, states, strict=True)
        )
    return true


# ---- what is reported


def _by_column(intervals: Sequence[Sequence[Interval]], true: Mapping[str, float]) -> dict[str, Any]:
    columns = zip(*intervals, strict=True)
    return {
        metric: {"true": truth, **_held(column, truth)}
        for (metric, truth), column in zip(true.items(), columns, strict=True)
    }


def _held(intervals: Iterable[Interval], truth: float) -> dict[str, float]:
    """Coverage and mean width."""
    seen = list(intervals)
    # sums of many floats: equality is meant up to rounding
    coverage = sum(one.low - 1e-12 <= truth <= one.high + 1e-12 for one in seen) / len(seen)
    return {"coverage": coverage, "width": sum(one.high - one.low for one in seen) / len(seen)}


def _coverages(cells: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    for cell in cells:
        yield from (one["coverage"] for one in cell.get("metrics", {"all": cell}).values())


def _told(cell: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps(cell), flush=True)
    return cell


if __name__ == "__main__":
    main()
