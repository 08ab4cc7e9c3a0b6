"""The section "Rows that look wrong", of a folder that holds an audit."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.report.page.pages import ATTACK, HIDDEN
from tests.tokens.tiny import make_table
from trimsft.audit.run import Suspect
from trimsft.errors import RunError
from trimsft.report.page.build import write_report
from trimsft.report.page.details_tab import MOST

ONE = Suspect(
    row=4, place="train.jsonl, line 5", start=16, end=18, text="13", expected="12", gap_before=-9.24, gap_after=-7.5,
    score=6.61, left="7 + 5 = ", right=".\nStep 2",
)  # fmt: skip


def page_with(folder: Path, suspects: list[Suspect]) -> Path:
    make_table(folder / "tokens.parquet", [["a", "b"]])
    lines = [json.dumps(asdict(one)) + "\n" for one in suspects]
    (folder / "suspects.jsonl").write_text("".join(lines))
    return write_report(folder / "report.html", {"Audit": folder}, title="t")


def test_there_is_no_section_without_an_audit(tmp_path) -> None:
    make_table(tmp_path / "tokens.parquet", [["a", "b"]])
    text = write_report(tmp_path / "report.html", {"Base": tmp_path}, title="t").read_text()
    assert "Rows that look wrong" not in text


def test_nothing_found_is_said_and_the_rest_is_counted(tmp_path) -> None:
    assert "Nothing reaches the threshold" in page_with(tmp_path, []).read_text()
    text = page_with(tmp_path, [replace(ONE, row=row) for row in range(MOST + 3)]).read_text()
    assert f"{MOST + 3} rows have a suspect. 3 more are in suspects.jsonl" in text
    assert text.count("<mark>") == MOST


def test_a_damaged_ranking_is_named(tmp_path) -> None:
    page_with(tmp_path, [ONE])
    (tmp_path / "suspects.jsonl").write_text('{"row": "x"}\n')
    with pytest.raises(RunError, match=r"suspects.jsonl: 0\.\w+: .*; make it again with trimsft audit"):
        write_report(tmp_path / "report.html", {"Audit": tmp_path}, title="t")


def test_the_table_in_a_browser(browser, tmp_path) -> None:
    hostile = replace(ONE, row=7, gap_after=None, place=ATTACK, text=ATTACK, expected=ATTACK, left=ATTACK, right=ATTACK)
    browser.open(page_with(tmp_path, [ONE, hostile]))
    assert browser.run("return window.attacked ?? null") is None and browser.console() == []
    assert browser.run("return document.querySelectorAll('#audit img, #audit script, #audit svg').length") == 0
    rows = browser.run(
        "return [...document.querySelectorAll('#audit tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert rows[0] == ["4", "7 + 5 = 13.\nStep 2", "12", "-9.2", "-7.5", "6.6", "16 to 18"]
    assert "<img/src=x/onerror=window.attacked=2>" in rows[1][1] and rows[1][4] == "\u2013"
    assert not HIDDEN & set("".join(rows[1]))
    assert browser.run("return document.querySelector('nav a[href=\"#audit\"]').textContent") == "Rows that look wrong"
