"""Every figure: its files, its data, and what a reader of a column sees."""

import csv
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from trimsft import paper
from trimsft.report import figures
from trimsft.report.figures import bars, curves
from trimsft.report.figures.ablation import _chosen as chosen_curves
from trimsft.report.figures.curves import FEWEST, Course, Reliability
from trimsft.report.figures.style import PRINT_FORMATS, STYLE, csv_of, lines_of, plain

HOSTILE = {"Base": 0, "$x_{": 1, "_hidden": 2, 'a,"b"\n<c>&': 3}
"""Labels that LaTeX, legends, CSV and SVG would each trip over."""
SHARES = np.array([[1.5, 0.5, 2.0], [0.0, 4.0, 6.0], [1.0, 5.0, 80.0]])


def gaps(path: Path, **formats: object) -> list[Path]:
    grid = np.linspace(-4, 8, 50)
    curves = {label: np.exp(-((grid - 2 - n) ** 2)) for label, n in HOSTILE.items()}
    return figures.gap_distribution(grid, curves, path, band=(1.5, 0.8), **formats)  # type: ignore[arg-type]


def reliability(path: Path, **formats: object) -> list[Path]:
    run = Reliability([0.3, 0.9], [0.25, 0.95], [FEWEST, 900], 0.031, 0.02, 0.04, bins=10)
    return figures.reliability_diagram(dict.fromkeys(HOSTILE, run), path, **formats)  # type: ignore[arg-type]


def positions(path: Path, **formats: object) -> list[Path]:
    course = Course([2.0, 1.0, 0.5], [0.1, 0.25, float("nan")])
    return figures.position_curves(dict.fromkeys(HOSTILE, course), path, **formats)  # type: ignore[arg-type]


def movement(path: Path, **formats: object) -> list[Path]:
    return figures.movement_maps(dict.fromkeys(HOSTILE, SHARES), path, **formats)  # type: ignore[arg-type]


def categories(path: Path, **formats: object) -> list[Path]:
    ours = {"numeric": (10.0, 20.0, 30.0), "other": (90.0, 80.0, 70.0)}
    theirs = {"numeric": (15.0, 5.0, 10.0), "other": (85.0, 95.0, 90.0)}
    return figures.category_bars(ours, path, paper=theirs, **formats)  # type: ignore[arg-type]


def sampling(path: Path, **formats: object) -> list[Path]:
    values = {label: (50.0 + n, 45.0, 60.0) for label, n in HOSTILE.items()}
    panel = dict.fromkeys(("math500", "olympiadbench", "minerva", "amc", "aime24"), values)
    return figures.sampling_bars({"pass@8": panel, "best-of-8": {"amc": {"Base": (1.0, 0.0, 2.0)}}}, path, **formats)  # type: ignore[arg-type]


def scores(path: Path, **formats: object) -> list[Path]:
    values = {label: (50.0 + n, 45.0, 60.0) for label, n in HOSTILE.items()}
    benchmarks = dict.fromkeys(("math500", "olympiadbench", "minerva", "amc", "aime24", "average"), values)
    theirs = {"math500": {"Base": 0.0, "unknown": 3.0}}
    return figures.score_bars(benchmarks, path, paper=theirs, **formats)  # type: ignore[arg-type]


def ratios(path: Path, **formats: object) -> list[Path]:
    margins, bandwidths = np.linspace(-2, 8, 6), np.geomspace(0.1, 8, 5)
    plane = np.outer(np.linspace(0.01, 1, 5), np.ones(6))
    return figures.effective_ratio_map(margins, bandwidths, plane, path, marked=[(1.5, 0.8), (99, 1)], **formats)  # type: ignore[arg-type]


def ablation(path: Path, **formats: object) -> list[Path]:
    scores = {(m, tau): (30 - tau, 29 - tau, 31 - tau) for m in (1.0, 6.0) for tau in (0.5, 1.0, 2.0)}
    scores |= {(m, 1.0): (30 - m / 9, 29.0, 31.0) for m in (0.0, 3.0)}
    return figures.ablation_curves(scores, path, baseline=15.5, **formats)  # type: ignore[arg-type]


DRAWN: dict[Callable[..., list[Path]], float] = {
    gaps: 3.3,
    reliability: 3.3,
    positions: 3.3,
    movement: 6.6,
    categories: 3.3,
    sampling: 3.3,
    scores: 6.6,
    ratios: 3.3,
    ablation: 3.3,
}
"""With their widths in inches: a column, or a page of two."""


def rows(files: list[Path]) -> list[dict[str, str]]:
    with files[-1].open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_files_of_a_figure(draw: Callable[..., list[Path]], tmp_path: Path) -> None:
    files = draw(tmp_path / "one.svg", formats=PRINT_FORMATS)
    assert [path.name for path in files] == ["one.svg", "one.pdf", "one.png", "one.csv"]
    ElementTree.fromstring(files[0].read_bytes())
    assert files[1].read_bytes().startswith(b"%PDF")
    assert struct.unpack(">I", files[2].read_bytes()[16:20])[0] == round(200 * DRAWN[draw])
    again = draw(tmp_path / "two.svg", formats=[".svg"])
    assert [path.read_bytes() for path in again] == [files[0].read_bytes(), files[-1].read_bytes()]
    assert rows(files)


def test_labels_are_shown_as_they_are(tmp_path: Path) -> None:
    assert list(rows(gaps(tmp_path / "g.svg", formats=[]))[0]) == ["gap", *HOSTILE]
    assert plain("_a") == " _a" and plain("$a$") == r"\$a\$" and plain("SFT") == "SFT"


def test_data_beside_the_figures(tmp_path: Path) -> None:
    moved = rows(movement(tmp_path / "m.svg", formats=[]))
    assert len(moved) == 36 and moved[8] == {
        "run": "Base",
        "before": "high",
        "after": "high",
        "percent": "80",
    }
    bins = rows(reliability(tmp_path / "r.svg", formats=[]))
    assert bins[1] | {"run": ""} == {
        "run": "", "confidence": "0.9", "accuracy": "0.95", "tokens": "900",
        "ece": "0.031", "ece_low": "0.02", "ece_high": "0.04",
    }  # fmt: skip
    parts = rows(positions(tmp_path / "p.svg", formats=[]))
    assert (parts[1]["from"], parts[1]["to"], parts[2]["mean_weight"]) == ("33.3333", "66.6667", "")
    sampled = rows(sampling(tmp_path / "s.svg", formats=[]))
    assert len(sampled) == 21 and sampled[-1]["metric"] == "best-of-8" and sampled[-1]["high"] == "2"
    curve = rows(ablation(tmp_path / "a.svg", formats=[]))
    assert len(curve) == 9 and curve[-1]["margin"] == "sft" and curve[-1]["value"] == "15.5"
    plane = rows(ratios(tmp_path / "e.svg", formats=[]))
    assert len(plane) == 30 and float(plane[-1]["effective_ratio"]) == 1


def drawn_by(module: ModuleType, monkeypatch: pytest.MonkeyPatch, draw: Callable[[], object]) -> Figure:
    """The figure that would have been saved."""
    kept: list[Figure] = []
    monkeypatch.setattr(module, "save", lambda figure, *_: kept.append(figure))
    draw()
    return kept[0]


def test_lines_of_reliability_break_where_bins_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sure, tokens = [0.05, 0.15, 0.45, 0.55, 0.65, 1.0], [FEWEST, 40, 50, FEWEST - 1, 60, 70]
    run = Reliability(sure, [0.0, 0.1, 0.5, 0.5, 0.6, 1.0], tokens, 0.1, 0.1, 0.1, bins=10)
    figure = drawn_by(curves, monkeypatch, lambda: figures.reliability_diagram({"Run": run}, tmp_path / "r.svg"))
    drawn = np.asarray(figure.axes[0].lines[1].get_xdata(), dtype=float)
    nothing = float("nan")
    expected = [0.05, 0.15, nothing, nothing, 0.45, nothing, 0.65, nothing, nothing, 1.0]
    np.testing.assert_array_equal(drawn, expected)


def test_categories_name_their_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {"other": (100.0, 100.0, 100.0)}
    for setting, title in (((1.0, 0.5), r"TrimSFT at $m=1$, $\tau=0.5$"), (None, "")):
        draw = partial(figures.category_bars, shares, tmp_path / "c.svg", setting=setting)
        assert drawn_by(bars, monkeypatch, draw).axes[0].get_title(loc="left") == title


def test_ablation_of_one_setting_and_of_none(tmp_path: Path) -> None:
    assert figures.ablation_curves({(1.5, 0.8): (30.0, 29.0, 31.0)}, tmp_path / "one.svg")
    with pytest.raises(ValueError, match="scores: there are none"):
        figures.ablation_curves({}, tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_of_many_curves_some_far_apart_are_drawn() -> None:
    assert chosen_curves({float(margin): 3 for margin in range(7)}) == [0, 2, 4, 6]
    assert chosen_curves({1.0: 8, 6.0: 8, 0.0: 3, 2.0: 3, 3.0: 3, 5.0: 2}) == [0, 1, 3, 6]
    assert chosen_curves({1.0: 8, 6.0: 8, 0.0: 2}) == [1, 6]
    assert chosen_curves({1.0: 1}) == [1]


def test_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks of the first layout are 15, 20, ..., those of the second 15.0, 17.5, ...: wider."""
    boxes = []
    save = Figure.savefig

    def measured(figure: Figure, *args: object, **how: object) -> None:
        save(figure, *args, **how)  # type: ignore[arg-type]
        boxes.append((figure.get_tightbbox(), *figure.get_size_inches()))

    monkeypatch.setattr(Figure, "savefig", measured)
    scores = {
        (row.setting.margin, row.setting.bandwidth): (row.average, row.average, row.average)
        for table in ("bandwidth_ablation", "margin_ablation")
        for row in paper.scores(table)
        if row.setting is not None and row.average is not None
    }
    metric = "the paper, average@8, %"
    figures.ablation_curves(scores, tmp_path / "a.svg", baseline=15.5, metric=metric, formats=PRINT_FORMATS)
    assert boxes
    for inside, width, height in boxes:
        assert inside.x0 >= 0 and inside.y0 >= 0 and inside.x1 <= width and inside.y1 <= height


def test_methods_look_the_same_in_every_figure() -> None:
    labels = ["Base", "SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H"]
    lines = lines_of(labels)
    assert lines_of(["trim"])["trim"] == lines_of(["mine", "TrimSFT"])["TrimSFT"] == lines["TrimSFT"]
    for look in ("colour", "dashes", "marker"):  # each alone tells all of them apart
        assert len({getattr(line, look) for line in lines.values()}) == 7
    assert lines_of(["mine", "TrimSFT"])["mine"] != lines["TrimSFT"]
    assert len(lines_of([f"run {n}" for n in range(20)])) == 20


def test_style_is_left_as_it_was(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    gaps(tmp_path / "g.svg", formats=[".svg"])
    assert dict(matplotlib.rcParams) == before and matplotlib.rcParams["font.size"] != STYLE["font.size"]


def test_csv_has_no_minus_zero_and_nothing_for_nan() -> None:
    assert csv_of(["a", "b", "c"], [[-0.0, float("nan"), None], [1 / 3, "x", 7]]) == b"a,b,c\n0,,\n0.333333,x,7\n"


def test_bars_of_scores_with_the_papers_marks_are_as_wide_as_they_must_be(tmp_path: Path) -> None:
    drawn = rows(scores(tmp_path / "page.svg", formats=[]))
    assert len(drawn) == 24 and drawn[0]["paper"] == "0" and drawn[4]["paper"] == ""
    few = {"amc": {"SFT": (40.0, 35.0, 45.0), "TrimSFT": (60.0, 55.0, 65.0)}}
    (png, _) = figures.score_bars(few, tmp_path / "column.svg", formats=[".png"])
    assert struct.unpack(">I", png.read_bytes()[16:20])[0] == 660
    with pytest.raises(ValueError, match="there are no scores"):
        figures.score_bars({}, tmp_path / "none.svg")
