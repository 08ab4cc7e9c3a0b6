"""Quantiles of a column of a token table, exact, in memory that does not grow with the table.

    quantiles(Column(table, "gap"), [0.25, 0.75])       # as np.quantile has them
    median(Column(table, "gap"))

A column that comes in one piece is given to numpy. One in several is gone through a few times: its numbers become
integers of the same order, whose leading 16 bits are counted first, then the next 16 bits of those integers alone that
begin like a wanted one, and so on: twice for float32, four times for float64.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimsft.tokens.table import TokenTable

Array: TypeAlias = NDArray[np.float64]
Values: TypeAlias = NDArray[Any] | Iterable[NDArray[Any]]
"""Numbers in one array, or in several that can be gone through again."""
_DIGIT = 16  # bits that are counted at once


class Column:
    """A column of a table, or what is computed of each of its parts, one part at a time."""

    def __init__(self, table: TokenTable, of: str | Callable[[TokenTable], NDArray[Any]]) -> None:
        self._table, self._of = table, of

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for part in self._table.parts():
            yield part[self._of] if isinstance(self._of, str) else self._of(part)


def pieces_of(values: Values) -> Iterable[NDArray[Any]]:
    """The arrays that hold the numbers."""
    return [values] if isinstance(values, np.ndarray) else values


def median(values: Values) -> float:
    """Their middle, as np.median has it."""
    single = _single_piece(values)
    return float(quantiles(values, [0.5])[0]) if single is None else float(np.median(single))


def quantiles(values: Values, shares: Sequence[float] | Array) -> Array:
    """The quantiles at these shares, between two numbers on the line from one to the other."""
    single, at = _single_piece(values), np.asarray(shares, dtype=np.float64)
    if single is not None:
        return np.asarray(np.quantile(single, at))
    places = (sum(map(len, pieces_of(values))) - 1) * at
    below = np.floor(places).astype(np.int64)
    low, high = _at_ranks(values, np.concatenate([below, np.ceil(places).astype(np.int64)])).reshape(2, -1)
    share = places - below
    # from the nearer end, as numpy does
    return np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1 - share))


def _single_piece(values: Values) -> Array | None:
    """All numbers, where one array holds them."""
    pieces = iter(pieces_of(values))
    first = next(pieces, np.empty(0))
    return first.astype(np.float64) if next(pieces, None) is None else None


def _at_ranks(values: Values, ranks: NDArray[np.int64]) -> Array:
    """The numbers that would have these places, from 0, if all were sorted."""
    first = next(iter(pieces_of(values)))
    whole = np.dtype(f"u{first.itemsize}")
    starts, left = np.zeros(len(ranks), dtype=whole), ranks.copy()
    for shift in range(8 * first.itemsize - _DIGIT, -1, -_DIGIT):
        known, which = np.unique(starts, return_inverse=True)
        sums = np.cumsum(_count_digits(values, known, shift, whole), axis=1)
        for at, row in enumerate(which.tolist()):
            digit = int(np.searchsorted(sums[row], left[at], side="right"))
            left[at] -= sums[row, digit - 1] if digit else 0
            starts[at] = (int(starts[at]) << _DIGIT) | digit
    return _from_ordered(starts, first.dtype)


def _count_digits(values: Values, known: NDArray[Any], shift: int, whole: np.dtype[Any]) -> NDArray[np.int64]:
    """How often each digit at this place follows each of the known beginnings; [beginnings, digits]."""
    counts = np.zeros((len(known), 2**_DIGIT), dtype=np.int64)
    is_first = shift + _DIGIT == 8 * whole.itemsize
    for piece in pieces_of(values):
        ordered = _ordered(piece, whole)
        begin = None if is_first else ordered >> whole.type(shift + _DIGIT)
        for row, start in enumerate(known):
            mine = ordered if begin is None else ordered[begin == start]
            digits = (mine >> whole.type(shift)) & whole.type(2**_DIGIT - 1)
            counts[row] += np.bincount(digits.astype(np.int64), minlength=2**_DIGIT)
    return counts


def _ordered(piece: NDArray[Any], whole: np.dtype[Any]) -> NDArray[Any]:
    """Unsigned integers in the order of the numbers: negative ones with all bits turned, others with the first."""
    bits = np.ascontiguousarray(piece + piece.dtype.type(0)).view(whole)  # -0 becomes 0
    sign = whole.type(1 << (8 * whole.itemsize - 1))
    return np.where(bits & sign, ~bits, bits | sign)


def _from_ordered(ordered: NDArray[Any], kind: np.dtype[Any]) -> Array:
    sign = ordered.dtype.type(1 << (8 * ordered.itemsize - 1))
    return np.where(ordered & sign, ordered & ~sign, ~ordered).view(kind).astype(np.float64)
