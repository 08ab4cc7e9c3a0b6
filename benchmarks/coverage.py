"""How often a 95 % interval of `trimsft.evaluate` holds the truth: simulated benchmarks; writes JSON.

    python benchmarks/coverage.py --simulations 1500 --out docs/results/coverage.json

One run: "binary" is one answer a problem; "average of 8" draws difficulties from Beta(p, 1 - p) and 8 samples a
problem. The plain percentile bootstrap, from the same resamples, stands beside the interval that is used.
Several runs: 8 samples a problem; log-odds are normal with sd 1.5 over problems, all of them move by sd `spread` with
the run, and each by sd 0.3 of its own. "problems alone" is the interval of the runs' mean that knows of problems only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from trimsft.scoring.intervals import Interval, column_intervals, interval_over_runs, resampled_means

UNIT = (0.0, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--simulations", type=int, default=1500)
    parser.add_argument("--run-simulations", type=int, default=1000, help="of the cells with several runs")
    parser.add_argument("--resamples", type=int, default=2000)
    options = parser.parse_args()
    report = {
        "simulations": options.simulations,
        "run_simulations": options.run_simulations,
        "resamples": options.resamples,
        "one_run": list(_one_run(options.simulations, options.resamples)),
        "several_runs": list(_several_runs(options.run_simulations, options.resamples // 4)),
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")


def _one_run(simulations: int, resamples: int) -> Iterator[dict[str, object]]:
    generator = np.random.default_rng(0)
    for kind in ("binary", "average of 8"):
        for problems in (30, 83, 500):
            for mean in (0.05, 0.5, 0.95):
                draws = simulate(generator, kind, problems, mean, simulations)
                used, percentile = [], []
                for seed, values in enumerate(draws):
                    column = values[:, None]
                    used += column_intervals(column, [UNIT], resamples=resamples, seed=seed)
                    percentile.append(_percentile(column, resamples, seed))
                cell = {"kind": kind, "problems": problems, "mean": mean}
                yield _told({**cell, **_held(used, mean), "percentile": _held(percentile, mean)})


def _several_runs(simulations: int, resamples: int) -> Iterator[dict[str, object]]:
    generator = np.random.default_rng(1)
    for problems, spread in itertools.product((30, 83, 500), (0.0, 0.1, 0.3)):
        for runs in (2, 3, 5, 8):
            both, problems_alone = [], []
            for seed in range(simulations):
                odds = generator.normal(0, 1.5, (problems, 1)) + generator.normal(0, spread, (1, runs))
                odds = odds + generator.normal(0, 0.3, (problems, runs))
                values = generator.binomial(8, 1 / (1 + np.exp(-odds))) / 8
                both.append(interval_over_runs([values], UNIT, resamples=resamples, seed=seed))
                column = values.mean(axis=1, keepdims=True)
                problems_alone += column_intervals(column, [UNIT], resamples=resamples, seed=seed)
            cell = {"problems": problems, "spread": spread, "runs": runs}
            alone = _held(problems_alone, 0.5)  # the odds are symmetric about 1
            yield _told({**cell, **_held(both, 0.5), "problems_alone": alone})


def simulate(generator: np.random.Generator, kind: str, problems: int, mean: float, count: int) -> np.ndarray:
    """Values of each problem, for `count` benchmarks."""
    if kind == "binary":
        return (generator.random((count, problems)) < mean).astype(float)
    difficulty = generator.beta(mean, 1 - mean, size=(count, problems))
    return generator.binomial(8, difficulty) / 8


def _percentile(column: np.ndarray, resamples: int, seed: int) -> Interval:
    draws = resampled_means(column, resamples, np.random.default_rng(seed))[:, 0]
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(float(column.mean()), float(low), float(high))


def _held(intervals: Iterable[Interval], truth: float) -> dict[str, float]:
    """Coverage, its standard error, and the mean width."""
    found = list(intervals)
    # 0.05 is the sum of many floats in a resample: equality is meant up to rounding
    coverage = sum(i.low - 1e-12 <= truth <= i.high + 1e-12 for i in found) / len(found)
    return {
        "coverage": coverage,
        "error": math.sqrt(0.95 * 0.05 / len(found)),
        "width": sum(i.high - i.low for i in found) / len(found),
    }


def _told(cell: dict[str, object]) -> dict[str, object]:
    print(json.dumps(cell), flush=True)
    return cell


if __name__ == "__main__":
    main()
