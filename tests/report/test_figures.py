"""Every figure: its files, its data, and what a reader of a column sees."""

import csv
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.tokens.tiny import make_table
from trimsft.report import figures
from trimsft.report.colours import METHOD_LINES, lines_of
from trimsft.report.figures import PRINT_FORMATS, Drawing, Spread
from trimsft.tables import csv_of
from trimsft.tokens.table import TokenTable, read_token_table

HOSTILE = {"Base": 0, "$x_{": 1, "_hidden": 2, 'a,"b"\n<c>&\x08': 3}
"""Labels that LaTeX, legends, CSV and SVG would each trip over."""
OURS = {(m, tau): (70 + m + tau, 69.0, 81.0) for m in (1.0, 6.0) for tau in (0.5, 1.0, 2.0)}
BAND = {"margin": 1.5, "bandwidth": 0.8}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TokenTable:
    return read_token_table(make_table(tmp_path_factory.mktemp("t") / "t.parquet", [["1", " so", " x", "+"] * 8] * 3))


def dots(count: int) -> dict[str, dict[str, Spread]]:
    names = ("math500", "olympiadbench", "minerva", "amc", "aime24", "average")[:count]
    return {name: {label: (50.0 + n, 45.0, 60.0) for label, n in HOSTILE.items()} for name in names}


DRAWN: dict[str, tuple[float, Callable[[TokenTable], Drawing]]] = {
    "gaps": (3.3, lambda table: figures.gap_distribution(dict.fromkeys(HOSTILE, table), **BAND)),  # type: ignore[arg-type]
    "weighting": (6.6, lambda table: figures.weighting_functions()),
    "objectives": (6.6, lambda table: figures.objective_curves()),
    "scores": (6.6, lambda table: figures.score_dots({"pass@8, %": dots(6), "T=0.3": dots(1)})),
    "ablation": (3.3, lambda table: figures.ablation_curves(OURS, baseline=15.5)),
}
"""With their widths in inches: a column, or a page of two."""


@pytest.fixture(scope="module")
def drawn(table: TokenTable) -> dict[str, Drawing]:
    return {name: draw(table) for name, (_, draw) in DRAWN.items()}


def rows(drawing: Drawing) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_of(drawing.header, drawing.rows).decode(), newline="")))


@pytest.mark.parametrize("name", DRAWN)
def test_files_of_a_figure(name: str, drawn: dict[str, Drawing], tmp_path: Path) -> None:
    files = drawn[name].save(tmp_path / "one.svg")
    assert [path.suffix for path in files] == [*PRINT_FORMATS, ".csv"] == [".svg", ".pdf", ".png", ".csv"]
    texts = [node.text for node in ElementTree.parse(files[0]).iter("{http://www.w3.org/2000/svg}text")]
    assert len(texts) > 5  # text is text, to be searched and edited
    assert struct.unpack(">I", files[2].read_bytes()[16:20])[0] == round(200 * DRAWN[name][0])
    assert rows(drawn[name]) and files[-1].read_bytes() == csv_of(drawn[name].header, drawn[name].rows)


def test_a_run_has_one_colour_in_all_figures() -> None:
    objectives = {"base": None, "first": None, "second": None, "third": "sft", "fourth": "sft"}
    every = lines_of(objectives, objectives)
    assert len(set(every.values())) == len(every) and every["third"] == METHOD_LINES["sft"]
    for label, line in every.items():
        assert lines_of([label], objectives) == {label: line}


def test_the_weights_drawn_are_the_formulas(drawn: dict[str, Drawing]) -> None:
    wide = drawn["weighting"]
    table = dict(zip(wide.header, np.array(wide.rows).T, strict=True))
    band = np.exp(-((table["gap"] - 1.5) ** 2) / (2 * 0.8**2))
    # float32: the exponent, at most 71, is a square of a difference over a square, each within an ulp or two
    close: dict[str, Any] = {"rtol": 71 * 8 * 2.0**-24, "atol": 0}
    np.testing.assert_allclose(table["margin 1.5, bandwidth 0.8"], band, **close)
    np.testing.assert_allclose(table["TrimSFT-E"], np.where(table["gap"] < 1.5, band, 1), **close)
    np.testing.assert_allclose(table["TrimSFT-H"], np.where(table["gap"] > 1.5, band, 1), **close)
    assert "AutoTrim" in drawn["objectives"].header
