"""The heatmap of a sweep: what its file must hold, what is shown of it, and what a cell does."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.page.pages import HOSTILE, Page, view
from tests.tokens.tiny import make_table
from trimsft.errors import RunError
from trimsft.report.page.build import write_report
from trimsft.report.page.details_tab import read_sweep


def point(margin: float, bandwidth: float, value: float, /, **more: Any) -> dict[str, Any]:
    bounds = {"low": value - 0.02, "high": value + 0.02}
    return {"margin": margin, "bandwidth": bandwidth, "value": value, **bounds, **more}


# three margins by three bandwidths, not evenly spaced, two not tried
POINTS = [
    point(1.5, 0.8, 0.61, seeds=3, run="runs/a"),
    point(0.5, 0.8, 0.55),
    point(4.0, 0.8, 0.3),
    point(0.5, 2.0, 0.6),
    point(1.5, 2.0, 0.5),
    point(4.0, 0.25, 0.45),
    point(1.5, 0.25, 0.52),
]


def write(folder: Path, **changes: Any) -> Path:
    content = {"metric": "average@8", "benchmarks": ["math500"], "points": POINTS} | changes
    path = folder / "sweep.json"
    path.write_text(json.dumps(content))
    return path


def page_with(folder: Path, sweep: Path | None) -> Path:
    (folder / "run").mkdir(exist_ok=True)
    return write_report(folder / "report.html", {"Base": folder / "run"}, title="t", sweep=sweep)


def test_the_table_is_ordered_and_has_gaps(tmp_path) -> None:
    assert 'id="sweep"' not in page_with(tmp_path, None).read_text(encoding="utf-8")
    page = Page(page_with(tmp_path, write(tmp_path)).read_text(encoding="utf-8"))
    rows = [[" ".join(cell.split()) for cell in row] for row in page.rows]
    start = rows.index(["bandwidth τ", "m = 0.5", "m = 1.5", "m = 4"])
    assert rows[start + 1 : start + 4] == [
        ["τ = 2", "60.0 [58.0, 62.0]", "50.0 [48.0, 52.0]", "not tried"],
        ["τ = 0.8", "55.0 [53.0, 57.0]", "61.0 [59.0, 63.0] 3 seeds highest", "30.0 [28.0, 32.0]"],
        ["τ = 0.25", "not tried", "52.0 [50.0, 54.0]", "45.0 [43.0, 47.0]"],
    ]
    text = " ".join(page.text.split())
    assert "TrimSFT with margin 1.5 and bandwidth 0.8, 61.0 [59.0, 63.0]; 1 other lies within" in text
    colours = {
        (attributes["data-margin"], attributes["data-bandwidth"]): attributes["class"]
        for tag, attributes in page.elements
        if tag == "td" and "data-margin" in attributes
    }
    assert colours["1.5", "0.8"] == "lit l8 highest" and colours["4.0", "0.8"] == "lit l0"
    assert colours["0.5", "2.0"] == "lit l8 alike"  # 0.6 of 0.3 to 0.61


CHOSEN = {"objective": "trim", "margin": 0.5, "bandwidth": 2.0}


def test_the_chosen_setting_and_the_highest_are_marked_apart(tmp_path) -> None:
    """What was chosen on another benchmark is not the highest of those that are shown."""
    path = write(tmp_path, selected_on="gsm8k", selection=CHOSEN | {"value": 0.6, "selected_on": "gsm8k"})
    page = Page(page_with(tmp_path, path).read_text(encoding="utf-8"))
    assert "Chosen on gsm8k: TrimSFT with margin 0.5 and bandwidth 2, 60.0 [58.0, 62.0] here." in page.words
    assert "Highest: TrimSFT with margin 1.5 and bandwidth 0.8, 61.0 [59.0, 63.0]" in page.words
    cells = [cell for row in page.rows for cell in row if cell.endswith(("chosen", "highest"))]
    assert cells == ["60.0 [58.0, 62.0] chosen", "61.0 [59.0, 63.0] 3 seeds highest"]
    classes = [attributes["class"] for tag, attributes in page.elements if "chosen" in (attributes.get("class") or "")]
    assert classes == ["lit l8 alike chosen"]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (CHOSEN | {"margin": 1.5, "bandwidth": 0.8}, "Chosen on gsm8k: TrimSFT with margin 1.5 and bandwidth 0.8"),
        (
            {"objective": "dft", "learning_rate": 1e-5},
            "Chosen on gsm8k: DFT, with settings that this map does not have.",
        ),
        (None, "A setting was chosen on gsm8k; the file does not say which."),  # of an older version
    ],
)
def test_a_choice_that_is_the_highest_or_not_on_the_map(tmp_path, selection, words) -> None:
    path = write(tmp_path, selected_on="gsm8k", selection=selection)
    page = Page(page_with(tmp_path, path).read_text(encoding="utf-8"))
    assert words in page.words and "Highest: TrimSFT with margin 1.5" in page.words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": []}, r"points: tuple should have at least 1 item"),
        ({"points": [point(1, 0, 0.5)]}, r"points.0.bandwidth: input should be greater than 0, got 0"),
        ({"points": [point(1, 1, 0.5, margin=True)]}, r"points.0.margin: input should be a valid number, got True"),
        ({"points": [point(float("nan"), 1, 0.5)]}, r"margin: input should be a finite number, got nan"),
        ({"points": [point(1, 1, 61.0)]}, r"points.0.high: input should be less than or equal to 1, got 61"),
        ({"points": [point(1, 1, 0.5, low=0.6)]}, r"points.0: .*a value must lie within its interval"),
        ({"points": [point(1, 1, 0.5, seeds=0)]}, r"seeds: input should be greater than or equal to 1, got 0"),
        ({"points": [point(1, 1, 0.5, objective="sft")]}, "objective: input should be 'trim', 'trim-e' or 'trim-h'"),
        ({"points": [point(1, 1, 0.5)] * 2}, r"points: a setting is there twice"),
        ({"metric": None}, r"metric: input should be a valid string, got None"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, message) -> None:
    with pytest.raises(RunError, match=message):
        read_sweep(write(tmp_path, **changes))


def test_a_cell_sets_the_viewer_by_pointer_and_keyboard(browser, tmp_path) -> None:
    make_table(tmp_path / "run" / "tokens.parquet", [["a", "b"] * 20], prompts=("P?",))
    page = write_report(tmp_path / "report.html", {"Base": tmp_path / "run"}, title="t", sweep=write(tmp_path))
    browser.size(1280, 700)
    view(browser, page)
    browser.run("document.documentElement.style.scrollBehavior = 'auto'")  # at once, for the test
    browser.run("document.getElementById('sweep').scrollIntoView()")
    browser.run("document.querySelector('.heat .highest button').click()")
    assert browser.box("#tokens")[1] == pytest.approx(0, abs=1)  # the viewer is at the top, to the pixel
    assert browser.run("return document.activeElement.id") == "tokens"
    assert browser.text("yaml") == "objective: trim\nmargin: 1.5\nbandwidth: 0.8"
    assert browser.run("return document.querySelectorAll('.heat button[tabindex=\"0\"]').length") == 1
    browser.run("document.querySelector('.heat button[tabindex=\"0\"]').focus()")
    # the last leads nowhere
    browser.press("ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp", "ArrowUp", "Enter")
    assert browser.text("yaml") == "objective: trim\nmargin: 4\nbandwidth: 0.8"
    assert browser.run("return document.querySelectorAll('[aria-pressed=true]').length") == 1
    assert "margin 4, bandwidth 0.8" in browser.text("sweep-chosen")
    assert browser.console() == []


def test_hostile_sweeps_and_their_csv(browser, tmp_path) -> None:
    hostile = "".join(HOSTILE[:5])
    texts = dict.fromkeys(("metric", "selected_on", "command"), hostile)
    path = write(tmp_path, **texts, benchmarks=[hostile], points=[point(1, 1, 0.5, run=f"={hostile}")])
    browser.open(page_with(tmp_path, path))
    assert browser.run("return window.attacked ?? null") is None and browser.console() == []
    assert browser.run("return document.querySelectorAll('main img, main script, #sweep svg').length") == 0
    (row,) = csv.DictReader(io.StringIO(browser.exported("sweep-csv")))
    assert row["run"] == f"'={hostile}" and row["metric"] == hostile and float(row["value"]) == 0.5
