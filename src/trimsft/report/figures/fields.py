"""Scores against one field of training: a curve with its interval for each method.

field_curves({"TrimSFT": {1e-4: (29.8, 28.1, 31.4), ...}, "SFT": {...}}, "figures/curve.svg", field="learning_rate")
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimsft.report.figures.ablation import Spread
from trimsft.report.figures.style import COLUMN, FORMATS, GREY, SMALL, Line, legend_below, lines_of, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DECADE, _APART = 10, 1.6
"""On a logarithmic axis each value has its tick, where none is closer to the next than by this factor."""
_BESIDE = 0.12
"""Between two methods with the same word, as a share of the way to the next word."""
_LABELS = {"margin": "margin $m$", "bandwidth": r"bandwidth $\tau$", "gamma": r"$\gamma$"}


def field_curves(
    scores: Mapping[str, Mapping[Any, Spread]],
    path: str | Path,
    *,
    field: str,
    baseline: float | None = None,
    metric: str = "average@8, %",
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """`scores` by method and value of the field, in the unit of `metric`; `baseline` is SFT's where it has no curve.

    Numbers of more than a decade stand on a logarithmic axis; values that are no numbers stand side by side, unjoined.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if not any(scores.values()):
        raise ValueError("scores: there are none; give the value of at least one method")
    values = in_order({value for curve in scores.values() for value in curve})
    with matplotlib.rc_context(SMALL):
        figure = Figure(figsize=(COLUMN, 2.35), layout="constrained")
        axes = figure.subplots()
        looks = lines_of(list(scores))
        for number, (label, curve) in enumerate(scores.items()):
            beside = _BESIDE * (number - (len(scores) - 1) / 2)
            _curve(axes, plain(label), curve, values, looks[label], beside)
        if baseline is not None:
            axes.axhline(baseline, color=GREY, linewidth=0.9, linestyle=(0, (4, 2)), label="SFT")
        _set_ticks(axes, values)
        axes.set(xlabel=field_label(field), ylabel=plain(metric))
        legend_below(figure, axes, last="SFT")
        rows: list[list[object]] = [
            [label, value, *curve[value]] for label, curve in scores.items() for value in values if value in curve
        ]
        if baseline is not None:
            rows.append(["SFT", None, baseline, None, None])
        return save(figure, path, ["method", field, "value", "low", "high"], rows, formats)


def _curve(
    axes: Axes, label: str, curve: Mapping[Any, Spread], values: Sequence[Any], look: Line, beside: float
) -> None:
    kept = [value for value in values if value in curve]
    middle, low, high = np.array([curve[value] for value in kept]).T
    if are_numbers(values):
        (line,) = axes.plot(kept, middle, color=look.colour, marker=look.marker, label=label)
        line.set_dashes(look.dashes or (1, 0))
        axes.fill_between(kept, low, high, color=look.colour, alpha=0.18, linewidth=0)
        return
    places = [values.index(value) + beside for value in kept]
    spread = np.abs(np.stack([middle - low, high - middle]))
    axes.errorbar(places, middle, spread, color=look.colour, marker=look.marker, linestyle="", capsize=2, label=label)


def _set_ticks(axes: Axes, values: Sequence[Any]) -> None:
    texts = [plain(value_text(value)) for value in values]
    if not are_numbers(values):
        axes.set_xticks(range(len(values)), texts)
        axes.margins(x=0.2)
    elif min(values) > 0 and max(values) > _DECADE * min(values):
        axes.set_xscale("log")
        if len(values) < _DECADE and all(b > _APART * a for a, b in itertools.pairwise(values)):
            axes.set_xticks(values, texts)
            axes.set_xticks([], minor=True)


def in_order(values: set[Any]) -> list[Any]:
    """Numbers by size, anything else by its letters."""
    return sorted(values, key=None if are_numbers(values) else value_text)


def are_numbers(values: set[Any] | Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def value_text(value: Any) -> str:
    """As it is written on the command line."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_label(field: str) -> str:
    """With the paper's letter where it has one."""
    return _LABELS.get(field) or plain(field)
