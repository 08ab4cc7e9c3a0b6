"""Charts as inline SVG: a few lines of geometry; colours and dashes are the style sheet's, by class.

Series are `s0`, `s1`, ... in the order of the runs: a colour and a dash each, told apart in grey too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from trimsft.scoring.bootstrap import Interval
from trimsft.text.visible import visible
from trimsft.tokens.statistics.weighting import Array

SERIES = 8
"""How many the style sheet tells apart; more repeat."""
_WIDTHS = {"chart-wide": 760, "chart-narrow": 400}
"""By class: the style sheet shows one of the two."""
_LETTER = 7.0
"""Width of a letter of 12 px, about."""


@dataclass(frozen=True)
class _Scale:
    """From data to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def score_chart(rows: Mapping[str, tuple[Interval | None, Interval | None]], names: tuple[str, str]) -> Markup:
    """Two figures for each run with their intervals: the first a disc, the second a diamond below it."""
    return _both(lambda width: _score_chart(rows, names, width))


def _score_chart(
    rows: Mapping[str, tuple[Interval | None, Interval | None]], names: tuple[str, str], width: int
) -> Markup:
    labels = {label: visible(label) for label in rows}
    left = min(0.35 * width, max(80, 20 + _LETTER * max(map(len, labels.values()), default=0)))
    top, row_height = 34, 44
    bottom = top + row_height * len(rows)
    across = _Scale(0, 100, left, width - 20)
    parts = [_disc(left, 14), _text(left + 10, 18, names[0], "key")]
    parts += [_diamond(left + 130, 14), _text(left + 140, 18, names[1], "key")]
    for tick in range(0, 101, 20):
        x = across(tick)
        parts += [_line(x, top, x, bottom, "grid"), _text(x, bottom + 16, f"{tick} %", "tick middle")]
    for number, (label, figures) in enumerate(rows.items()):
        middle = top + row_height * (number + 0.5)
        parts.append(_text(left - 10, middle + 4, _cut(labels[label], left - 14), "label end"))
        if figures == (None, None):
            parts.append(_text(left + 8, middle + 4, "no mean", "tick"))
        for interval, y, mark in zip(figures, (middle - 8, middle + 8), (_disc, _diamond), strict=True):
            if interval is not None:
                parts += _whiskers(across, interval, y)
                parts.append(mark(across(interval.value), y))
    title = f"{names[0]} and {names[1]} of {len(rows)} runs, with 95 % intervals; the figures are in the tables"
    return _svg(width, bottom + 26, title, parts)


def density_chart(
    grid: Array, densities: Mapping[str, Array], weights: Array, weight_name: str, shown: Sequence[int]
) -> Markup:
    """Densities of gaps as lines, and a weight between 0 and 1 as an area behind them."""
    return _both(lambda width: _density_chart(grid, densities, weights, weight_name, shown, width))


def _density_chart(
    grid: Array,
    densities: Mapping[str, Array],
    weights: Array,
    weight_name: str,
    shown: Sequence[int],
    width: int,
) -> Markup:
    left, right, top, bottom = 50, width - 50, 16, 300
    across = _Scale(float(grid[0]), float(grid[-1]), left, right)
    highest = max((float(values.max()) for values in densities.values()), default=0.0) or 1.0
    up, weight_up = _Scale(0, 1.06 * highest, bottom, top), _Scale(0, 1.06, bottom, top)
    area = _points(across, weight_up, grid, weights)
    parts = [f'<path class="band" d="M{left},{bottom} L{area} L{right},{bottom} Z"/>']
    for tick in _ticks(float(grid[0]), float(grid[-1]), width // 76):
        parts += [_line(across(tick), bottom, across(tick), bottom + 4, "axis")]
        parts.append(_text(across(tick), bottom + 18, f"{tick:g}", "tick middle"))
    for tick in _ticks(0, highest, 4):
        parts += [_line(left, up(tick), right, up(tick), "grid")]
        parts.append(_text(left - 6, up(tick) + 4, f"{tick:g}", "tick end"))
    parts += [_text(right + 6, weight_up(tick) + 4, f"{tick:g}", "tick") for tick in (0, 0.5, 1)]
    parts += [_line(left, bottom, right, bottom, "axis")]
    for number, values in zip(shown, densities.values(), strict=True):
        line = _points(across, up, grid, values)
        parts.append(f'<path class="series s{number % SERIES}" d="M{line}"/>')
    parts += [
        _text((left + right) / 2, bottom + 38, "logit gap: gold minus strongest competitor", "tick middle"),
        _text(left, 11, "density", "tick"),
        _text(right + 40, 11, f"weight of {weight_name}", "tick end"),
    ]
    title = f"Densities of the logit gap for {', '.join(densities)}, and the weight of {weight_name}"
    return _svg(width, bottom + 46, title, parts)


def legend_mark(number: int) -> Markup:
    """A short line in the colour and dash of a series, to stand beside its name."""
    line = _line(0, 5, 34, 5, f"series s{number % SERIES}")
    return Markup('<svg class="mark" viewBox="0 0 34 10" aria-hidden="true">' + line + "</svg>")


def _both(draw: Callable[[int], Markup]) -> Markup:
    """The drawing for wide windows and for narrow ones."""
    return Markup("").join(
        Markup('<div class="{}">{}</div>').format(name, draw(width)) for name, width in _WIDTHS.items()
    )


def _cut(text: str, width: float) -> str:
    """As much of a text as has room."""
    most = int(width / _LETTER)
    return text if len(text) <= most else text[: most - 1] + "…"


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> Markup:
    body = "".join(parts)
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img"><title>{escape(visible(title))}</title>{body}</svg>'
    )


def _points(across: _Scale, up: _Scale, xs: Array, ys: Array) -> str:
    return " L".join(f"{across(x):.1f},{up(y):.1f}" for x, y in zip(xs.tolist(), ys.tolist(), strict=True))


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two bounds, about so many."""
    rough = (high - low) / about
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = np.ceil(low / step)
    return [float(round(step * place, 10)) for place in np.arange(first, np.floor(high / step) + 1)]


def _whiskers(across: _Scale, interval: Interval, y: float) -> list[str]:
    low, high = across(interval.low), across(interval.high)
    return [
        _line(low, y, high, y, "whisker"),
        *(_line(x, y - 4, x, y + 4, "whisker") for x in (low, high)),
    ]


def _disc(x: float, y: float) -> str:
    return f'<circle class="disc" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'


def _diamond(x: float, y: float) -> str:
    return f'<path class="diamond" d="M{x:.1f},{y - 6:.1f} l6,6 l-6,6 l-6,-6 Z"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(visible(text))}</text>'
