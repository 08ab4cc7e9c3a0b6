"""The course of trainings in letters, for a terminal over ssh.

TrimSFT  running, step 34, 68 %, about 0:00:12 left
  loss                 ▇▆▅▄▃▃▂▂▂▁▁▁   0.0123
  gap: median          ▁▂▂▃▃▄▅▅▆▆▇█   4.51
"""

import itertools
import math
from collections.abc import Sequence

from trimsft.data.visible import visible
from trimsft.report.course import Logged
from trimsft.report.watch.follow import Snapshot, Training

BLOCKS = "▁▂▃▄▅▆▇█"
ROWS = {
    "loss": "loss",
    "nll": "nll",
    "gap_p95": "gap: 95 % are below",
    "gap_p50": "gap: median",
    "gap_p05": "gap: 5 % are below",
    "counts_from": "gap with weight 1/2",
    "gate": "gate x",
    "effective_ratio": "R_eff",
}
"""Fields of `Logged`, and how they are called."""
_NAME, _NUMBER = 20, 10  # letters of a name and of a number


def text_of(snapshot: Snapshot, width: int) -> str:
    """Each training in lines of this width."""
    lines = [line for run in snapshot.runs for line in _lines(run, width)]
    if snapshot.left_out:
        lines.append(f"{snapshot.left_out} more, which wrote longer ago, are left out")
    return "\n".join(lines)


def _lines(run: Training, width: int) -> list[str]:
    lines = [f"{_one_line(run.label)}  {_one_line(run.said)}"]
    room = max(8, width - _NAME - _NUMBER - 6)
    for field, name in ROWS.items():
        values = [_value(line, field) for line in run.course]
        known = [value for value in values if value is not None]
        if known:
            lines.append(f"  {name:<{_NAME}}{sparkline(values, room)}  {known[-1]:>{_NUMBER}.4g}")
    if run.band is not None:
        low, high = run.band
        lines.append(f"  {'band':<{_NAME}}{low:.3g} to {high:.3g}")
    if run.evaluations:
        step, nll = run.evaluations[-1]
        lines.append(f"  {'nll held out':<{_NAME}}{nll:.4g} at step {step}")
    return lines


def _value(line: Logged, field: str) -> float | None:
    value: float | None = getattr(line, field)
    return value if value is not None and math.isfinite(value) else None


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Values as blocks of eight heights, at most so many; each stands for the mean of its share, a space for none.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8), sparkline([1, 1, 3, 3], 2), sparkline([None, 2, 2], 8)
    ('▁▂▃▄▅▆▇█', '▁█', ' ▁▁')
    """
    count = min(width, len(values))
    edges = [len(values) * place // count for place in range(count + 1)]
    shares = [[value for value in values[low:high] if value is not None] for low, high in itertools.pairwise(edges)]
    means = [sum(share) / len(share) if share else None for share in shares]
    known = [mean for mean in means if mean is not None]
    low, span = min(known), max(known) - min(known)
    heights = [None if mean is None else round((mean - low) / (span or 1) * (len(BLOCKS) - 1)) for mean in means]
    return "".join(" " if height is None else BLOCKS[height] for height in heights)


def _one_line(text: str) -> str:
    """Names of folders, with nothing that acts on a terminal."""
    return visible(text).replace("\n", "↵").replace("\t", "⇥")
