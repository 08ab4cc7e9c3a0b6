"""Curves against one field, and maps of any two."""

import csv
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from trimsft.report import figures
from trimsft.report.figures import fields, planes


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they are saved."""
    found: list[Figure] = []
    for module in (fields, planes):
        save = module.save

        def kept(figure: Figure, *rest: object, save=save) -> list[Path]:  # type: ignore[no-untyped-def]
            found.append(figure)
            return save(figure, *rest)  # type: ignore[no-any-return]

        monkeypatch.setattr(module, "save", kept)
    return found


def curves(values: list[object]) -> dict[str, dict[object, tuple[float, float, float]]]:
    return {"DFT": {value: (20.0 + n, 19.0 + n, 22.0 + n) for n, value in enumerate(values)}}


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1e-4, 2e-3], "log"),
        ([1, 10], "linear"),
        ([0, 100], "linear"),
        ([-1.0, 50.0], "linear"),
        (["linear", "cosine"], "linear"),
        ([True, False], "linear"),
    ],
)
def test_more_than_a_decade_is_logarithmic(
    values: list[object], scale: str, seen: list[Figure], tmp_path: Path
) -> None:
    figures.field_curves(curves(values), tmp_path / "c.svg", field="x_$y$", formats=[".svg"])
    (axes,) = seen[0].axes
    assert axes.get_xscale() == scale and axes.get_xlabel() == r"x_\$y\$"
    (legend,) = seen[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["DFT"]


def test_words_stand_side_by_side(seen: list[Figure], tmp_path: Path) -> None:
    figures.field_curves(curves(["linear", "cosine"]), tmp_path / "c.svg", field="lr", baseline=15.0, formats=[".svg"])
    (axes,) = seen[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cosine", "linear"]
    rows = list(csv.reader((tmp_path / "c.csv").read_text().splitlines()))
    assert rows[1] == ["DFT", "cosine", "21", "20", "23"] and rows[-1] == ["SFT", "", "15", "", ""]
    with pytest.raises(ValueError, match="scores: there are none"):
        figures.field_curves({"DFT": {}}, tmp_path / "none.svg", field="lr")


def test_a_map_names_its_fields_and_frames_what_was_chosen(seen: list[Figure], tmp_path: Path) -> None:
    scores = {(rate, kind): (20.0, 19.0, 21.0) for rate in (1e-3, 1e-4) for kind in ("linear", "cosine")}
    figures.score_map(
        scores,
        tmp_path / "m.svg",
        fields=("learning_rate", "lr_scheduler_type"),
        chosen=(1e-3, "cosine"),
        formats=[".svg"],
    )
    axes = seen[0].axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("learning_rate", "lr_scheduler_type")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.0001", "0.001"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cosine", "linear"]
    assert [patch.get_xy() for patch in axes.patches] == [(1, 0)]  # type: ignore[attr-defined]
    header, *rows = csv.reader((tmp_path / "m.csv").read_text().splitlines())
    assert header[:2] == ["learning_rate", "lr_scheduler_type"] and len(rows) == 4
    with pytest.raises(ValueError, match=r"at least one \(learning_rate, rows\)"):
        figures.score_map({}, tmp_path / "none.svg", fields=("learning_rate", "rows"))
