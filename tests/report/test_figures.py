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
from matplotlib.figure import Figure

from tests.tokens.tiny import make_table
from trimsft.objectives import SFT, TrimSFT
from trimsft.report import figures, score_figures
from trimsft.report.figures import PRINT_FORMATS, Drawing, Spread
from trimsft.study import paper
from trimsft.tables import csv_of
from trimsft.tokens.statistics import weights_of
from trimsft.tokens.table import TokenTable, read_token_table

HOSTILE = {"Base": 0, "$x_{": 1, "_hidden": 2, 'a,"b"\n<c>&\x08': 3}
"""Labels that LaTeX, legends, CSV and SVG would each trip over."""
OURS = {(m, tau): (70 + m + tau, 69.0, 81.0) for m in (1.0, 6.0) for tau in (0.5, 1.0, 2.0)}
THEIRS = {(m, tau): (20 - tau, 20 - tau, 20 - tau) for m in (1.0, 6.0) for tau in (0.5, 1.0, 2.0)}
BAND = {"margin": 1.5, "bandwidth": 0.8}
WEIGHING: dict[str, Any] = {"sft": SFT(), "trim": TrimSFT()}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TokenTable:
    return read_token_table(make_table(tmp_path_factory.mktemp("t") / "t.parquet", [["1", " so", " x", "+"] * 8] * 3))


def dots(count: int) -> dict[str, dict[str, Spread]]:
    names = ("math500", "olympiadbench", "minerva", "amc", "aime24", "average")[:count]
    return {name: {label: (50.0 + n, 45.0, 60.0) for label, n in HOSTILE.items()} for name in names}


DRAWN: dict[str, tuple[float, Callable[[TokenTable], Drawing]]] = {
    "gaps": (3.3, lambda table: figures.gap_distribution(dict.fromkeys(HOSTILE, table), **BAND)),  # type: ignore[arg-type]
    "gradient": (3.3, lambda table: figures.gradient_by_gap("a $_{", table, WEIGHING)),
    "ratios": (3.3, lambda table: figures.effective_ratio_map(table, **BAND)),
    "weighting": (6.6, lambda table: figures.weighting_functions()),
    "objectives": (6.6, lambda table: figures.objective_curves()),
    "scores": (6.6, lambda table: score_figures.score_dots({"pass@8, %": dots(6), "T=0.3": dots(1)})),
    "ablation": (3.3, lambda table: score_figures.ablation_curves(OURS, baseline=15.5)),
    "beside": (6.6, lambda table: score_figures.ablation_curves(OURS, baseline=60.0, paper=(THEIRS, 15.5))),
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
    assert files[1].read_bytes().startswith(b"%PDF")
    assert struct.unpack(">I", files[2].read_bytes()[16:20])[0] == round(200 * DRAWN[name][0])
    assert rows(drawn[name]) and files[-1].read_bytes() == csv_of(drawn[name].header, drawn[name].rows)


def test_data_beside_the_figures(drawn: dict[str, Drawing], table: TokenTable) -> None:
    assert list(rows(drawn["gaps"])[0]) == ["gap", *HOSTILE]
    curve = rows(drawn["ablation"])
    assert len(curve) == 7 and curve[-1]["margin"] == "sft" and curve[-1]["value"] == "15.5"
    scored = rows(drawn["scores"])
    assert len(scored) == 28 and (scored[-1]["metric"], scored[-1]["high"], scored[-1]["paper"]) == ("T=0.3", "60", "")
    gradient = rows(drawn["gradient"])
    mass = weights_of(TrimSFT(), table) * table["gradient_norm"]
    below = 100 * mass[table["gap"] < float(gradient[20]["from"])].sum() / mass.sum()
    assert sum(float(row["trim"]) for row in gradient[:20]) == pytest.approx(below, abs=0.01)


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


def test_figures_of_nothing_are_refused_and_of_one_setting_are_not() -> None:
    assert score_figures.ablation_curves({(1.5, 0.8): (30.0, 29.0, 31.0)}).rows
    for draw, message in (
        (lambda: score_figures.ablation_curves({}), "scores: there are none"),
        (lambda: score_figures.score_dots({}), "there are no scores"),
    ):
        with pytest.raises(ValueError, match=message):
            draw()


def test_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks of the first layout are 15, 20, ..., those of the second 15.0, 17.5, ...: wider."""
    boxes = []
    save = Figure.savefig

    def measured(figure: Figure, *args: object, **how: object) -> None:
        save(figure, *args, **how)  # type: ignore[arg-type]
        boxes.append((figure.get_tightbbox(), *figure.get_size_inches()))

    monkeypatch.setattr(Figure, "savefig", measured)
    printed = [*paper.rows("bandwidth_ablation"), *paper.rows("margin_ablation")]
    scores = {tuple(row.setting): (row.average,) * 3 for row in printed if row.setting and row.average}
    drawing = score_figures.ablation_curves(scores, baseline=15.5, metric="the paper, average@8, %")  # type: ignore[arg-type]
    drawing.save(tmp_path / "a.svg")
    assert len(boxes) == 3
    for inside, width, height in boxes:
        assert inside.x0 >= 0 and inside.y0 >= 0 and inside.x1 <= width and inside.y1 <= height


def test_more_than_a_decade_is_logarithmic() -> None:
    for values, scale in (([0.1, 2.0], "log"), ([1.0, 10.0], "linear"), ([0.0, 100.0], "linear")):
        by_band = {(1.0, value): (20.0, 19.0, 22.0) for value in values}
        assert score_figures.ablation_curves(by_band).figure.axes[0].get_xscale() == scale
