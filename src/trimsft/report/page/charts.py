"""Charts as inline SVG: a few lines of geometry; colours and dashes are the style sheet's, by class.

Each run is drawn in the colour and dashes of its method, as in every figure (report/colours.py): `line_styles` writes
that table as classes `line-trim`, `line-sft`, ..., in light and in dark.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from trimsft.data.visible import visible
from trimsft.intervals import Array, Interval
from trimsft.report.colours import METHOD_LINES, OTHER_LINE, Line, lines_of
from trimsft.report.runs import Run

_CLASSES = {line: f"line-{name}" for name, line in {**METHOD_LINES, "other": OTHER_LINE}.items()}
_STROKE = 2  # pixels; dashes are lengths in widths of the line
_WIDTHS = {"chart-wide": 760, "chart-narrow": 400}  # by class: the style sheet shows one of the two
_LETTER = 7.0  # width of a letter of 12 px, about
Scores = Mapping[str, tuple[Interval | None, Interval | None]]  # label -> two figures in percent
Curve = Sequence[tuple[float, float]]  # step and value


def number(value: float | None, digits: int = 1) -> str:
    """A figure with so many digits; a dash where there is none, never a negative zero."""
    if value is None or not math.isfinite(value):
        return "–"  # noqa: RUF001
    return f"{round(value, digits) or 0.0:.{digits}f}"


def run_lines(runs: Sequence[Run]) -> dict[str, Line]:
    """Return the line of each run of a page."""
    return lines_of([run.label for run in runs], {run.label: run.objective for run in runs})


def line_class(line: Line) -> str:
    """The class that gives an element the colour and dashes of a line."""
    return _CLASSES[line]


def line_styles() -> str:
    """Style rules: a class for each line of the table, which gives what has it its colour and dashes."""
    rules = []
    for line, name in _CLASSES.items():
        dashes = " ".join(f"{_STROKE * length:g}" for length in line.dashes) or "none"
        rules.append(f".{name} {{ --method: light-dark({line.colour}, {line.dark}); --dashes: {dashes}; }}")
    return "\n".join(rules) + "\n"


@dataclass(frozen=True)
class _Scale:
    """From data to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def score_chart(rows: Scores, names: tuple[str, str], lines: Mapping[str, Line]) -> Markup:
    """Two figures for each run with their intervals: the first a disc, the second a diamond below it."""
    labels = {label: visible(label) for label in rows}

    def draw(width: int) -> Markup:
        left = min(0.35 * width, max(80, 20 + _LETTER * max(map(len, labels.values()), default=0)))
        top, row_height = 34, 44
        bottom = top + row_height * len(rows)
        across = _Scale(0, 100, left, width - 20)
        parts = [_disc(left, 14), _text(left + 10, 18, names[0], "key")]
        parts += [_diamond(left + 130, 14), _text(left + 140, 18, names[1], "key")]
        for tick in range(0, 101, 20):
            x = across(tick)
            parts += [_line(x, top, x, bottom, "grid"), _text(x, bottom + 16, f"{tick} %", "tick middle")]
        for place, (label, figures) in enumerate(rows.items()):
            middle = top + row_height * (place + 0.5)
            parts.append(_text(left - 10, middle + 4, _cut(labels[label], left - 14), "label end"))
            if figures == (None, None):
                parts.append(_text(left + 8, middle + 4, "no mean", "tick"))
            for interval, y, mark in zip(figures, (middle - 8, middle + 8), (_disc, _diamond), strict=True):
                if interval is not None:
                    parts += _whiskers(across, interval, y)
                    parts.append(mark(across(interval.value), y, _CLASSES[lines[label]]))
        title = f"{names[0]} and {names[1]} of {len(rows)} runs, with 95 % intervals; the figures are in the tables"
        return _svg(width, bottom + 26, title, parts)

    return _both(draw)


def density_chart(
    grid: Array, densities: Mapping[str, Array], lines: Mapping[str, Line], weights: Array, weight_name: str
) -> Markup:
    """Densities of gaps as lines, and a weight between 0 and 1 as an area behind them."""

    def draw(width: int) -> Markup:
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
        for label, values in densities.items():
            path = _points(across, up, grid, values)
            parts.append(f'<path class="series {_CLASSES[lines[label]]}" d="M{path}"/>')
        parts += [
            _text((left + right) / 2, bottom + 38, "logit gap: gold minus strongest competitor", "tick middle"),
            _text(left, 11, "density", "tick"),
            _text(right + 40, 11, f"weight of {weight_name}", "tick end"),
        ]
        title = f"Densities of the logit gap for {', '.join(densities)}, and the weight of {weight_name}"
        return _svg(width, bottom + 46, title, parts)

    return _both(draw)


def course_chart(panels: Mapping[str, Mapping[str, Curve]], lines: Mapping[str, Line]) -> Markup:
    """Small panels beside each other, each with a line for each run over the steps of its training."""
    steps = [step for curves in panels.values() for curve in curves.values() for step, _ in curve]

    def draw(width: int) -> Markup:
        columns, height, gap = max(1, width // 200), 150, 44
        each = width / columns
        parts = []
        for place, (title, curves) in enumerate(panels.items()):
            left, top = each * (place % columns) + gap, 24 + (height + gap) * (place // columns)
            across = _Scale(min(steps), max(max(steps), min(steps) + 1), left, left + each - gap - 14)
            up = _Scale(*_room([value for curve in curves.values() for _, value in curve]), top + height, top)
            parts += [_text(left - 36, top - 9, title, "key"), *_frame(across, up)]
            for label, curve in curves.items():
                path = " L".join(f"{across(step):.1f},{up(value):.1f}" for step, value in curve)
                parts.append(f'<path class="series {_CLASSES[lines[label]]}" d="M{path}"/>')
        rows = -(-len(panels) // columns)
        title = f"{', '.join(panels)} over the steps of each training"
        return _svg(width, 24 + (height + gap) * rows, title, parts)

    return _both(draw)


def _room(values: Sequence[float]) -> tuple[float, float]:
    """Bounds of an axis, with a little room around the values."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


def _frame(across: _Scale, up: _Scale) -> list[str]:
    """Grid and ticks of a small panel."""
    parts = [_line(across.start, up.start, across.end, up.start, "axis")]
    for tick in _ticks(up.low, up.high, 4):
        parts += [_line(across.start, up(tick), across.end, up(tick), "grid")]
        parts.append(_text(across.start - 5, up(tick) + 4, f"{tick:g}", "tick end"))
    for tick in _ticks(across.low, across.high, 4):
        parts.append(_text(across(tick), up.start + 15, f"{tick:g}", "tick middle"))
    return parts


def legend_mark(line: Line) -> Markup:
    """A short line in the colour and dashes of a run, to stand beside its name."""
    drawn = _line(0, 5, 34, 5, f"series {_CLASSES[line]}")
    return Markup('<svg class="mark" viewBox="0 0 34 10" aria-hidden="true">' + drawn + "</svg>")


def _both(draw: Callable[[int], Markup]) -> Markup:
    """The drawing for wide windows and for narrow ones."""
    return Markup("").join(
        Markup('<div class="{}">{}</div>').format(name, draw(width)) for name, width in _WIDTHS.items()
    )


def _cut(text: str, width: float) -> str:
    """Return as much of a text as has room."""
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
    return [float(round(step * place, 10)) or 0.0 for place in np.arange(first, np.floor(high / step) + 1)]


def _whiskers(across: _Scale, interval: Interval, y: float) -> list[str]:
    low, high = across(interval.low), across(interval.high)
    return [_line(low, y, high, y, "whisker"), *(_line(x, y - 4, x, y + 4, "whisker") for x in (low, high))]


def _disc(x: float, y: float, line: str = "key") -> str:
    return f'<circle class="disc {line}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'


def _diamond(x: float, y: float, line: str = "key") -> str:
    return f'<path class="diamond {line}" d="M{x:.1f},{y - 6:.1f} l6,6 l-6,6 l-6,-6 Z"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(visible(text))}</text>'
