r"""Shares of the variance over a grid of settings: of the margin, of the bandwidth.

    >>> shares({(0, 1): [10], (1, 1): [10], (0, 2): [20], (1, 2): [20]})["bandwidth"]
    1.0

A two-way analysis of variance: eta squared with sums of squares of type II. With RSS(model) the residual sum of squares
of a least squares fit to all scores, and total the sum of squares around their mean:

    margin       (RSS(tau) - RSS(m + tau)) / total          what m adds to tau
    bandwidth    (RSS(m) - RSS(m + tau)) / total            what tau adds to m
    interaction  (RSS(m + tau) - RSS(cells)) / total        what only both together explain
    residual     RSS(cells) / total                         differences of seeds within a cell; 0 with one seed
    shared       1 - the sum of these                       what either could explain, where the grid is not full

No straight line is assumed, so the shares depend on which values were tried.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trimsft.intervals import Array, Interval, bias_corrected, resampled_means
from trimsft.study.results import Summary
from trimsft.tables import rounded

Setting: TypeAlias = tuple[float, float]  # (margin, bandwidth)
PARTS = ("margin", "bandwidth", "interaction", "residual", "shared")
RESAMPLES = 2_000
HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told"  # the verdicts on a claim


@dataclass(frozen=True)
class Sensitivity:
    """The shares with their intervals, and what they say."""

    shares: Mapping[str, Interval]  # by part
    difference: Interval  # bandwidth - margin, of the variance seen
    settings: int
    seeds: int  # the fewest of any setting

    @property
    def verdict(self) -> str:
        return verdict_of(self.difference)

    def sentence(self) -> str:
        if math.isnan(self.difference.value):
            return f"All {self.settings} settings score the same: there is no variance to explain."
        texts = {
            part: "{} % [{}, {}]".format(*(rounded(100 * end, 0) for end in (one.value, one.low, one.high)))
            for part, one in self.shares.items()
        }
        text = (
            f"Over {self.settings} settings, tau explains {texts['bandwidth']} of the variance, m {texts['margin']}, "
            f"both together {texts['interaction']} more"
        )
        if self.seeds > 1:
            text += f", seeds {texts['residual']}"
        if abs(self.shares["shared"].value) > 0.005:
            text += f"; {texts['shared']} could be either's, as the grid is not full"
        words = {
            HOLDS: "tau matters more than m",
            FAILS: "m matters more than tau",
            OPEN: "Which matters more cannot be told",
        }
        value, low, high = (100 * bound for bound in self.difference.as_dict().values())
        return f"{text}. {words[self.verdict]} (difference {value:+.0f} points [{low:+.0f}, {high:+.0f}])."


def verdict_of(difference: Interval) -> str:
    """Return HOLDS above 0, FAILS below it, OPEN where the interval has 0 in it, or is none."""
    if difference.low > 0:
        return HOLDS
    return FAILS if difference.high < 0 else OPEN


def shares(scores: Mapping[Setting, Sequence[float]]) -> dict[str, float]:
    """Return what explains the variance of scores by setting, one or more (seeds) each; NaN where nothing varies."""
    values = np.array([value for setting in sorted(scores) for value in scores[setting]], dtype=np.float64)
    parts, _ = _shares(_bases({setting: len(of) for setting, of in scores.items()}), values[:, None])
    return dict(zip(PARTS, parts[:, 0].tolist(), strict=True))


def sensitivity(
    scores: Mapping[Setting, Sequence[Sequence[Array]]], *, resamples: int = RESAMPLES, seed: int = 0
) -> Sensitivity:
    """Return the shares of the mean over benchmarks, with 95 % intervals over problems and seeds.

    Args:
        scores: by setting, for each seed, for each benchmark: the score of every problem, the same problems everywhere.

    A resample draws the problems, the same ones for all settings, and the seeds of each setting. Noise adds to what the
    settings differ by, in the scores as in the resamples, so the intervals are bias-corrected. The shares are of the
    scores as they are, noise included.
    """
    settings, rng = sorted(scores), np.random.default_rng(seed)
    counts = [len(scores[setting]) for setting in settings]
    bases = _bases(dict(zip(settings, counts, strict=True)))
    runs = [run for setting in settings for run in scores[setting]]
    strata = [np.stack(column, axis=1) for column in zip(*runs, strict=True)]  # each [problems, runs]
    means_N = np.mean([stratum.mean(axis=0) for stratum in strata], axis=0)
    seen, seen_total = _shares(bases, means_N[:, None])
    draws_RN = np.mean([resampled_means(stratum, resamples, rng) for stratum in strata], axis=0)
    by_setting = np.split(draws_RN, np.cumsum(counts)[:-1], axis=1)
    drawn, totals = _shares(bases, np.concatenate([resample_seeds(runs_RS, rng) for runs_RS in by_setting], axis=1).T)
    # in units of the variance seen: of the resampled one, mere noise would show a difference in every fourth sweep
    scaled = (drawn[1] - drawn[0]) * totals / seen_total
    return Sensitivity(
        {part: bias_corrected(float(seen[n, 0]), drawn[n]) for n, part in enumerate(PARTS)},
        bias_corrected(float(seen[1, 0] - seen[0, 0]), scaled),
        settings=len(settings),
        seeds=min(counts),
    )


def sensitivity_of(
    summaries: Sequence[Summary], metric: str = "average", *, resamples: int = RESAMPLES
) -> Sensitivity | None:
    """Analyse trimmed settings that differ in nothing but margin and bandwidth; None where there are too few."""
    bands = {summary.setting.band: summary for summary in summaries if summary.setting.band is not None}
    # a setting that shares neither margin nor bandwidth with any other cannot tell one from the other
    kept = {
        band: summary
        for band, summary in bands.items()
        if any((band[0] == other[0]) != (band[1] == other[1]) for other in bands)
    }
    is_plane = len(kept) >= 4 and all(len({band[n] for band in kept}) >= 2 for n in (0, 1))
    if not is_plane:
        return None
    scores = {
        band: [[score.values(metric) for score in run.values()] for run in summary.runs.values()]
        for band, summary in kept.items()
    }
    return sensitivity(scores, resamples=resamples)


def _bases(counts: Mapping[Setting, int]) -> list[Array]:
    """Return orthonormal bases of what m, tau, both and cells can explain, for so many runs of each sorted setting."""
    settings = sorted(counts)
    repeats = [counts[setting] for setting in settings]
    factors = [np.repeat([s[n] for s in settings], repeats) for n in (0, 1)] + [np.repeat(range(len(repeats)), repeats)]
    of_m, of_tau, of_cell = ((one[:, None] == np.unique(one)[None, :]).astype(np.float64) for one in factors)
    bases = []
    for columns in (of_m, of_tau, np.hstack([of_m, of_tau]), of_cell):
        left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
        # those of m and tau together span one dimension less than they are
        bases.append(left[:, sizes > sizes[0] * len(columns) * np.finfo(np.float64).eps])
    return bases


def _shares(bases: Sequence[Array], values_NR: Array) -> tuple[Array, Array]:
    """Return [parts, R] for each column of scores, and its total; NaN where all are alike, but for rounding."""
    centred = values_NR - values_NR.mean(axis=0)
    total = np.square(centred).sum(axis=0)
    total = np.where(np.sqrt(total) > 1e-9 * np.abs(values_NR).max(axis=0), total, np.nan)
    by_m, by_tau, by_both, by_cell = (np.square(basis.T @ centred).sum(axis=0) for basis in bases)
    parts = np.stack([by_both - by_tau, by_both - by_m, by_cell - by_both, total - by_cell]) / total
    parts = np.round(np.vstack([parts, 1 - parts.sum(axis=0)]), 12)
    return np.asarray(parts + 0.0), total  # no -0


def resample_seeds(runs_RS: Array, rng: np.random.Generator) -> Array:
    """Return [R, S]: seeds drawn with replacement, their deviations widened by what drawing S of S takes away."""
    count = runs_RS.shape[1]
    if count == 1:
        return runs_RS
    centre = runs_RS.mean(axis=1, keepdims=True)
    drawn = np.take_along_axis(runs_RS, rng.integers(count, size=runs_RS.shape), axis=1)
    return np.asarray(centre + (drawn - centre) * math.sqrt(count / (count - 1)))
