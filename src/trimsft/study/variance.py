r"""How much of what a sweep shows is due to the margin, how much to the bandwidth.

    >>> shares({(0, 1): [10], (1, 1): [10], (0, 2): [20], (1, 2): [20]})["bandwidth"]
    1.0

A two-way analysis of variance. With the factors m and tau, RSS(model) the residual sum of squares of a least squares
fit to all scores, and total the sum of squares around their mean:

    margin       (RSS(tau) - RSS(m + tau)) / total          what m adds to tau
    bandwidth    (RSS(m) - RSS(m + tau)) / total            what tau adds to m
    interaction  (RSS(m + tau) - RSS(cells)) / total        what only both together explain
    residual     RSS(cells) / total                         differences of seeds within a cell; 0 with one seed
    shared       1 - the sum of these

These are eta squared with sums of squares of type II. On a full grid with as many seeds everywhere they are those of
any textbook, and `shared` is 0. Where cells are missing, m and tau are entangled: what either could explain as well is
`shared` (below 0 where each needs the other).

Each level is a level: no straight line is assumed, so the shares depend on which values were tried.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trimsft.intervals import Array, Interval, bias_corrected, resampled_means
from trimsft.study.results import Summary, in_common
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
        texts = {part: _percent(share) for part, share in self.shares.items()}
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
    design = _Design({setting: len(values) for setting, values in scores.items()})
    values = np.array([value for setting in design.settings for value in scores[setting]], dtype=np.float64)
    return dict(zip(PARTS, design.shares(values[:, None])[:, 0].tolist(), strict=True))


def sensitivity(
    scores: Mapping[Setting, Sequence[Sequence[Array]]], *, resamples: int = RESAMPLES, seed: int = 0
) -> Sensitivity:
    """Return the shares of the mean over benchmarks, with 95 % intervals over problems and seeds.

    Args:
        scores: by setting, for each seed, for each benchmark: the score of every problem, the same problems everywhere.

    A resample draws the problems, the same ones for all settings, and the seeds of each setting, with their deviations
    widened by sqrt(S / (S - 1)), which drawing S of S takes away. Noise adds to what the settings differ by, in the
    scores as in the resamples, so the intervals are bias-corrected. The shares are of the scores as they are, noise
    included.
    """
    design = _Design({setting: len(runs) for setting, runs in scores.items()})
    runs = [run for setting in design.settings for run in scores[setting]]
    strata = [np.stack(column, axis=1) for column in zip(*runs, strict=True)]  # each [problems, runs]
    means_N = np.mean([stratum.mean(axis=0) for stratum in strata], axis=0)
    seen = design.shares(means_N[:, None])[:, 0]
    draws_NR = _resampled(design, strata, resamples, np.random.default_rng(seed))
    drawn = design.shares(draws_NR)
    # in units of the variance seen: of the resampled one, mere noise would show a difference in every fourth sweep
    scaled = (drawn[1] - drawn[0]) * design.total(draws_NR) / design.total(means_N[:, None])
    return Sensitivity(
        {part: bias_corrected(float(seen[n]), drawn[n]) for n, part in enumerate(PARTS)},
        bias_corrected(float(seen[1] - seen[0]), scaled),
        settings=len(design.settings),
        seeds=min(map(len, scores.values())),
    )


def sensitivity_of(
    summaries: Sequence[Summary], metric: str = "average", *, resamples: int = RESAMPLES
) -> Sensitivity | None:
    """Analyse trimmed settings that differ in nothing but margin and bandwidth; None where there are too few."""
    bands = {summary.setting.band: summary for summary in summaries if summary.setting.band is not None}
    # who shares neither margin nor bandwidth with any other cannot tell one from the other
    kept = {
        band: summary
        for band, summary in bands.items()
        if any((band[0] == other[0]) != (band[1] == other[1]) for other in bands)
    }
    is_plane = len(kept) >= 4 and all(len({band[n] for band in kept}) >= 2 for n in (0, 1))
    names = in_common(kept.values()) if is_plane else ()
    if not names:
        return None
    scores = {
        band: [[run[name].values(metric) for name in names] for run in summary.with_all(names).values()]
        for band, summary in kept.items()
    }
    return sensitivity(scores, resamples=resamples)


class _Design:
    """Which cells there are, and the projections onto what m, tau, both and cells can explain."""

    def __init__(self, counts: Mapping[Setting, int]) -> None:
        if not counts or min(counts.values()) < 1:
            raise ValueError("scores: must be one or more for each setting, got none")
        self.settings = sorted(counts)
        self.counts = [counts[setting] for setting in self.settings]
        margins, bandwidths = (np.repeat([s[n] for s in self.settings], self.counts) for n in (0, 1))
        if len(set(margins)) < 2 or len(set(bandwidths)) < 2:
            raise ValueError(
                f"scores: must be of two margins and two bandwidths or more, got margins "
                f"{sorted(set(margins.tolist()))} and bandwidths {sorted(set(bandwidths.tolist()))}"
            )
        of_m, of_tau = _levels(margins), _levels(bandwidths)
        cell = np.repeat(np.arange(len(self.settings), dtype=np.float64), self.counts)
        self._bases = [_basis(columns) for columns in (of_m, of_tau, np.hstack([of_m, of_tau]), _levels(cell))]

    def shares(self, values_NR: Array) -> Array:
        """Return [parts, R] for each column of scores."""
        centred, total = values_NR - values_NR.mean(axis=0), self.total(values_NR)
        by_m, by_tau, by_both, by_cell = (np.square(basis.T @ centred).sum(axis=0) for basis in self._bases)
        parts = np.stack([by_both - by_tau, by_both - by_m, by_cell - by_both, total - by_cell]) / total
        parts = np.round(np.vstack([parts, 1 - parts.sum(axis=0)]), 12)
        return np.asarray(parts + 0.0)  # no -0

    @staticmethod
    def total(values_NR: Array) -> Array:
        """Return the sum of squares of each column; NaN where all are alike, but for rounding."""
        total = np.square(values_NR - values_NR.mean(axis=0)).sum(axis=0)
        largest = np.abs(values_NR).max(axis=0)
        return np.asarray(np.where(np.sqrt(total) > 1e-9 * largest, total, np.nan))


def _levels(values: Array) -> Array:
    """Return a column of 0 and 1 for each level."""
    return np.asarray(values[:, None] == np.unique(values)[None, :], dtype=np.float64)


def _basis(columns: Array) -> Array:
    """Return an orthonormal basis of the columns; those of m and tau together span one dimension less than they are."""
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    basis: Array = left[:, sizes > sizes[0] * len(columns) * np.finfo(np.float64).eps]
    return basis


def _resampled(design: _Design, strata: Sequence[Array], resamples: int, rng: np.random.Generator) -> Array:
    """Return [runs, R]: the mean over benchmarks of each run, on other problems and with other seeds."""
    draws_RN = np.mean([resampled_means(stratum, resamples, rng) for stratum in strata], axis=0)
    by_setting = np.split(draws_RN, np.cumsum(design.counts)[:-1], axis=1)
    return np.concatenate([resample_seeds(runs_RS, rng) for runs_RS in by_setting], axis=1).T


def resample_seeds(runs_RS: Array, rng: np.random.Generator) -> Array:
    """Return [R, S]: seeds drawn with replacement, their deviations widened by what drawing S of S takes away."""
    count = runs_RS.shape[1]
    if count == 1:
        return runs_RS
    centre = runs_RS.mean(axis=1, keepdims=True)
    drawn = np.take_along_axis(runs_RS, rng.integers(count, size=runs_RS.shape), axis=1)
    return np.asarray(centre + (drawn - centre) * math.sqrt(count / (count - 1)))


def _percent(share: Interval) -> str:
    value, low, high = (rounded(100 * end, 0) for end in (share.value, share.low, share.high))
    return f"{value} % [{low}, {high}]"
