"""How each method is drawn, in every figure and on every page: one colour, dash pattern and marker each.

    >>> lines = lines_of(["Base", "SFT", "TrimSFT", "my run"])
    >>> lines["TrimSFT"] == METHOD_LINES["trim"], lines["SFT"] == METHOD_LINES["sft"]
    (True, True)
    >>> lines["my run"] in lines_of(["Base", "SFT", "TrimSFT"]).values()
    False
    >>> lines_of(["narrow"], {"narrow": "trim"})["narrow"].colour
    '#0072B2'

The hues are those of Okabe and Ito, which readers of any colour vision tell apart, darkened where a thin line would
have a contrast below 3:1 against its background; dashes and markers tell lines apart in grey.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from trimsft.objectives import NAMES, OBJECTIVES

BASE = "base"
Objectives: TypeAlias = Mapping[str, str | None]
"""What runs were trained with, by label; None where it is not known."""


@dataclass(frozen=True)
class Line:
    """How one run is drawn."""

    colour: str  # on white
    dark: str  # on a dark page
    dashes: tuple[float, ...] = ()  # lengths of dash and gap in line widths; none for a solid line
    marker: str = "o"


METHOD_LINES = {
    BASE: Line("#666666", "#A5A9B1", (1, 1), "s"),
    "sft": Line("#B8860B", "#E6B93C", (6, 1.5, 1.5, 1.5), "D"),
    "fsft": Line("#B0568C", "#E08FC0", (2.2, 1), "v"),
    "dft": Line("#009E73", "#2FC79A", (4, 1.5), "^"),
    "trim": Line("#0072B2", "#56B4E9", (), "o"),
    "trim-e": Line("#2C96CF", "#9AD4F5", (7, 1.5), "<"),
    "trim-h": Line("#D55E00", "#FF8A3D", (3, 1.5, 1, 1.5, 1, 1.5), ">"),
    "auto-trim": Line("#D1006F", "#FF6DB3", (), "H"),
    "p-alpha": Line("#5E7A1E", "#A9C95A", (5, 1), "P"),
    "p-threshold": Line("#7A5195", "#C09BDB", (), "X"),
    "eaft": Line("#A23B3B", "#F08A8A", (3, 1), "h"),
    "infosft": Line("#3B4CC0", "#98A5F0", (6, 1, 1, 1), "p"),
    "talr": Line("#8D5524", "#D6A77A", (1.5, 1), "d"),
    "iw-sft": Line("#117A8B", "#6FC7D6", (), "*"),
    "psft": Line("#C2185B", "#F48FB1", (4, 1, 1, 1, 1, 1), "8"),
    "asft": Line("#4A6B52", "#9CC5A6", (8, 2), "H"),
    "rho-1": Line("#4A5568", "#B4BECC", (2, 2), "1"),
}
"""By the name of the objective; "base" is the model before training."""
OTHER_LINE = Line("#1C1C1E", "#FFFFFF", (1, 2), "x")
"""For a run that no line is left for."""
VALUE_LINES = (
    Line("#0072B2", "#56B4E9", (), "o"),
    Line("#0B2447", "#C9D8EE", (4, 1.5), "s"),
    Line("#6C8EBF", "#8FB0E0", (6, 1.5, 1.5, 1.5), "^"),
    Line("#5B4B9A", "#A99BE0", (2.2, 1), "D"),
)
"""For values of a parameter of TrimSFT, beside each other: shades around its blue, no colour of another method."""


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


_METHODS = {
    BASE: BASE,
    **{_letters(name): name for name in OBJECTIVES},
    **{_letters(name): objective for objective, name in NAMES.items()},
    **{_letters(kind.__name__): objective for objective, kind in OBJECTIVES.items()},
}


def method_of(label: str) -> str | None:
    """The method that a label names, however it is spelled.

    >>> method_of("TrimSFT-E"), method_of("trim-h"), method_of("Base"), method_of("run 7")
    ('trim-e', 'trim-h', 'base', None)
    """
    return _METHODS.get(_letters(label))


def lines_of(labels: Iterable[str], objectives: Objectives | None = None) -> dict[str, Line]:
    """A line for each label, in their order.

    The first run of a method has the line of that method; every other run has one that no method among them needs.

    Args:
        objectives: what runs were trained with, by label; where it is not known the label may name a method.
    """
    labels = list(labels)
    known = {label: (objectives or {}).get(label) or method_of(label) for label in labels}
    first: dict[str, str] = {}
    for label, method in known.items():
        if method in METHOD_LINES:
            first.setdefault(method, label)
    lines = {label: METHOD_LINES[method] for method, label in first.items()}
    order = (METHOD_LINES["trim"], *METHOD_LINES.values())
    free = [line for line in dict.fromkeys(order) if line not in lines.values()] or [OTHER_LINE]
    others = [label for label in labels if label not in lines]
    lines |= {label: free[place % len(free)] for place, label in enumerate(others)}
    return {label: lines[label] for label in labels}
