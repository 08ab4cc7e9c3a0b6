"""Arrays as the page carries them: quantised, byte by byte, deflated, base64.

    {"code": "linear", "bytes": 2, "step": 0.0009765625, "data": "eJxj..."}

| code | stored | value |
|---|---|---|
| whole | unsigned, as many bytes as the largest needs | q |
| linear | uint16; the finest step of 2^-k, at least 1/1024, that reaches all of them | (q - 32768) step |
| rooted | uint16; the step is sqrt(largest) / levels: fine near 0, to tell probabilities near 1 apart | (q step)^2 |
| single | float32 | |

`data`: all first (lowest) bytes, then all second ones, and so on, which deflates better; zlib format; base64. store.js
is the other half. Values that are not finite become the largest of their sign, NaN becomes 0.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FINEST = 1 / 1024


def whole(values: NDArray[Any]) -> dict[str, Any]:
    """Counts, indexes, ranks."""
    largest = int(values.max(initial=0))
    width = next(width for width in (1, 2, 3, 4) if largest < 256**width or width == 4)
    return {"code": "whole", "bytes": width, "data": _data(values.astype("<u4"), width)}


def linear(values: NDArray[Any]) -> dict[str, Any]:
    """Gaps: an error of half a step anywhere."""
    finite = np.nan_to_num(values.astype(np.float64), posinf=1e6, neginf=-1e6)
    largest = float(np.abs(finite).max(initial=0.0))
    step = max(_FINEST, 2.0 ** math.ceil(math.log2(largest / 32767))) if largest else _FINEST
    stored = np.clip(np.round(finite / step) + 32768, 0, 65535).astype("<u2")
    return {"code": "linear", "bytes": 2, "step": step, "data": _data(stored, 2)}


def rooted(values: NDArray[Any], levels: int = 65_535) -> dict[str, Any]:
    """What is 0 or more and has most to tell near 0: nll, entropy."""
    roots = np.sqrt(np.clip(np.nan_to_num(values.astype(np.float64), posinf=1e6), 0, None))
    step = float(roots.max(initial=0.0)) / levels or 1.0
    return {
        "code": "rooted",
        "bytes": 2,
        "step": step,
        "data": _data(np.round(roots / step).astype("<u2"), 2),
    }


def single(values: NDArray[Any]) -> dict[str, Any]:
    """Sums, which have to be right."""
    return {"code": "single", "bytes": 4, "data": _data(values.astype("<f4"), 4)}


def _data(values: NDArray[Any], width: int) -> str:
    """The lowest `width` bytes of each value, little end first, one plane after the other."""
    planes = np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize)[:, :width].T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode()
