"""The first screen of the page: the story and the strip of scores, with and without a script, in any window."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.report.page.browser import wait
from tests.report.page.pages import (
    ATTACK,
    HIDDEN,
    HOSTILE_TEXTS,
    Page,
    contrast,
    make_evaluated,
    make_three,
    page_of,
    view,
)
from tests.tokens.tiny import make_table
from trimsft.objectives import PAPER_OBJECTIVES
from trimsft.report.colours import METHOD_LINES
from trimsft.report.page.build import write_report
from trimsft.report.story import MINUS

TEXTS = [
    ["Step ", "1", ": ", "3", " * ", "8", " = ", "8", ".\n", "So ", "it ", "is ", "8", "."],
    ["2", " + ", "2", " = ", "4"],
]
GAPS = [1.2, *[7.0] * 6, -9.0, *[6.0] * 3, 1.9, 8.0, 8.0, *[9.0] * 4, 2.0]


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> Path:
    """Base, SFT and TrimSFT, evaluated, with a table in which one step is wrong."""
    folder = tmp_path_factory.mktemp("told")
    runs = make_three(folder)
    make_table(runs["Base"] / "tokens.parquet", TEXTS, gap=np.array(GAPS), prompts=("What is 3 times 8?", "And?"))
    return write_report(folder / "report.html", runs, title="A title")


def test_the_first_screen_is_the_story_with_or_without_a_script(browser, told) -> None:
    said = []
    for without in (True, False):
        browser.command("Emulation.setScriptExecutionDisabled", value=without)
        browser.open(told)
        said.append(browser.run("return document.getElementById('story').innerText"))
        assert browser.box("#story")[3] < 1000  # above the fold
        assert "loads nothing" not in browser.run("return document.querySelector('header').innerText")
    assert said[0] == said[1].replace(" Look at it in the viewer", "")
    assert "1 of 2 arithmetic steps in these 2 examples is wrong: SFT spends 67 %" in said[0]
    assert "3 * 8 = 8 is wrong, 24 would be right" in said[0] and "What is 3 times 8?" in said[0]
    assert "it loads nothing" in browser.run("return document.getElementById('run').innerText")
    assert browser.console() == []


def test_what_is_wrong_glows_where_it_is_learned_from(browser, told) -> None:
    browser.open(told)
    rows = browser.run(
        "return [...document.querySelectorAll('.learns .row')].map(row => { const t = row.querySelector('.told');"
        "return [row.querySelector('.who strong').textContent, row.querySelector('.lights').textContent, t.textContent,"
        "getComputedStyle(t).boxShadow !== 'none', t.title] })"
    )
    text, title = "".join(TEXTS[0]), f"“8” has a gap of {MINUS}9.0 to “4”"
    assert rows == [["SFT learns from", text, "8", True, title], ["TrimSFT learns from", text, "8", False, title]]


def test_the_example_can_be_looked_at_in_the_viewer(browser, told) -> None:
    view(browser, told, "e.only=lost")
    browser.run("document.querySelector('#story button').click()")
    wait(lambda: browser.run("return document.activeElement.textContent") == "8")
    assert browser.run("return document.activeElement.closest('#pane') !== null")
    wait(lambda: "t.at=0%7E7" in browser.run("return location.hash"))
    checked = "return [...document.querySelectorAll('#viewer input[type=radio]:checked')].map(e => e.value)"
    assert browser.run(checked) == ["trim"]
    assert browser.value("flip-only") == "lost"  # the state of other rooms stays


def test_the_strip_has_every_run_in_the_colour_of_its_method(browser, told) -> None:
    browser.open(told)
    cards = browser.run(
        "return [...document.querySelectorAll('.standing li')].map(li => [li.querySelector('.name').textContent,"
        "li.querySelector('.score').firstChild.textContent.trim(), li.querySelector('.beside').textContent.trim(),"
        "getComputedStyle(li).borderTopColor, getComputedStyle(li.querySelector('svg .filled')).fill])"
    )
    colours = [METHOD_LINES[name].colour for name in ("base", "sft", "trim")]
    assert [card[0] for card in cards] == ["Base", "SFT", "TrimSFT"]
    expected = [f"rgb({', '.join(map(str, bytes.fromhex(colour[1:])))})" for colour in colours]
    assert [card[3] for card in cards] == [card[4] for card in cards] == expected
    recorded = [json.loads((told.parent / "sft/eval" / b / "scores.json").read_text()) for b in ("easy", "hard")]
    mean = 100 * sum(one["average"]["value"] for one in recorded) / 2
    assert cards[1][1] == f"{mean:.1f}" and cards[1][2].startswith("greedy ")


def test_every_one_of_many_runs_is_held_against_one_run(tmp_path) -> None:
    """The run that the strip names, which is also the one of the table of differences."""
    objectives = ["base", "sft", "dft", "trim", "fsft", "sft", "trim-e", "trim-h", "trim", "base"]
    runs = {f"{place}-{name}": tmp_path / f"{place}" for place, name in enumerate(objectives)}
    for run, name in zip(runs.values(), objectives, strict=True):
        right = "3 3" if name in ("base", "sft") else "1 1"
        make_evaluated(run, "easy", {f"e{n}": right for n in range(12)}, greedy="1")
        (run / "config.yaml").write_text("seed: 0" if name == "base" else f"objective: {name}")
    page = page_of(tmp_path, runs)
    assert "significantly above or below 1-sft." in page.words and "3-trim minus 1-sft, in points" in page.words
    cards = page.html.split('id="standing-is"')[1].split("</ul>")[0].split("<li ")[1:]
    assert ["↑" in card for card in cards] == [name not in ("base", "sft") for name in objectives]


def test_a_token_that_is_lit_can_be_read(browser, told) -> None:
    """4.5:1 (WCAG 1.4.3) on the strongest colour of each method, in light and in dark."""
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.open(told)
        pairs = browser.run(
            "const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true});"
            "const over = (colours) => { for (const k of colours) { c.fillStyle = k; c.fillRect(0, 0, 1, 1) }"
            "return `rgb(${[...c.getImageData(0, 0, 1, 1).data.slice(0, 3)].join(', ')})` };"
            "const page = getComputedStyle(document.body).backgroundColor;"
            "const row = document.querySelector('.learns .row');"
            "for (const t of row.querySelectorAll('.lit')) t.classList.replace('l0', 'l8');"
            "return arguments[0].flatMap(name => { row.className = `row line-${name}`;"
            "return [...row.querySelectorAll('.l8')].map(t => { const s = getComputedStyle(t);"
            "return [over([page, s.color]), over([page, s.backgroundColor])] }) })",
            [*PAPER_OBJECTIVES, "auto-trim"],
        )
        assert len(set(map(tuple, pairs))) == len(PAPER_OBJECTIVES) + 2  # AutoTrim, and what glows
        assert min(contrast(*pair) for pair in pairs) >= 4.5, scheme


def test_the_order_is_story_viewer_scores_tables_training_run(browser, told, tmp_path) -> None:
    browser.open(told)
    sections = "return [...document.querySelectorAll('main > section')].map(s => s.id)"
    assert browser.run(sections) == ["story", "tokens", "scores", "answers", "gaps", "weights", "run"]
    make_evaluated(tmp_path / "a", "easy", {"e0": "1 1"})
    browser.open(write_report(tmp_path / "r.html", {"A": tmp_path / "a"}, title="t"))
    assert browser.run(sections) == ["story", "scores", "answers", "tokens", "run"]  # what is missing comes last
    assert browser.run("return document.querySelectorAll('.learns').length") == 0


@pytest.mark.parametrize("width", [390, 1400, 1920])
def test_nothing_is_wider_than_the_window(browser, told, width) -> None:
    browser.size(width)
    view(browser, told)
    assert browser.run("return document.documentElement.scrollWidth") == width


def test_hostile_tokens_prompts_and_labels_stay_text(tmp_path) -> None:
    texts = [[*HOSTILE_TEXTS, " 1", " +", " 1", " = ", "3"]]
    make_table(tmp_path / "t.parquet", texts, gap=[5.0] * (len(texts[0]) - 1) + [-5.0], prompts=(ATTACK,))
    page: Page = page_of(tmp_path, {ATTACK: tmp_path / "t.parquet"})
    story = page.html[page.html.index('id="story"') : page.html.index('id="tokens"')]
    assert "&lt;script&gt;" in story and "<script" not in story and "<img" not in story and "<svg" not in story
    assert not set(story) & HIDDEN and "1 of 1 arithmetic steps" in story


def test_links_to_sections_move_the_focus_and_few_stops_come_before_the_viewer(browser, told) -> None:
    view(browser, told)
    stops = browser.run(
        "const viewer = document.getElementById('viewer');"
        "return [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')].filter(e =>"
        "e.checkVisibility() && e.compareDocumentPosition(viewer) & Node.DOCUMENT_POSITION_FOLLOWING).length"
    )
    assert stops <= 10  # 48 where the viewer came last
    browser.press("Tab")
    assert browser.run("return document.activeElement.textContent") == "Skip to Tokens"
    address = browser.run("return location.hash")
    browser.press("Enter")
    assert browser.run("return document.activeElement.id") == "tokens"
    browser.run("document.querySelector('nav a[href=\"#scores\"]').click()")
    assert browser.run("return document.activeElement.id") == "scores"
    assert browser.run("return location.hash") == address
    browser.press("Tab")
    assert browser.run("return document.activeElement.closest('section').id") == "scores"
