"""Colours of methods: readers of any colour vision tell them apart, on white and on a dark page."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from trimsft.report.colours import METHOD_LINES, NEUTRAL, VALUE_LINES, lines_of

Array = NDArray[np.float64]
APART = 10  # in CIELAB; 2.3 is the least that is seen at all (Mahy et al., 1994), and these are thin lines in a plot
_VISION: dict[str, Array] = {
    "all cones": np.eye(3),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""What is left of linear RGB without one kind of cone (Machado, Oliveira and Fernandes, 2009)."""
_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour: str) -> Array:
    values = np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: Array) -> Array:
    xyz = _TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    dark, light = sorted(float(_TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("vision", _VISION)
@pytest.mark.parametrize("look", ["colour", "dark"])
def test_any_two_lines_are_told_apart(vision: str, look: str) -> None:
    for lines in (METHOD_LINES, dict(zip("abcd", VALUE_LINES, strict=True))):
        seen = {name: lab(_VISION[vision] @ linear(getattr(line, look))) for name, line in lines.items()}
        pairs = itertools.combinations(seen, 2)
        distances = {(one, other): float(np.linalg.norm(seen[one] - seen[other])) for one, other in pairs}
        assert {pair: round(distance, 1) for pair, distance in distances.items() if distance < APART} == {}


@pytest.mark.parametrize(("look", "background"), [("colour", "#ffffff"), ("dark", "#15171a")])
def test_lines_stand_out_from_their_background(look: str, background: str) -> None:
    assert min(contrast(getattr(line, look), background) for line in METHOD_LINES.values()) >= 3  # WCAG, for marks
    assert contrast(NEUTRAL, "#ffffff") >= 3


def test_a_run_has_one_colour_in_all_figures() -> None:
    objectives = {"base": None, "first": None, "second": None, "third": "sft", "fourth": "sft"}
    every = lines_of(objectives, objectives)
    assert len(set(every.values())) == len(every) and every["third"] == METHOD_LINES["sft"]
    for label, line in every.items():
        assert lines_of([label], objectives) == {label: line}
