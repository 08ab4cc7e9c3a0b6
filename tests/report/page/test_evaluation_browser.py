"""The evaluation part of the page in a real browser: runs, flips, answers, the address, exports, hostile text."""

import csv
import io
import json

import pytest

from tests.report.page.browser import Browser, wait
from tests.report.page.pages import ATTACK, BETTER, EASY, HIDDEN, make_evaluated
from trimsft.report.page.build import write_report


@pytest.fixture
def opened(browser, compared) -> Browser:
    browser.open(compared)
    return browser


def lines(browser: Browser) -> list[str]:
    return browser.run(
        "return [...document.querySelectorAll('.flip-line')]"
        ".map(line => [...line.children].filter(c => !c.matches('.parting')).map(c => c.textContent).join('|'))"
    )


def differences(browser: Browser) -> list[list[str]]:
    return browser.run(
        "return [...document.querySelectorAll('#difference-rows tr')]"
        ".map(r => [...r.cells].map(c => c.textContent.replace(/\\s+/g, ' ').trim()))"
    )


def open_first(browser: Browser) -> None:
    """The first problem of the list; the browser tells the page of it a little later."""
    browser.run("document.querySelector('.flip-line').click()")
    wait(lambda: browser.run("return document.querySelector('.flip .opened') !== null"))


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_script_says_what_the_page_said_without_it(browser, compared) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(compared)
    shown = differences(browser)
    assert len(shown) == 4 and browser.run("return document.getElementById('flip-list').hidden")
    assert not browser.run("return document.querySelector('.evaluation-plain').hidden")
    browser.reset()
    browser.open(compared)
    assert differences(browser) == shown
    assert lines(browser) == [
        "e1? e1, easy, no. 2|right 1 → 3 of 4|+2|vote ✗ → ✓|greedy ✗ → ✓",
        "e2? e2, easy, no. 3|right 1 → 3 of 4|+2|vote tie → ✓|greedy ✗ → ✓",
        "e0? e0, easy, no. 1|right 4 → 3 of 4|−1|vote ✓|greedy ✗ → ✓",  # noqa: RUF001
        "h0? h0, hard, no. 1|right 0 → 1 of 4|+1|vote ✗ → tie|greedy ✓",
    ]
    assert browser.text("flip-counts") == (
        "SFT → TrimSFT on 5 problems: 4 changed; more samples right on 3, fewer on 1; the majority flipped on 2 "
        "(2 to right, 0 to wrong), greedy on 3 (3 to right, 0 to wrong). Shown: 4 of 4, largest change first."
    )
    assert browser.console() == [] and browser.requests() == [compared.as_uri()]


PARTINGS = (
    "return [...document.querySelectorAll('#flip-list .parting')].map(e => e.textContent.replace(/\\s+/g, ' ').trim())"
)


def test_flips_show_where_a_wrong_sample_leaves_a_right_one(browser, compared) -> None:
    browser.open(compared)
    shown = browser.run(PARTINGS)
    right, wrong = (f"Since $x^2=1$ it is \\boxed{{{answer}}}, for \\$5." for answer in (1, 7))
    assert shown[2] == f"The first step that differs: ✓ SFT: {right} ✗ TrimSFT: {wrong}"  # e0, which TrimSFT lost
    browser.click("swap")
    assert browser.run(PARTINGS) == shown  # who was wrong does not depend on the order


def test_choosing_runs_and_swapping_them(opened) -> None:
    forward = differences(opened)
    command = "trimsft compare sft trimsft"  # not where they lay when the page was made
    assert opened.text("compare-command") == command
    opened.click("swap")
    backward = differences(opened)
    turned = str.maketrans("+−", "−+")  # noqa: RUF001
    for row, other in zip(forward, backward, strict=True):
        for cell, mirror in zip(row[1:], other[1:], strict=True):
            value, low, high = (part.strip("[],") for part in cell.translate(turned).split())
            assert mirror == f"{value} [{high}, {low}]"
    assert lines(opened)[0].startswith("e1? e1, easy, no. 2|right 3 → 1 of 4|−2|vote ✓ → ✗")  # noqa: RUF001
    opened.put("run-b", 0, "change")
    opened.put("run-a", 1, "change")
    assert opened.text("pair-name") == "Base minus SFT"
    assert [line.split("|")[2] for line in lines(opened)] == ["0", "0", "0"]  # greedy alone
    opened.put("run-b", 1, "change")
    assert lines(opened) == [] and opened.console() == []


def test_filters(opened) -> None:
    for only, names in {
        "gained": ["e1", "e2", "h0"],
        "lost": ["e0"],
        "vote": ["e1", "e2"],
        "greedy": ["e1", "e2", "e0"],
        "all": ["e1", "e2", "e0", "h0", "h1"],
    }.items():
        opened.put("flip-only", only, "change")
        opened.put("flip-benchmark", "", "change")
        assert [line.split("?")[0] for line in lines(opened)] == names
        opened.put("flip-benchmark", 1, "change")
        assert [line.split("?")[0] for line in lines(opened)] == [name for name in names if name[0] == "h"]


def test_a_problem_shows_all_samples_by_vote(opened) -> None:
    open_first(opened)
    before, after = opened.run(
        "return [...document.querySelectorAll('#flip-list .side')]"
        ".map(s => [...s.querySelectorAll('h4, .note, .vote, .grade')].map(e => e.textContent))"
    )
    assert "|".join(before) == (
        "SFT|1 of 4 right|✗ greedy: wrong, 10 tokens|✗ 2 votes for 7wins|✗ sample 2: wrong, 10 tokens|"
        "✗ sample 3: wrong, 10 tokens|✓ 1 vote for 1|✓ sample 1: correct, 10 tokens|1 sample without an answer|"
        "✗ sample 4: no answer, 100 tokens"
    )
    assert after[3] == "✓ 3 votes for 1wins"
    assert after[4] == "✓ samples 1, 2, 3, word for word the same: correct, 10 tokens"
    assert opened.run("return document.querySelectorAll('#flip-list .side math').length") > 4
    written = "return document.querySelector('#flip-list .side .written').textContent"
    assert opened.run(written) == "Since x2=1 it is 2, for $5."
    opened.click("mathematics")
    assert opened.run("return document.querySelectorAll('.opened math').length") == 0  # and the problem stays open
    assert opened.run(written) == "Since $x^2=1$ it is \\boxed{2}, for \\$5."


def test_answers_that_are_not_there_are_not_said_to_be_left_out(browser, tmp_path) -> None:
    for label, words in (("a", EASY), ("b", BETTER)):
        make_evaluated(tmp_path / label, "easy", words)
    (tmp_path / "a/eval/easy/samples.jsonl").unlink()
    runs = {"A": tmp_path / "a", "B": tmp_path / "b"}
    browser.open(write_report(tmp_path / "report.html", runs, title="t"))
    assert browser.text("flip-counts").startswith("A → B on 3 problems: 3 changed")
    open_first(browser)
    sides = "return [...document.querySelectorAll('#flip-list .side')].map(s => s.querySelector('.note').textContent)"
    assert browser.run(sides) == [
        "What it wrote is not known: its directory has no samples.jsonl, only the counts.",
        "3 of 4 right",
    ]


def test_the_address_keeps_the_state_and_what_others_keep_there(browser, compared) -> None:
    browser.open(compared, "#m=2&other=a%20b")
    browser.put("run-a", 0, "change")
    browser.put("flip-only", "lost", "change")
    browser.put("flip-benchmark", 0, "change")
    open_first(browser)
    wait(lambda: "e.problem=easy%2F1" in browser.run("return location.hash"))
    address = browser.run("return location.hash")
    assert "m=2&other=a+b" in address and "e.a=Base" in address
    browser.open(compared, address)
    chosen = [browser.value(name) for name in ("run-a", "run-b", "flip-benchmark", "flip-only")]
    assert chosen == ["0", "2", "0", "lost"]
    assert (
        browser.run("return document.querySelector('details.flip[open] .flip-name').textContent")
        == "e0? e0, easy, no. 1"
    )
    browser.put("run-a", 1, "change")
    assert "e.a" not in browser.run("return location.hash")  # what is as it was at first needs no words


def test_exports(opened, three) -> None:
    rows = rows_of(opened.exported("scores-csv"))
    assert {row["run"] for row in rows} == {"Base", "SFT", "TrimSFT"} and len(rows) == 4 * 3 * 3
    row = next(row for row in rows if (row["metric"], row["run"], row["benchmark"]) == ("average@4", "SFT", "easy"))
    recorded = json.loads((three["SFT"] / "eval/easy/scores.json").read_text())["average"]
    for column, side in (("percent", "value"), ("low", "low"), ("high", "high")):  # written with four digits
        assert float(row[column]) == pytest.approx(100 * recorded[side], abs=1e-4)
    flips = rows_of(opened.exported("flips-csv"))
    assert flips[0] | {"id": "e1", "a_run": "SFT", "a_right": "1", "b_right": "3", "b_majority": "1"} == flips[0]
    drawing = opened.exported("scores-svg")
    assert drawing.startswith("<?xml") and "class=" not in drawing and 'stroke="rgb' in drawing
    assert opened.run("return window.exportedName") == "scores.svg"
    assert opened.run(
        "return new DOMParser().parseFromString(arguments[0], 'image/svg+xml').querySelector('parsererror') === null",
        drawing,
    )


def test_hostile_text_changes_nothing(browser, tmp_path) -> None:
    for label, words in (("a", EASY), ("b", BETTER)):
        answers = {f"{ATTACK}{place}": text for place, text in enumerate(words.values())}
        make_evaluated(tmp_path / label, "easy", answers, text=f"${ATTACK}$ {ATTACK}", problem=ATTACK + "%s")
    runs = {ATTACK: tmp_path / "a", "=cmd()": tmp_path / "b"}
    browser.open(write_report(tmp_path / "report.html", runs, title="t"))
    elements = "return document.querySelectorAll('script, style, img, svg, iframe').length"
    before = browser.run(elements)
    browser.run("document.querySelectorAll('.flip-line').forEach(line => line.click())")
    wait(lambda: browser.run("return document.querySelectorAll('.opened .answer').length") > 10)
    assert browser.run(elements) == before
    shown = browser.run("return document.body.textContent")
    assert not set(shown) & HIDDEN and "⟨U+202E⟩" in shown
    assert browser.run("return window.attacked ?? null") is None and browser.console() == []
    assert [row["b_run"] for row in rows_of(browser.exported("flips-csv"))] == ["'=cmd()"] * 3  # no formula
    assert all(address.startswith(("file:", "about:")) for address in browser.requests())
