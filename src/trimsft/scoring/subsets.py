"""What k samples would have scored, averaged exactly over every way to choose them from the n that were drawn.

>>> pass_at_k(n=8, correct=1, k=4)
0.5
>>> majority_at_k([0, 0, 1, None], k=4, correct={0: True, 1: False})
1.0
>>> majority_at_k([0, 0, 1, None], k=2, correct={0: True, 1: False})  # 6 pairs: 3 won, 2 tied, 1 lost
0.6666666666666666
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

MOST_SAMPLES = 1000
"""The number of ways to choose among more samples than this does not fit a float64."""


def pass_at_k(n: int, correct: int, k: int) -> float:
    """The chance that k of n samples, `correct` of which are right, hold a right one: 1 - C(n-c, k) / C(n, k)."""
    if not 0 <= correct <= n:
        raise ValueError(f"correct: must be from 0 to n = {n}, got {correct}")
    _require_subset(n, k)
    every = math.comb(n, k)
    # integers of any size; subtracted before the one rounding, so that small chances keep their digits
    return (every - math.comb(n - correct, k)) / every


@functools.lru_cache(maxsize=16_384)
def pass_curve(correct: int, n: int) -> NDArray[np.float64]:
    """pass@k for k = 1 to n."""
    curve = np.array([pass_at_k(n, correct, k) for k in range(1, n + 1)])
    curve.setflags(write=False)  # it is cached
    return curve


def majority_at_k(clusters: Sequence[int | None], k: int, *, correct: Mapping[int, bool]) -> float:
    """The chance that the vote of k of these samples elects a correct cluster.

    Args:
        clusters: what each sample votes for, as `cluster` gives it; None abstains.
        correct: whether the answer of each cluster is right.

    A tie scores the share of correct clusters among the tied ones; where all abstain, the score is 0. Clusters are
    those of all n samples: a subset is not clustered anew.
    """
    votes = Counter(number for number in clusters if number is not None)
    unknown = sorted(votes.keys() - correct.keys())
    if unknown:
        raise ValueError(f"correct: must say whether each cluster is right, {unknown[0]} is missing")
    _require_subset(len(clusters), k)
    right = sorted(size for number, size in votes.items() if correct[number])
    wrong = sorted(size for number, size in votes.items() if not correct[number])
    return float(majority_curve(tuple(right), tuple(wrong), len(clusters))[k - 1])


@functools.lru_cache(maxsize=16_384)
def majority_curve(right: tuple[int, ...], wrong: tuple[int, ...], n: int) -> NDArray[np.float64]:
    """majority@k for k = 1 to n, from the sizes of the right and the wrong clusters; the other samples abstain.

    The winners' number of votes, `top`, is fixed in turn. `ways[k, j]` counts the k-subsets in which no cluster has
    more votes and j clusters have as many; `credit[k, j]` adds up the right ones among those j. Both grow by one
    cluster at a time. All terms are positive, so float64 keeps 13 digits or more.
    """
    if n > MOST_SAMPLES:
        raise ValueError(f"n: majority votes are counted for up to {MOST_SAMPLES} samples a problem, got {n}")
    abstaining = n - sum(right) - sum(wrong)
    if abstaining < 0 or min(right + wrong, default=1) < 1:
        raise ValueError(f"clusters: sizes must be 1 or more and add up to at most n = {n}, got {right + wrong}")
    won = np.zeros(n + 1)
    for top in range(1, max(right + wrong, default=0) + 1):
        most_tied = sum(size >= top for size in right + wrong)
        ways, credit = np.zeros((n + 1, most_tied + 1)), np.zeros((n + 1, most_tied + 1))
        ways[0, 0] = 1
        for size, is_right in [(s, True) for s in right] + [(s, False) for s in wrong]:
            credit = _with_cluster(credit, size, top)
            if is_right and size >= top:
                credit[top:, 1:] += math.comb(size, top) * ways[: n + 1 - top, :-1]
            ways = _with_cluster(ways, size, top)
        won += (credit[:, 1:] / np.arange(1, most_tied + 1)).sum(axis=1)
    won = _with_cluster(won[:, None], abstaining, abstaining + 1)[:, 0]
    curve: NDArray[np.float64] = won[1:] / [float(math.comb(n, k)) for k in range(1, n + 1)]
    curve = np.minimum(curve, 1.0)  # rounding may end a little above
    curve.setflags(write=False)  # it is cached
    return curve


def _with_cluster(ways: NDArray[np.float64], size: int, top: int) -> NDArray[np.float64]:
    """Let `size` more samples join each k-subset with up to `top` votes; `top` of them make one more winner."""
    grown = ways.copy()
    for votes in range(1, min(size, top - 1) + 1):
        grown[votes:] += math.comb(size, votes) * ways[:-votes]
    if size >= top:
        grown[top:, 1:] += math.comb(size, top) * ways[:-top, :-1]
    return grown


def _require_subset(n: int, k: int) -> None:
    if n < 1:
        raise ValueError(f"n: must be 1 sample or more, got {n}")
    if not 1 <= k <= n:
        raise ValueError(f"k: must be from 1 to n = {n}, got {k}")
