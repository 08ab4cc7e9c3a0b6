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
from trimsft.report import figures
from trimsft.report.colours import METHOD_LINES
from trimsft.report.figures import Drawing
from trimsft.report.figures.bars import draw_categories
from trimsft.report.figures.curves import FEWEST
from trimsft.report.figures.style import PRINT_FORMATS
from trimsft.study import paper
from trimsft.study.paper_tables import category_figure
from trimsft.tables import csv_of
from trimsft.tokens.statistics.calibration import BINS, Bin, Calibration
from trimsft.tokens.statistics.groups import by_tenth
from trimsft.tokens.table import TokenTable, read_token_table

HOSTILE = {"Base": 0, "$x_{": 1, "_hidden": 2, 'a,"b"\n<c>&': 3}
"""Labels that LaTeX, legends, CSV and SVG would each trip over."""
OURS = {(m, tau): (70 + m + tau, 69.0, 81.0) for m in (1.0, 6.0) for tau in (0.5, 1.0, 2.0)}
THEIRS = {(m, tau): (20 - tau, 20 - tau, 20 - tau) for m in (1.0, 6.0) for tau in (0.5, 1.0, 2.0)}
SHARES = np.array([[1.5, 0.5, 2.0], [0.0, 4.0, 6.0], [1.0, 5.0, 80.0]])
BAND = {"margin": 1.5, "bandwidth": 0.8}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TokenTable:
    return read_token_table(make_table(tmp_path_factory.mktemp("t") / "t.parquet", [["1", " so", " x", "+"] * 8] * 3))


def calibrated(bins: list[tuple[int, float, float]], ece: float = 0.031) -> Calibration:
    sizes = tuple(Bin(tokens=tokens, confidence=sure, accuracy=right) for tokens, sure, right in bins)
    return Calibration(tokens=930, confidence=0.9, accuracy=0.9, ece=ece, low=0.02, high=0.04, bins=sizes)


def bars(count: int) -> dict[str, dict[str, figures.Spread]]:
    names = ("math500", "olympiadbench", "minerva", "amc", "aime24", "average")[:count]
    return {name: {label: (50.0 + n, 45.0, 60.0) for label, n in HOSTILE.items()} for name in names}


def ablation(table: TokenTable) -> Drawing:
    scores = {(m, tau): (30 - tau, 29 - tau, 31 - tau) for m in (1.0, 6.0) for tau in (0.5, 1.0, 2.0)}
    scores |= {(m, 1.0): (30 - m / 9, 29.0, 31.0) for m in (0.0, 3.0)}
    return figures.ablation_curves(scores, baseline=15.5)


DRAWN: dict[str, tuple[float, Callable[[TokenTable], Drawing]]] = {
    "gaps": (3.3, lambda table: figures.gap_distribution(dict.fromkeys(HOSTILE, table), **BAND)),  # type: ignore[arg-type]
    "reliability": (
        3.3,
        lambda table: figures.reliability_diagram(
            dict.fromkeys(HOSTILE, calibrated([(FEWEST, 0.3, 0.25), (900, 0.9, 0.95)]))
        ),
    ),
    "positions": (3.3, lambda table: figures.position_curves(dict.fromkeys(HOSTILE, by_tenth(table, **BAND)))),
    "movement": (6.6, lambda table: figures.movement_maps("before", dict.fromkeys(HOSTILE, SHARES))),
    "categories": (6.6, category_figure),
    "sampling": (
        3.3,
        lambda table: figures.sampling_bars({"pass@8": bars(5), "best-of-8": {"amc": {"Base": (1.0, 0.0, 2.0)}}}),
    ),
    "scores": (6.6, lambda table: figures.score_bars(bars(6), paper={"math500": {"Base": 0.0, "unknown": 3.0}})),
    "ratios": (3.3, lambda table: figures.effective_ratio_map(table, **BAND)),
    "ablation": (3.3, ablation),
    "beside": (6.6, lambda table: figures.ablation_curves(OURS, baseline=60.0, paper=(THEIRS, 15.5))),
    "weighting": (6.0, lambda table: figures.weighting_functions()),
    "objectives": (6.2, lambda table: figures.objective_curves()),
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
    ElementTree.fromstring(files[0].read_bytes())
    assert files[1].read_bytes().startswith(b"%PDF")
    assert struct.unpack(">I", files[2].read_bytes()[16:20])[0] == round(200 * DRAWN[name][0])
    assert rows(drawn[name]) and files[-1].read_bytes() == csv_of(drawn[name].header, drawn[name].rows)


def test_data_beside_the_figures(drawn: dict[str, Drawing]) -> None:
    assert list(rows(drawn["gaps"])[0]) == ["gap", *HOSTILE]
    moved = rows(drawn["movement"])
    assert len(moved) == 36 and moved[8] == {
        "run": "before to Base",
        "before": "high",
        "after": "high",
        "percent": "80",
    }
    bins = {"confidence": "0.9", "accuracy": "0.95", "tokens": "900"}
    ece = {"ece": "0.031", "ece_low": "0.02", "ece_high": "0.04"}
    assert rows(drawn["reliability"])[1] == {"run": "Base", **bins, **ece}
    parts = rows(drawn["positions"])
    assert (parts[1]["from"], parts[1]["to"]) == ("10", "20") and len(parts) == 40
    sampled = rows(drawn["sampling"])
    assert len(sampled) == 21 and sampled[-1]["metric"] == "best-of-8" and sampled[-1]["high"] == "2"
    curve = rows(drawn["ablation"])
    assert len(curve) == 9 and curve[-1]["margin"] == "sft" and curve[-1]["value"] == "15.5"
    scored = rows(drawn["scores"])
    assert len(scored) == 24 and scored[0]["paper"] == "0" and scored[4]["paper"] == ""
    shares = [row for row in rows(drawn["categories"]) if row["source"] == "ours"]
    assert sum(float(row["tokens"]) for row in shares) == pytest.approx(100, abs=1e-3)  # six digits each


def test_the_weights_drawn_are_the_formulas() -> None:
    wide, column = figures.weighting_functions(), figures.weighting_functions(column=True)
    assert wide.rows == column.rows
    table = dict(zip(wide.header, np.array(wide.rows).T, strict=True))
    band = np.exp(-((table["gap"] - 1.5) ** 2) / (2 * 0.8**2))
    # float32: the exponent, at most 24, is a square of a difference over a square, each within an ulp or two
    close: dict[str, Any] = {"rtol": 24 * 8 * 2.0**-24, "atol": 0}
    np.testing.assert_allclose(table["trim_m1.5_tau0.8"], band, **close)
    np.testing.assert_allclose(table["trim_e_m1.5_tau0.8"], np.where(table["gap"] < 1.5, band, 1), **close)
    np.testing.assert_allclose(table["trim_h_m1.5_tau0.8"], np.where(table["gap"] > 1.5, band, 1), **close)
    assert (table["sft"] == 1).all()


def test_reliability_joins_the_bins_it_shows_and_counts_them_all() -> None:
    places = {0: FEWEST, 1: 40, 4: 50, 5: FEWEST - 1, 6: 60, BINS - 1: 70}
    run = calibrated([(tokens, (place + 0.5) / BINS, 0.5) for place, tokens in places.items()])
    upper, lower = figures.reliability_diagram({"Run": run}).figure.axes
    line, pale, counts = upper.lines[1], upper.lines[2], lower.lines[0]
    shown = [place for place, sure in enumerate(np.asarray(line.get_xdata(), dtype=float)) if not np.isnan(sure)]
    assert shown == [0, 1, 4, 6, BINS - 1] and len(np.asarray(line.get_xdata())) == BINS
    assert len(np.asarray(pale.get_xdata())) == 5 and (pale.get_alpha() or 1) < 1
    tokens = np.asarray(counts.get_ydata(), dtype=float)
    assert {place: int(count) for place, count in enumerate(tokens) if not np.isnan(count)} == places


def test_categories_stand_beside_the_papers_with_a_number_each() -> None:
    nothing = {"numeric": (46.4, 33.4, 15.66), "symbol": (18.2, 0.004, 2e-9), "connector": (0.4, 4.0, 0.0)}
    ours, theirs = draw_categories(nothing, nothing, margin=1.0, bandwidth=1.0).figure.axes
    assert (ours.get_title(loc="left"), theirs.get_title(loc="left")) == ("this model", "the paper's")
    assert r"$m=1$, $\tau=1$" in ours.get_xlabel()
    numbers = ["46.4", "18.2", "0.4", "33.4", "< 0.1", "4.0", "15.7", "< 0.1", "0"]
    assert [text.get_text() for text in ours.texts] == numbers
    assert theirs.texts[0].get_text() == "46.4" and theirs.get_xlim() == ours.get_xlim()


def test_labels_that_no_svg_may_hold_are_spelt_out(table: TokenTable, tmp_path: Path) -> None:
    runs = {"a\x08b": table, "\ufffe": table, "--><script>": table}
    (path, _) = figures.gap_distribution(runs, margin=1.5, bandwidth=0.8).save(tmp_path / "f.svg", (".svg",))
    assert "\x08" not in path.read_text(encoding="utf-8")
    ElementTree.parse(path)


def test_figures_of_nothing_are_refused_and_of_one_setting_are_not() -> None:
    assert figures.ablation_curves({(1.5, 0.8): (30.0, 29.0, 31.0)}).rows
    many = figures.ablation_curves({(float(m), tau): (30.0, 29.0, 31.0) for m in range(7) for tau in (1.0, 2.0, 3.0)})
    assert [line.get_label() for line in many.figure.axes[0].lines] == ["$m=0$", "$m=2$", "$m=4$", "$m=6$"]
    for draw, message in (
        (lambda: figures.ablation_curves({}), "scores: there are none"),
        (lambda: figures.score_bars({}), "there are no scores"),
        (lambda: figures.field_curves({"DFT": {}}, field="lr"), "scores: there are none"),
        (lambda: figures.score_map({}, fields=("learning_rate", "rows")), r"at least one \(learning_rate, rows\)"),
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
    printed = [*paper.scores("bandwidth_ablation"), *paper.scores("margin_ablation")]
    scores = {tuple(row.setting): (row.average,) * 3 for row in printed if row.setting and row.average}
    drawing = figures.ablation_curves(scores, baseline=15.5, metric="the paper, average@8, %")  # type: ignore[arg-type]
    drawing.save(tmp_path / "a.svg")
    assert len(boxes) == 3
    for inside, width, height in boxes:
        assert inside.x0 >= 0 and inside.y0 >= 0 and inside.x1 <= width and inside.y1 <= height


def curves(values: list[object]) -> dict[str, dict[object, figures.Spread]]:
    return {"DFT": {value: (20.0 + n, 19.0 + n, 22.0 + n) for n, value in enumerate(values)}}


def test_more_than_a_decade_is_logarithmic_and_words_stand_side_by_side() -> None:
    for values, scale in (([1e-4, 2e-3], "log"), ([1, 10], "linear"), ([0, 100], "linear"), ([True, False], "linear")):
        (axes,) = figures.field_curves(curves(values), field="x_$y$").figure.axes
        assert axes.get_xscale() == scale and axes.get_xlabel() == r"x_\$y\$"
    drawing = figures.field_curves(curves(["linear", "cosine"]), field="lr", baseline=15.0)
    (axes,), (legend,) = drawing.figure.axes, drawing.figure.legends
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cosine", "linear"]
    assert [text.get_text() for text in legend.get_texts()] == ["DFT", "SFT"]
    assert drawing.rows[0] == ["DFT", "cosine", 21, 20, 23] and drawing.rows[-1] == ["SFT", None, 15.0, None, None]


def test_a_map_names_its_fields_and_frames_what_was_chosen() -> None:
    scores = {(rate, kind): (20.0, 19.0, 21.0) for rate in (1e-3, 1e-4) for kind in ("linear", "cosine")}
    fields = ("learning_rate", "lr_scheduler_type")
    drawing = figures.score_map(scores, fields=fields, chosen=(1e-3, "cosine"))
    axes = drawing.figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == fields == tuple(drawing.header[:2])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.0001", "0.001"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cosine", "linear"]
    assert [patch.get_xy() for patch in axes.patches] == [(1, 0)]  # type: ignore[attr-defined]
    assert len(drawing.rows) == 4


def test_training_curves_have_a_panel_for_each_field() -> None:
    record = {"loss": 0.5, "nll": 1.0, "mean_token_accuracy": 0.7, "gap_p50": 2.0, "effective_ratio": 0.3}
    records = [{"step": n, **record, "skipped": 0.1, "mass_middle": 0.4, "eos_weight": None} for n in (1, 2)]
    drawing = figures.training_curves({"a": records, "b": records}, {"b": "dft"})
    assert [axes.get_title(loc="left") for axes in drawing.figure.axes][:2] == ["weighted loss", "nll"]
    assert drawing.figure.axes[1].lines[1].get_color() == METHOD_LINES["dft"].colour
    assert drawing.rows[0] == ["a", 1, 0.5, 1.0, 0.7, 2.0, 0.3, 0.1, 0.4, None]
    assert len(drawing.figure.axes) == 8
