"""The look of each method, in every figure and on every page: one colour, dash pattern and marker each.

    >>> lines_of(["narrow"], {"narrow": "trim"})["narrow"].colour
    '#0072B2'

Readers of any colour vision tell all of them apart: any two are at least 10 apart in CIELAB, as seen without one kind
of cone, too (Machado, Oliveira and Fernandes, 2009). Each has a contrast of 3:1 against its background; dashes and
markers tell lines apart in grey.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from trimsft.objectives import NAMES, OBJECTIVES, display_name

BASE = "base"
Objectives: TypeAlias = Mapping[str, str | None]
"""What runs were trained with, by label; None where it is not known."""


@dataclass(frozen=True)
class Line:
    """Colour, dashes and marker of one run."""

    colour: str  # on white
    dark: str  # on a dark page
    dashes: tuple[float, ...] = ()  # lengths of dash and gap in line widths; none for a solid line
    marker: str = "o"


METHOD_LINES = {
    BASE: Line("#3D3D3D", "#D4D7DC", (1, 1), "s"),
    "sft": Line("#B8860B", "#EDBE3C", (6, 1.5, 1.5, 1.5), "D"),
    "fsft": Line("#C2689C", "#E39AC4", (2.2, 1), "v"),
    "dft": Line("#009E73", "#2FC79A", (4, 1.5), "^"),
    "trim": Line("#0072B2", "#56B4E9", (), "o"),
    "trim-e": Line("#3A9BD9", "#A6DCFA", (7, 1.5), "<"),
    "trim-h": Line("#C23B0A", "#EE6C22", (3, 1.5, 1, 1.5, 1, 1.5), ">"),
    "auto-trim": Line("#9E0059", "#F0368C", (12, 1.5), "H"),
    "p-alpha": Line("#004C00", "#C6CD65", (5, 1), "P"),
    "p-threshold": Line("#9F2BF3", "#A38AF8", (1, 1, 4, 1), "X"),
    "eaft": Line("#430E1E", "#FF8487", (3, 1), "h"),
    "infosft": Line("#B337AE", "#B032FD", (6, 1, 1, 1), "p"),
    "talr": Line("#E5594C", "#B06426", (1.5, 1), "d"),
    "saft": Line("#3F05A5", "#BB1099", (8, 1, 2, 1), "*"),
    "deft": Line("#03032E", "#816747", (9, 2), "8"),
    "ranktuner": Line("#4E076F", "#38706D", (5, 1, 1, 1), "1"),
    "idft": Line("#0804FC", "#6C5BCD", (2, 2), "2"),
}
"""By the name of the objective; "base" is the model before training."""
VALUE_LINES = (
    Line("#0072B2", "#56B4E9", (), "o"),
    Line("#0B2447", "#D7E3F4", (4, 1.5), "s"),
    Line("#6797CC", "#4B78C8", (6, 1.5, 1.5, 1.5), "^"),
    Line("#4F2D8A", "#8A6BE8", (2.2, 1), "D"),
)
"""For values of a parameter of TrimSFT: shades around its blue."""


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


_METHODS = {BASE: BASE} | {
    _letters(spelling): name for name, kind in OBJECTIVES.items() for spelling in (name, NAMES[name], kind.__name__)
}


def method_of(label: str) -> str | None:
    """Return the method that a label names, however it is spelled.

    >>> method_of("TrimSFT-E"), method_of("trim-h"), method_of("Base"), method_of("run 7")
    ('trim-e', 'trim-h', 'base', None)
    """
    return _METHODS.get(_letters(label))


def name_of(label: str) -> str:
    """Return the name of the objective where a label spells one ("trim-e": TrimSFT-E), else the label."""
    method = method_of(label)
    return label if method is None or method == BASE else display_name(method)


def lines_of(labels: Iterable[str], objectives: Objectives | None = None) -> dict[str, Line]:
    """Return a line for each label, in their order.

    The first run of a method has the line of that method; every other run has one that no method among them needs.
    A run has the same line in a figure of some runs and on the page of all.

    Args:
        objectives: what all runs were trained with, by label; where it is not known the label may name a method.
    """
    labels = list(labels)
    known = {label: (objectives or {}).get(label) or method_of(label) for label in [*(objectives or {}), *labels]}
    lines: dict[str, Line] = {}
    for label, method in known.items():
        if method in METHOD_LINES and METHOD_LINES[method] not in lines.values():
            lines[label] = METHOD_LINES[method]
    # those of the paper last: they mean something to a reader
    every = list(reversed(METHOD_LINES.values()))
    free = [line for line in every if line not in lines.values()] or every
    others = [label for label in known if label not in lines]
    lines |= {label: free[place % len(free)] for place, label in enumerate(others)}
    return {label: lines[label] for label in labels}
