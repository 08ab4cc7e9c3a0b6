"""The tab Details, a sweep and the suspects of an audit."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from tests.report.page.pages import ATTACK, HIDDEN, Page, make_telemetry, page_of, report_of, texts, view
from tests.tokens.tiny import make_table
from trimsft.audit.run import Suspect
from trimsft.tables import text_table


def test_trainings_have_a_panel_for_each_field(browser, tmp_path) -> None:
    sft = make_telemetry(tmp_path / "sft", "sft", gap_p05=[-3.0, -2.0])
    trim = make_telemetry(tmp_path / "trim", "trim", effective_ratio=[0.1, 0.2])
    runs = {"SFT": sft, "Base": make_table(tmp_path / "base.parquet", [["a", "b"]]), "mine": trim}
    view(browser, report_of(tmp_path, runs), "tab=details")
    titles = texts(browser, "#trainings .title")
    assert "nll" in titles and "gap: 5 % are below" in titles and "effective ratio" in titles
    assert texts(browser, "#trainings .legend li") == ["SFT", "mine"]


def test_a_sweep_is_shown_first(tmp_path) -> None:
    table = text_table(("", "hard"), [("DFT", "60.0"), ("TrimSFT, m = 6", "61.0")], ["Brackets: 95 %."])
    (tmp_path / "run").mkdir()
    settings = {"command": "trimsft sweep x"}
    first = (table, ["Chosen on easy: DFT.", "tau explains most."])
    read = page_of(tmp_path, {"Base": tmp_path / "run"}, settings=settings, sweep=first)
    assert read.tabs[0] == "#sweep" and ["TrimSFT, m = 6", "61.0"] in read.rows and "sweep" in read.data["csv"]
    said = "Chosen on easy: DFT. tau explains most. Brackets: 95 %."
    assert said in read.words and "Made by trimsft sweep x" in read.words


# ---- an audit

MOST = 200
ONE = Suspect(
    row=4, place="train.jsonl, line 5", start=16, end=18, text="13", expected="12", gap_before=-9.24, gap_after=-7.5,
    score=6.61, left="7 + 5 = ", right=".\nStep 2",
)  # fmt: skip


def audited(folder: Path, suspects: list[Suspect]) -> Path:
    make_table(folder / "tokens.parquet", [["a", "b"]])
    (folder / "suspects.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in suspects))
    return report_of(folder, {"Audit": folder})


def test_suspects_are_counted(tmp_path) -> None:
    assert "Nothing looks wrong" in Page(audited(tmp_path, [])).words
    many = [replace(ONE, row=row) for row in range(MOST + 3)]
    read = Page(audited(tmp_path, many))
    assert f"{MOST + 3} rows look wrong." in read.words and read.tabs[0] == "#suspects"
    assert f"{MOST + 3} spans, the worst {MOST} of them; all are in suspects.jsonl" in read.words
    assert read.html.count("<mark>") == MOST


def test_suspects_in_a_browser(browser, tmp_path) -> None:
    hostile = replace(ONE, row=7, gap_after=None, place=ATTACK, text=ATTACK, expected=ATTACK, left=ATTACK, right=ATTACK)
    browser.open(audited(tmp_path, [ONE, hostile]))
    assert browser.run("return document.querySelectorAll('#suspects img, #suspects script').length") == 0
    script = (
        "return [...document.querySelectorAll('#suspects tbody tr')].map(row => [...row.cells].map(c => c.textContent))"
    )
    rows = browser.run(script)
    assert rows[0][2:] == ["12", "−9.2", "−7.5", "6.6"] and "7 + 5 = 13.\nStep 2" in rows[0][1]  # noqa: RUF001
    assert "<img/src=x/onerror=window.attacked=2>" in rows[1][1] and rows[1][4] == "–"  # noqa: RUF001
    assert not HIDDEN & set("".join(rows[1]))
