"""Numbers as the page carries them: arrays in few characters, and the whole corpus in few numbers.

    {"code": "linear", "bytes": 2, "step": 0.0009765625, "data": "eJxj..."}

| code | stored | value |
|---|---|---|
| whole | unsigned, as many bytes as the largest needs | q |
| linear | uint16; the finest step of 2^-k, at least 1/1024, that reaches all of them | (q - 32768) step |
| rooted | uint16; the step is sqrt(largest) / levels: fine near 0, to tell probabilities near 1 apart | (q step)^2 |
| single | float32 | |

`data`: all first (lowest) bytes, then all second ones, and so on, which deflates better; zlib format; base64. store.js
is the other half. Values that are not finite become the largest of their sign, NaN becomes 0.

Statistics for any margin and bandwidth are computed by the page from the cells of the corpus. Tokens are put into cells
by category and gap. A corpus of at most `CELLS` tokens gives each token a cell of its own, and the page's figures are
those of `statistics.diagnose`. A larger one is put into bins of the finest width 2^-k that keeps to that number (a
million tokens: about 1/128). A cell keeps its count, mean and standard deviation of the gap, and sums: of gradient
norms g, and for DFT and FSFT, whose weights follow from nll and not from the gap, of w and w g. AutoTrim's follow from
nll, too, and from the moment of its training: for it a cell keeps mean and standard deviation of nll.

Weights of TrimSFT and its halves are functions f of the gap alone; their sums over a cell are count * (f(mean - sd) +
f(mean + sd)) / 2, which is right to the third order. A border that cuts a cell takes a share of it as if its tokens
were spread evenly over mean +- sqrt(3) sd, so that shares are off by less than the cells that borders cut. Sums of
AutoTrim's weights are taken likewise, by nll, which in a cell of many tokens varies more than the gap: the page calls
them approximate.
"""

import base64
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.objectives.paper import HIGH_WEIGHT
from trimsft.tokens.statistics.weighting import objective_of, weights_of
from trimsft.tokens.table import TokenTable

_FINEST_STEP = 1 / 1024
CELLS = 32_768  # of one run; where there are many runs, fewer (see `cells_each`)
_CELLS_OF_ALL_RUNS = 100_000
_AT_ONCE = 2**19  # tokens
_FINEST_CELL, _COARSEST_CELL = 1 / 256, 4.0
_WEIGHTED_BY_NLL = ("dft", "fsft")
"""Objectives whose weights are no functions of the gap; the sums over their weights are kept as they are."""


# ---- arrays


def whole(values: NDArray[Any]) -> dict[str, Any]:
    """Counts, indexes, ranks."""
    largest = int(values.max(initial=0))
    width = next(width for width in (1, 2, 3, 4) if largest < 256**width or width == 4)
    return {"code": "whole", "bytes": width, "data": _data(values.astype("<u4"), width)}


def linear(values: NDArray[Any]) -> dict[str, Any]:
    """Gaps: an error of half a step anywhere."""
    finite = np.nan_to_num(values.astype(np.float64), posinf=1e6, neginf=-1e6)
    largest = float(np.abs(finite).max(initial=0.0))
    step = max(_FINEST_STEP, 2.0 ** math.ceil(math.log2(largest / 32767))) if largest else _FINEST_STEP
    stored = np.clip(np.round(finite / step) + 32768, 0, 65535).astype("<u2")
    return {"code": "linear", "bytes": 2, "step": step, "data": _data(stored, 2)}


def rooted(values: NDArray[Any], levels: int = 65_535) -> dict[str, Any]:
    """What is 0 or more and has most to tell near 0: nll, entropy."""
    roots = np.sqrt(np.clip(np.nan_to_num(values.astype(np.float64), posinf=1e6), 0, None))
    step = float(roots.max(initial=0.0)) / levels or 1.0
    return {"code": "rooted", "bytes": 2, "step": step, "data": _data(np.round(roots / step).astype("<u2"), 2)}


def single(values: NDArray[Any]) -> dict[str, Any]:
    """Sums, which have to be right."""
    return {"code": "single", "bytes": 4, "data": _data(values.astype("<f4"), 4)}


def _data(values: NDArray[Any], width: int) -> str:
    """The lowest `width` bytes of each value, little end first, one plane after the other."""
    planes = np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize)[:, :width].T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()


# ---- the corpus


def cells_each(runs: int) -> int:
    """Cells that each of so many runs may have, so that the file stays small."""
    return min(CELLS, _CELLS_OF_ALL_RUNS // max(1, runs))


def corpus_cells(table: TokenTable, parameters: Mapping[str, float], most: int = CELLS) -> dict[str, Any]:
    """Packed cells of one table, sorted by category and gap, and for DFT and FSFT what needs no cells."""
    totals = {name: {"squares": 0.0, "high": 0} for name in _WEIGHTED_BY_NLL}
    cells, width = np.zeros((len(_FIELDS), 0)), 0.0 if len(table) <= most else _FINEST_CELL
    for start in range(0, len(table), _AT_ONCE):
        columns = {name: values[start : start + _AT_ONCE] for name, values in table.columns.items()}
        part = TokenTable(columns, {}, table.metadata)
        weights = {name: weights_of(objective_of(name, parameters), part) for name in _WEIGHTED_BY_NLL}
        for name, values in weights.items():
            totals[name]["squares"] += float(np.square(values).sum())
            totals[name]["high"] += int((values > HIGH_WEIGHT).sum())
        cells = np.concatenate([cells, _each_token(part, weights)], axis=1)
        while (joined := _joined(cells, width)).shape[1] > most and 0 < width < _COARSEST_CELL:
            width *= 2
        cells = joined
    held = dict(zip(_FIELDS, cells, strict=True))
    count = held["count"]
    columns = {
        "count": whole(count),
        "category": whole(held["category"]),
        "mean": single(held["gap"]),
        "spread": single(np.sqrt(held["gap_squares"] / count)),
        "nll": single(held["nll"]),
        "nll_spread": single(np.sqrt(held["nll_squares"] / count)),
        "norm": single(held["norm"]),
        **{name: single(held[name]) for name in _FIELDS if "." in name},
    }
    return {"tokens": len(table), "width": width, "columns": columns, "totals": totals}


_SUMMED = ("norm", *(f"{name}.{what}" for name in _WEIGHTED_BY_NLL for what in ("w", "mass")))
_FIELDS = ("category", "count", "gap", "gap_squares", "nll", "nll_squares", *_SUMMED)
"""Of a cell: means of gap and nll, sums of the squares of what lies off them, and sums."""


def _each_token(part: TokenTable, weights: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """A cell for each token; [fields, tokens]."""
    none, norm = np.zeros(len(part)), part["gradient_norm"].astype(np.float64)
    sums = [norm, *(values for of_name in weights.values() for values in (of_name, of_name * norm))]
    return np.stack([part["category"], none + 1, part["gap"], none, part["nll"], none, *sums]).astype(np.float64)


def _joined(cells: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """Cells in order of category and gap; those of one category in one bin of this width become one, with 0 none."""
    category, count, gap, gap_squares, nll, nll_squares, *sums = cells[:, np.lexsort((cells[2], cells[0]))]
    new = np.ones(len(gap), dtype=bool)
    if width:
        new[1:] = (np.diff(np.floor(gap / width)) != 0) | (np.diff(category) != 0)
    starts = np.flatnonzero(new)
    if not len(starts):
        return cells

    def summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.add.reduceat(values, starts)

    total, sizes = summed(count), np.diff(np.append(starts, len(gap)))

    def moments(mean: NDArray[np.float64], squares: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        common = summed(count * mean) / total
        return [common, summed(squares + count * (mean - np.repeat(common, sizes)) ** 2)]

    parts = [category[starts], total, *moments(gap, gap_squares), *moments(nll, nll_squares), *map(summed, sums)]
    return np.stack(parts)
