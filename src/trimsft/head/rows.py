"""Tokens that nearly every row has."""

from collections import Counter
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from trimsft.head.problem import IGNORED


def ids_of_nearly_all(rows: Collection[Collection[int]], *, share: float = 0.9, most: int = 64) -> tuple[int, ...]:
    """Trained ids that so many of these rows of labels have at least; the most frequent, if they are too many."""
    counts: Counter[int] = Counter()
    for labels in rows:
        counts.update({*labels} - {IGNORED})
    return tuple(sorted(token for token, count in counts.most_common(most) if count >= share * len(rows)))


def evenly_spread(rows: int, most: int = 1000) -> NDArray[np.intp]:
    """Places of at most so many of the rows."""
    return np.unique(np.linspace(0, rows - 1, most).astype(int))
