"""The other half of page/packing.py, as store.js has it, for tests that look into the page's data."""

import base64
import json
import re
import zlib
from typing import Any

import numpy as np


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """The values of a packed array."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype=np.uint8)
    planes = planes.reshape(packed["bytes"], -1)
    if packed["code"] == "single":
        return np.ascontiguousarray(planes.T).view("<f4")[:, 0]
    stored = sum(plane.astype(np.int64) << (8 * place) for place, plane in enumerate(planes))
    if packed["code"] == "linear":
        return (stored - 32768) * packed["step"]
    return (stored * packed["step"]) ** 2 if packed["code"] == "rooted" else stored


def page_data(text: str, room: str = "tokens") -> Any:
    """What a page tells the scripts of a room."""
    return json.loads(re.search(rf'id="data-{room}">(.*?)</script>', text, re.DOTALL)[1])
