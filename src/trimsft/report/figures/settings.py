"""Scores against what was varied: margin and bandwidth (Figure 3 of the paper), or any one field of training.

ablation_curves({(1.0, 0.5): (29.8, 28.1, 31.4), ...}, baseline=15.5)
field_curves({"TrimSFT": {1e-4: (29.8, 28.1, 31.4), ...}, "SFT": {...}}, field="learning_rate")
"""

from __future__ import annotations

import itertools
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trimsft.report.colours import VALUE_LINES, Line, lines_of
from trimsft.report.figures.style import (
    AMBER,
    COLUMN,
    Drawing,
    Spread,
    draw_band,
    draw_baseline,
    drawing,
    legend_below,
    plain,
    shown,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST = 3  # points of a curve, where any curve has as many
_DECADE, _APART = 10, 1.6
"""On a logarithmic axis each value has its tick, where none is closer to the next than by this factor."""
_BESIDE = 0.12  # between two methods with the same word, as a share of the way to the next word
Scores = Mapping[tuple[float, float], Spread]
"""By (margin, bandwidth)."""
_LETTERS = ("m", r"\tau")
_LABELS = {"margin": "margin $m$", "bandwidth": r"bandwidth $\tau$", "gamma": r"$\gamma$"}


def ablation_curves(
    scores: Scores,
    *,
    baseline: float | None = None,
    metric: str = "average@8, %",
    paper: tuple[Scores, float] | None = None,
) -> Drawing:
    """Figure 3: scores by (margin, bandwidth) in the unit of `metric`; `baseline` is SFT's.

    Args:
        paper: the paper's scores and its SFT, drawn beside ours on the same axes: points above SFT, where we have one.
    """
    if not scores:
        raise ValueError("scores: there are none; give the value of at least one (margin, bandwidth)")
    sources: dict[str, tuple[Scores, float | None]] = {"ours": (scores, baseline)}
    if paper is not None:
        sources["paper"] = paper
    above_sft = paper is not None and baseline is not None
    with drawing(COLUMN * len(sources), 2.45) as drawn:
        panels = drawn.figure.subplots(1, 2 * len(sources), sharey=True)
        for number, axes in enumerate(panels):
            fixed, source = divmod(number, len(sources))
            _draw_family(axes, list(sources.values())[source], fixed, above_sft=above_sft)
            if paper is not None:
                axes.set_title(("ours", "the paper")[source], loc="left")
        name = f"{metric.removesuffix(', %')}: points above SFT" if above_sft else metric
        panels[0].set_ylabel(textwrap.fill(name, 18))  # the axis is no longer than that
        return drawn.with_data(*_ablation_data(sources))


def _draw_family(axes: Axes, source: tuple[Scores, float | None], fixed: int, *, above_sft: bool) -> None:
    """Curves over one parameter, for some values of the other; `fixed` is 0 for the margin, 1 for the bandwidth."""
    scores, sft = source
    zero = sft or 0.0 if above_sft else 0.0
    by_value: dict[float, list[tuple[float, Spread]]] = defaultdict(list)
    for setting, spread in scores.items():
        by_value[setting[fixed]].append((setting[1 - fixed], spread))
    lengths = {value: len(points) for value, points in by_value.items()}
    for value, line in zip(chosen_curves(lengths), VALUE_LINES, strict=False):
        places, spreads = zip(*sorted(by_value[value]), strict=True)
        draw_band(axes, places, np.array(spreads) - zero, f"${_LETTERS[fixed]}={value:g}$", line)
    if sft is not None:
        draw_baseline(axes, sft - zero)
        look: Any = {"textcoords": "offset points", "ha": "right", "color": AMBER}
        where: Any = {"xy": (0.98, sft - zero), "xycoords": ("axes fraction", "data"), **look}
        if above_sft:
            axes.annotate(f"SFT: {sft:.1f} %", xytext=(0, -2), va="top", **where)
        elif not fixed:
            axes.annotate("SFT", xytext=(0, 1), va="bottom", **where)
    axes.set_xlabel(field_label(("bandwidth", "margin")[fixed]))
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.24), ncols=2, columnspacing=0.8, handlelength=1.8)


def _ablation_data(sources: Mapping[str, tuple[Scores, float | None]]) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the CSV; which source a row is of stands in it where there are two."""
    rows: list[list[object]] = []
    for source, (scores, sft) in sources.items():
        own: list[list[object]] = [[*setting, *spread] for setting, spread in sorted(scores.items())]
        own += [] if sft is None else [["sft", None, sft, None, None]]
        rows += [[source, *row] for row in own] if len(sources) > 1 else own
    header = ["margin", "bandwidth", "value", "low", "high"]
    return ["source", *header] if len(sources) > 1 else header, rows


def chosen_curves(lengths: Mapping[float, int]) -> list[float]:
    """The four values with the most points; of equally many, some far apart.

    >>> chosen_curves({1.0: 8, 6.0: 8, 0.0: 3, 2.0: 3, 3.0: 3, 5.0: 2})
    [0.0, 1.0, 3.0, 6.0]
    """
    least = min(_LEAST, max(lengths.values()))
    kept = sorted(value for value, length in lengths.items() if length >= least)
    if len(kept) <= len(VALUE_LINES):
        return kept
    shortest = sorted((lengths[value] for value in kept), reverse=True)[len(VALUE_LINES) - 1]
    longer = [value for value in kept if lengths[value] > shortest]
    alike = [value for value in kept if lengths[value] == shortest]
    places = np.linspace(0, len(alike) - 1, len(VALUE_LINES) - len(longer)).round().astype(int)
    return sorted([*longer, *(alike[place] for place in places)])


def field_curves(
    scores: Mapping[str, Mapping[Any, Spread]],
    *,
    field: str,
    baseline: float | None = None,
    metric: str = "average@8, %",
) -> Drawing:
    """`scores` by method and value of the field, in the unit of `metric`; `baseline` is SFT's where it has no curve.

    Numbers of more than a decade stand on a logarithmic axis; values that are no numbers stand side by side, unjoined.
    """
    if not any(scores.values()):
        raise ValueError("scores: there are none; give the value of at least one method")
    values = in_order({value for curve in scores.values() for value in curve})
    with drawing(COLUMN, 2.35) as drawn:
        axes = drawn.figure.subplots()
        for number, (label, line) in enumerate(lines_of(scores).items()):
            beside = _BESIDE * (number - (len(scores) - 1) / 2)
            _draw_curve(axes, shown(label), scores[label], values, line, beside)
        if baseline is not None:
            draw_baseline(axes, baseline, label="SFT")
        _set_ticks(axes, values)
        axes.set(xlabel=field_label(field), ylabel=plain(metric))
        legend_below(drawn.figure, axes, last="SFT")
        rows: list[list[object]] = [
            [label, value, *curve[value]] for label, curve in scores.items() for value in values if value in curve
        ]
        if baseline is not None:
            rows.append(["SFT", None, baseline, None, None])
        return drawn.with_data(["method", field, "value", "low", "high"], rows)


def _draw_curve(
    axes: Axes, label: str, curve: Mapping[Any, Spread], values: Sequence[Any], line: Line, beside: float
) -> None:
    kept = [value for value in values if value in curve]
    spreads = np.array([curve[value] for value in kept])
    if are_numbers(values):
        draw_band(axes, kept, spreads, label, line)
        return
    middle, low, high = spreads.T
    places = [values.index(value) + beside for value in kept]
    spread = np.abs(np.stack([middle - low, high - middle]))
    axes.errorbar(places, middle, spread, color=line.colour, marker=line.marker, linestyle="", capsize=2, label=label)


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
    """Return a value as it is written on the command line."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def field_label(field: str) -> str:
    """With the paper's letter where it has one."""
    return _LABELS.get(field) or plain(field)
