"""The evaluation part of the page in a real browser: runs, flips, answers, the address, exports, hostile text."""

import csv
import io
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.report.browser import Browser, needs_browser
from tests.report.evaluated import make_evaluated
from tests.report.test_evaluation_page import BETTER, EASY, HARD
from tests.report.test_report import HOSTILE
from trimsft.report import write_report

pytestmark = needs_browser
ATTACK = "".join(HOSTILE).replace("%", "").replace("\ud800", "")
# downloads are kept instead of saved
KEEP = """
window.kept = null;
URL.createObjectURL = (blob) => { window.kept = blob; return "blob:kept"; };
HTMLAnchorElement.prototype.click = function () { window.keptName = this.download; };
"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Three runs on two benchmarks; formulas in what they wrote."""
    folder = tmp_path_factory.mktemp("page")
    for label in ("Base", "SFT", "TrimSFT"):
        better = label == "TrimSFT"
        wrote = {"text": "Since $x^2=1$ it is \\boxed{%s}, for \\$5."}
        make_evaluated(folder / label, "hard", HARD | {"h0": "1 2 3 -"} if better else HARD, **wrote)
        make_evaluated(
            folder / label, "easy", BETTER if better else EASY, greedy="2" if label == "SFT" else "1", **wrote
        )
    runs = {label: folder / label for label in ("Base", "SFT", "TrimSFT")}
    return write_report(folder / "report.html", runs, title="A title")


def open_page(browser: Browser, page: Path, fragment: str = "") -> None:
    browser.run("location.href = 'about:blank'")
    browser._ask("POST", f"{browser._session}/url", {"url": page.resolve().as_uri() + fragment})


@pytest.fixture
def opened(browser, page) -> Browser:
    browser.requests(), browser.console()
    open_page(browser, page)
    return browser


def lines(browser: Browser) -> list[str]:
    return browser.run(
        "return [...document.querySelectorAll('.flip-line')]"
        ".map(line => [...line.children].map(c => c.textContent).join('|'))"
    )


def choose(browser: Browser, control: str, value: str) -> None:
    browser.run(
        "const [id, value] = arguments; const control = document.getElementById(id); control.value = value;"
        "control.dispatchEvent(new Event('change'))",
        control,
        value,
    )


def differences(browser: Browser) -> list[list[str]]:
    return browser.run(
        "return [...document.querySelectorAll('#difference-rows tr')]"
        ".map(r => [...r.cells].map(c => c.textContent.replace(/\\s+/g, ' ').trim()))"
    )


def kept(browser: Browser, button: str) -> str:
    return browser.run(f"{KEEP} document.getElementById('{button}').click(); return kept.text()")


def test_the_script_says_what_the_page_said_without_it(opened, page) -> None:
    shown = differences(opened)
    with Browser(javascript=False) as plain:
        plain.open(page)
        assert differences(plain) == shown and len(shown) == 4
        assert plain.run("return document.getElementById('flip-list').hidden")
        assert not plain.run("return document.querySelector('.evaluation-plain').hidden")
    assert lines(opened) == [
        "e1 easy, no. 2|right 1 → 3 of 4|+2|vote ✗ → ✓|greedy ✗ → ✓",
        "e2 easy, no. 3|right 1 → 3 of 4|+2|vote tie → ✓|greedy ✗ → ✓",
        "e0 easy, no. 1|right 4 → 3 of 4|−1|vote ✓|greedy ✗ → ✓",  # noqa: RUF001
        "h0 hard, no. 1|right 0 → 1 of 4|+1|vote ✗ → tie|greedy ✓",
    ]
    told = opened.run("return document.getElementById('flip-counts').textContent")
    assert told == (
        "SFT → TrimSFT on 5 problems: 4 changed; more samples right on 3, fewer on 1; the majority flipped on 2 "
        "(2 to right, 0 to wrong), greedy on 3 (3 to right, 0 to wrong). Shown: 4 of 4, largest change first."
    )
    assert opened.console() == [] and len(opened.requests()) <= 2


def test_choosing_runs_and_swapping_them(opened) -> None:
    forward = differences(opened)
    opened.run("document.getElementById('swap').click()")
    backward = differences(opened)
    turned = str.maketrans("+−", "−+")  # noqa: RUF001
    for row, other in zip(forward, backward, strict=True):
        for cell, mirror in zip(row[1:], other[1:], strict=True):
            value, low, high = (part.strip("[],") for part in cell.translate(turned).split())
            assert mirror == f"{value} [{high}, {low}]"
    assert lines(opened)[0].startswith("e1 easy, no. 2|right 3 → 1 of 4|−2|vote ✓ → ✗")  # noqa: RUF001
    choose(opened, "run-b", "0")
    choose(opened, "run-a", "1")
    assert opened.run("return document.getElementById('pair-name').textContent") == "Base minus SFT"
    assert [line.split("|")[2] for line in lines(opened)] == ["0", "0", "0"]  # greedy alone
    choose(opened, "run-b", "1")
    assert lines(opened) == [] and opened.console() == []


@pytest.mark.parametrize(
    ("only", "found"),
    [
        ("gained", ["e1", "e2", "h0"]),
        ("lost", ["e0"]),
        ("vote", ["e1", "e2"]),
        ("greedy", ["e1", "e2", "e0"]),
        ("all", ["e1", "e2", "e0", "h0", "h1"]),
    ],
)
def test_filters(opened, only, found) -> None:
    choose(opened, "flip-only", only)
    assert [line.split()[0] for line in lines(opened)] == found
    choose(opened, "flip-benchmark", "1")
    assert [line.split()[0] for line in lines(opened)] == [name for name in found if name[0] == "h"]


def test_a_problem_shows_all_samples_by_vote(opened) -> None:
    opened.run("document.querySelector('.flip-line').click()")
    text = (
        "return [...document.querySelectorAll('#flip-list .side')]"
        ".map(s => [...s.querySelectorAll('h4, .note, .vote, .grade')].map(e => e.textContent))"
    )
    before, after = opened.run(text)
    assert before == [
        "SFT",
        "1 of 4 right",
        "✗ greedy: wrong, 10 tokens",
        "✗ 2 votes for 7wins",
        "✗ sample 2: wrong, 10 tokens",
        "✗ sample 3: wrong, 10 tokens",
        "✓ 1 vote for 1",
        "✓ sample 1: correct, 10 tokens",
        "1 sample without an answer",
        "✗ sample 4: no answer, 100 tokens",
    ]
    assert after[3] == "✓ 3 votes for 1wins"
    assert after[4] == "✓ samples 1, 2, 3, word for word the same: correct, 10 tokens"
    assert opened.run("return document.querySelectorAll('#flip-list .side math').length") > 4
    rendered = opened.run("return document.querySelector('#flip-list .side .written').textContent")
    assert rendered == "Since x2=1 it is 2, for $5."
    opened.run("document.getElementById('mathematics').click()")
    assert opened.run("return document.querySelectorAll('.opened math').length") == 0  # and the problem stays open
    assert opened.run("return document.querySelector('#flip-list .side .written').textContent") == (
        "Since $x^2=1$ it is \\boxed{2}, for \\$5."
    )


def test_answers_that_are_not_there_are_not_said_to_be_left_out(browser, tmp_path) -> None:
    for label, words in (("a", EASY), ("b", BETTER)):
        make_evaluated(tmp_path / label, "easy", words)
    (tmp_path / "a/eval/easy/samples.jsonl").unlink()
    runs = {"A": tmp_path / "a", "B": tmp_path / "b"}
    open_page(browser, write_report(tmp_path / "report.html", runs, title="t"))
    told = browser.run("return document.getElementById('flip-counts').textContent")
    assert told.startswith("A → B on 3 problems: 3 changed")
    browser.run("document.querySelector('.flip-line').click()")
    sides = "return [...document.querySelectorAll('#flip-list .side')].map(s => s.querySelector('.note').textContent)"
    assert browser.run(sides) == [
        "What it wrote is not known: its directory has no samples.jsonl, only the counts.",
        "3 of 4 right",
    ]


def test_the_address_keeps_the_state_and_what_others_keep_there(browser, page) -> None:
    open_page(browser, page, "#m=2&other=a%20b")
    choose(browser, "run-a", "0")
    choose(browser, "flip-only", "lost")
    choose(browser, "flip-benchmark", "0")
    browser.run("document.querySelector('.flip-line').click()")
    browser.run("return new Promise(done => setTimeout(done, 50))")
    address = browser.run("return location.hash")
    assert "m=2&other=a+b" in address and "e.a=Base" in address and "e.problem=easy%2F1" in address
    open_page(browser, page, address)
    values = "return ['run-a', 'run-b', 'flip-benchmark', 'flip-only'].map(id => document.getElementById(id).value)"
    assert browser.run(values) == ["0", "2", "0", "lost"]
    assert browser.run("return document.querySelector('details.flip[open] .which').textContent") == "e0 easy, no. 1"
    choose(browser, "run-a", "1")
    assert "e.a" not in browser.run("return location.hash")  # what is as it was at first needs no words


@pytest.mark.parametrize(
    "fragment",
    [
        "#e.a=__proto__&e.on=nowhere&e.only=constructor&e.problem=x",
        f"#e.a={quote(ATTACK)}&e.source=2",
        "#e.a=%E0%A4%A",
        "#scores",
    ],
)
def test_hostile_addresses_are_harmless(browser, page, fragment) -> None:
    browser.console()
    open_page(browser, page, fragment)
    assert browser.run("return document.getElementById('run-a').value") == "1" and len(lines(browser)) == 4
    assert browser.run("return window.attacked ?? null") is None and browser.console() == []


def test_exports(opened, page) -> None:
    rows = list(csv.DictReader(io.StringIO(kept(opened, "scores-csv"))))
    assert {row["run"] for row in rows} == {"Base", "SFT", "TrimSFT"} and len(rows) == 4 * 3 * 3
    row = next(row for row in rows if (row["metric"], row["run"], row["benchmark"]) == ("average@4", "SFT", "easy"))
    recorded = json.loads((page.parent / "SFT/eval/easy/scores.json").read_text())["average"]
    for column, side in (("percent", "value"), ("low", "low"), ("high", "high")):
        assert float(row[column]) == pytest.approx(100 * recorded[side], abs=1e-4)
    flips = list(csv.DictReader(io.StringIO(kept(opened, "flips-csv"))))
    assert flips[0] | {"id": "e1", "a_run": "SFT", "a_right": "1", "b_right": "3", "b_majority": "1"} == flips[0]
    drawing = kept(opened, "scores-svg")
    assert drawing.startswith("<svg") and "class=" not in drawing and 'stroke="rgb' in drawing
    assert opened.run("return window.keptName") == "scores.svg"
    assert opened.run(
        "return new DOMParser().parseFromString(arguments[0], 'image/svg+xml').querySelector('parsererror') === null",
        drawing,
    )


def test_it_works_by_keyboard_and_prints_what_was_opened(opened) -> None:
    opened.run("document.querySelector('.flip-line').focus()")
    opened.command("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r")
    opened.command("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter")
    opened.run("return new Promise(done => setTimeout(done, 50))")
    assert opened.run("return document.querySelectorAll('details.flip[open]').length") == 1
    opened.run("window.dispatchEvent(new Event('beforeprint'))")
    opened.run("return new Promise(done => setTimeout(done, 50))")
    assert opened.run("return document.querySelectorAll('details.flip[open]').length") == 1


def test_narrow_screens_do_not_scroll_sideways(browser, page) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=True)
    try:
        open_page(browser, page, "#e.problem=easy%2F2")
        assert browser.run("return document.documentElement.scrollWidth") <= 400
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")


def test_hostile_text_changes_nothing(browser, tmp_path) -> None:
    names = {f"{ATTACK}{place}": words for place, words in enumerate(EASY.values())}
    for label, words in (("a", EASY), ("b", BETTER)):
        answers = dict(zip(names, words.values(), strict=True))
        make_evaluated(tmp_path / label, "easy", answers, text=f"${ATTACK}$ {ATTACK}", problem=ATTACK + "%s")
    runs = {ATTACK: tmp_path / "a", "=cmd()": tmp_path / "b"}
    page = write_report(tmp_path / "report.html", runs, title="t")
    browser.requests(), browser.console()
    open_page(browser, page)
    before = browser.run("return document.querySelectorAll('script, style, img, svg, iframe').length")
    browser.run("document.querySelectorAll('.flip-line').forEach(line => line.click())")
    browser.run("return new Promise(done => setTimeout(done, 100))")
    assert browser.run("return document.querySelectorAll('.opened .answer').length") > 10
    assert browser.run("return document.querySelectorAll('script, style, img, svg, iframe').length") == before
    shown = browser.run("return document.body.textContent")
    assert not set(shown) & set("\u202e\u2066\u200b\x00\x1b") and "⟨U+202E⟩" in shown
    assert browser.run("return window.attacked ?? null") is None and browser.console() == []
    assert [row["b_run"] for row in csv.DictReader(io.StringIO(kept(browser, "flips-csv")))] == ["'=cmd()"] * 3
    assert all(address.startswith(("file:", "about:")) for address in browser.requests())
