"""The whole corpus in few numbers, from which the page computes statistics for any margin and bandwidth.

Tokens are put into cells by category and gap. A corpus of at most `CELLS` tokens gives each token a cell of its own,
and the page's figures are those of `statistics.diagnose`. A larger one is put into bins of the finest width 2^-k that
keeps to that number (a million tokens: about 1/128). A cell keeps its count, mean and standard deviation of the gap,
and sums: of gradient norms g, and for DFT and FSFT, whose weights follow from nll and not from the gap, of w and w g.

Weights of TrimSFT and its halves are functions f of the gap alone; their sums over a cell are count * (f(mean - sd) +
f(mean + sd)) / 2, which is right to the third order. A border that cuts a cell takes a share of it as if its tokens
were spread evenly over mean +- sqrt(3) sd, so that shares are off by less than the cells that borders cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.report.page.packing import single, whole
from trimsft.tokens.statistics.weighting import HIGH_WEIGHT, objective_of, weights_of
from trimsft.tokens.table import TokenTable

CELLS = 32_768
"""Of one run; where there are many runs, fewer (see `cells_each`)."""
_ALL_RUNS = 100_000
_COARSEST = 4.0
BY_NLL = ("dft", "fsft")
"""Objectives whose weights are no functions of the gap; the sums over their weights are kept as they are."""


def cells_each(runs: int) -> int:
    """Cells that each of so many runs may have, so that the file stays small."""
    return min(CELLS, _ALL_RUNS // max(1, runs))


def corpus_cells(table: TokenTable, parameters: Mapping[str, float], most: int = CELLS) -> dict[str, Any]:
    """Packed cells of one table, sorted by category and gap, and for DFT and FSFT what needs no cells."""
    gap, norm = table["gap"].astype(np.float64), table["gradient_norm"].astype(np.float64)
    category = table["category"].astype(np.int64)
    order, starts, width = _cells(gap, category, most)
    count = np.diff(np.append(starts, len(gap)))

    def summed(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.add.reduceat(values[order], starts) if len(starts) else np.zeros(0)

    mean = summed(gap) / count
    off = gap[order] - np.repeat(mean, count)
    spread = np.sqrt(np.add.reduceat(off**2, starts) / count) if len(starts) else mean
    columns = {
        "count": whole(count),
        "category": whole(category[order][starts]),
        "mean": single(mean),
        "spread": single(spread),
        "norm": single(summed(norm)),
    }
    totals = {}
    for name in BY_NLL:
        weights = weights_of(objective_of(name, parameters), table)
        columns |= {f"{name}.w": single(summed(weights)), f"{name}.mass": single(summed(weights * norm))}
        totals[name] = {
            "squares": float(np.square(weights).sum()),
            "high": int((weights > HIGH_WEIGHT).sum()),
        }
    return {"tokens": len(gap), "width": width, "columns": columns, "totals": totals}


def _cells(
    gap: NDArray[np.float64], category: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], float]:
    """Tokens in order of category and gap, where each cell starts among them, and how wide the cells are."""
    order = np.lexsort((gap, category))
    if len(gap) <= most:
        return order, np.arange(len(gap)), 0.0
    width = 1 / 256
    while True:
        starts = _starts(np.floor(gap[order] / width), category[order])
        if len(starts) <= most or width >= _COARSEST:
            return order, starts, width
        width *= 2


def _starts(bins: NDArray[np.float64], category: NDArray[np.int64]) -> NDArray[np.int64]:
    new = np.ones(len(bins), dtype=bool)
    new[1:] = (np.diff(bins) != 0) | (np.diff(category) != 0)
    return np.flatnonzero(new)
