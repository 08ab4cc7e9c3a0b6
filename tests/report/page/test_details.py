"""The tab Details, a sweep and the suspects of an audit."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.page.pages import ATTACK, HIDDEN, Page, make_telemetry, page_of, texts, view
from tests.tokens.tiny import make_table
from trimsft.audit.run import Suspect
from trimsft.errors import RunError
from trimsft.report.colours import METHOD_LINES
from trimsft.report.page.build import write_report
from trimsft.report.sweep import read_sweep


def test_trainings_have_a_panel_for_each_field_and_the_lines_of_their_methods(browser, tmp_path) -> None:
    sft = make_telemetry(tmp_path / "sft", "sft", gap_p05=[-3.0, -2.0])
    trim = make_telemetry(tmp_path / "trim", "trim", effective_ratio=[0.1, 0.2])
    runs = {"SFT": sft, "Base": make_table(tmp_path / "base.parquet", [["a", "b"]]), "mine": trim}
    view(browser, write_report(tmp_path / "r.html", runs, title="t"), "tab=details")
    titles = texts(browser, "#trainings .title")
    assert "nll" in titles and "gap: 5 % are below" in titles and "effective ratio" in titles
    stroke = (
        "return [...document.querySelectorAll('#trainings .charts svg .line')].map(l => getComputedStyle(l).stroke)"
    )
    colour = "rgb({}, {}, {})".format(*bytes.fromhex(METHOD_LINES["trim"].colour[1:]))
    assert colour in browser.run(stroke) and texts(browser, "#trainings .legend li") == ["SFT", "mine"]
    assert len(texts(browser, "#gaps .legend li")) == 1 and browser.console() == []
    (tmp_path / "run").mkdir()
    assert "Training logs" not in page_of(tmp_path, {"Base": tmp_path / "run"}).words


# ---- a sweep


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
CHOSEN = point(0.5, 2.0, 0.6, objective="trim")


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "sweep.json"
    path.write_text(json.dumps({"metric": "average@8", "benchmarks": ["math500"], "points": POINTS} | changes))
    return path


def page_with(folder: Path, sweep: Path) -> Page:
    (folder / "run").mkdir(exist_ok=True)
    return page_of(folder, {"Base": folder / "run"}, sweep=sweep)


def test_a_sweep_marks_what_was_chosen_and_what_is_highest_apart(tmp_path) -> None:
    baseline = {"objective": "sft", "value": 0.5, "low": 0.4, "high": 0.6}
    read = page_with(tmp_path, write(tmp_path, selected_on="gsm8k", selection=CHOSEN, baseline=baseline))
    assert read.tabs[0] == "#sweep"
    assert "Chosen on gsm8k: TrimSFT with margin 0.5 and bandwidth 2, 60.0 [58.0, 62.0] %." in read.words
    assert (
        "The highest here is TrimSFT with margin 1.5 and bandwidth 0.8, 61.0 [59.0, 63.0] %; 1 other lies" in read.words
    )
    assert "so the choice is made on other problems. SFT: 50.0 [40.0, 60.0] %." in read.words
    start = read.rows.index(["bandwidth τ", "m = 0.5", "m = 1.5", "m = 4"])
    assert read.rows[start + 1 : start + 4] == [
        ["2", "60.0 chosen [58.0, 62.0]", "50.0 [48.0, 52.0]", "–"],  # noqa: RUF001
        ["0.8", "55.0 [53.0, 57.0]", "61.0 highest [59.0, 63.0]", "30.0 [28.0, 32.0]"],
        ["0.25", "–", "52.0 [50.0, 54.0]", "45.0 [43.0, 47.0]"],  # noqa: RUF001
    ]
    other = {"objective": "dft", "value": 0.6, "low": 0.5, "high": 0.7}
    read = page_with(tmp_path, write(tmp_path, selected_on="gsm8k", selection=other))
    assert "Chosen on gsm8k was DFT, which is not on this map." in read.words


def test_no_setting_of_equal_ones_is_the_highest(tmp_path) -> None:
    read = page_with(tmp_path, write(tmp_path, points=[point(m, 0.8, 0.5) for m in (0.5, 1.5)]))
    assert "No setting is clearly better than another." in read.words
    assert "highest" not in [cell for row in read.rows for cell in row][-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": []}, r"points: tuple should have at least 1 item"),
        ({"points": [point(float("nan"), 1, 0.5)]}, r"margin: input should be a finite number, got nan"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(tmp_path, changes, message) -> None:
    with pytest.raises(RunError, match=message):
        read_sweep(write(tmp_path, **changes))


# ---- an audit

MOST = 200
ONE = Suspect(
    row=4, place="train.jsonl, line 5", start=16, end=18, text="13", expected="12", gap_before=-9.24, gap_after=-7.5,
    score=6.61, left="7 + 5 = ", right=".\nStep 2",
)  # fmt: skip


def audited(folder: Path, suspects: list[Suspect]) -> Path:
    make_table(folder / "tokens.parquet", [["a", "b"]])
    (folder / "suspects.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in suspects))
    return write_report(folder / "report.html", {"Audit": folder}, title="t")


def test_suspects_are_counted_and_the_worst_are_shown(tmp_path) -> None:
    assert "Nothing looks wrong" in Page(audited(tmp_path, []).read_text()).words
    many = [replace(ONE, row=row) for row in range(MOST + 3)]
    read = Page(audited(tmp_path, many).read_text())
    assert f"{MOST + 3} rows look wrong." in read.words and read.tabs[0] == "#suspects"
    assert f"{MOST + 3} spans, the worst {MOST} of them; all are in suspects.jsonl" in read.words
    assert read.html.count("<mark>") == MOST
    (tmp_path / "suspects.jsonl").write_text('{"row": "x"}\n')
    with pytest.raises(RunError, match=r"suspects.jsonl: 0\.\w+: .*; make it again with trimsft audit"):
        write_report(tmp_path / "report.html", {"Audit": tmp_path}, title="t")


def test_suspects_in_a_browser(browser, tmp_path) -> None:
    hostile = replace(ONE, row=7, gap_after=None, place=ATTACK, text=ATTACK, expected=ATTACK, left=ATTACK, right=ATTACK)
    browser.open(audited(tmp_path, [ONE, hostile]))
    assert browser.run("return window.attacked ?? null") is None and browser.console() == []
    assert browser.run("return document.querySelectorAll('#suspects img, #suspects script').length") == 0
    script = (
        "return [...document.querySelectorAll('#suspects tbody tr')].map(row => [...row.cells].map(c => c.textContent))"
    )
    rows = browser.run(script)
    assert rows[0][2:] == ["12", "−9.2", "−7.5", "6.6"] and "7 + 5 = 13.\nStep 2" in rows[0][1]  # noqa: RUF001
    assert "<img/src=x/onerror=window.attacked=2>" in rows[1][1] and rows[1][4] == "–"  # noqa: RUF001
    assert not HIDDEN & set("".join(rows[1]))
