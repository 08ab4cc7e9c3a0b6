"""The page in a real browser: what hostile text cannot make it do, colours, paper, windows of several sizes."""

import math
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from tests.report.page.browser import wait
from tests.report.page.conftest import METHODS
from tests.report.page.pages import (
    ATTACK,
    HIDDEN,
    HOSTILE,
    HOSTILE_TEXTS,
    contrast,
    figures,
    luminance,
    make_eval,
    view,
)
from tests.tokens.tiny import make_table
from trimsft.report.colours import METHOD_LINES
from trimsft.report.page.build import write_report


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Hostile labels, titles, settings, tokens, prompts and answers."""
    folder = tmp_path_factory.mktemp("page")
    runs = {"Base": folder / "base", "SFT": folder / "sft", HOSTILE[0] + HOSTILE[1]: folder / "odd"}
    for number, run in enumerate(runs.values()):
        make_eval(run, "lab-easy", [3, 4 + number, 2], text=" ".join(HOSTILE))
        texts = [HOSTILE_TEXTS * 3, [" b", "\n"]]
        make_table(run / "tokens.parquet", texts, shift=number, prompts=(" ".join(HOSTILE_TEXTS),))
    settings = {"margin": 2.0, HOSTILE[2]: HOSTILE[3]}
    return write_report(folder / "report.html", runs, title=HOSTILE[0], settings=settings)


# ---- what hostile text cannot do


def test_hostile_text_changes_nothing_and_nothing_is_asked_for(browser, page) -> None:
    view(browser, page)
    inside = (
        "return [...document.querySelectorAll('#pane .t')].map(t => { t.focus();"
        "const all = [...document.querySelectorAll('#card *')]; return [all.length > 15, all.filter("
        "e => e.matches('code *, td > :not(code), th *, script, img, svg')).length] })"
    )
    assert set(map(tuple, browser.run(inside))) == {(True, 0)}  # it holds text and nothing else
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    for text in HOSTILE_TEXTS:
        browser.put("query", text)
    browser.click("copy-link")
    assert browser.run("return window.attacked ?? null") is None
    assert browser.run("return document.querySelectorAll('img, iframe, object, embed, base, link').length") == 0
    assert browser.run("return document.querySelectorAll('script:not([type])').length") == 1
    assert browser.run("return document.title") == HOSTILE[0]
    browser.put("query", "")
    wait(lambda: browser.run("return document.querySelector('#pane .t') !== null"))
    assert browser.run("return document.querySelector('#pane .t').textContent") == HOSTILE[0].replace(" ", "·")
    shown = browser.run("return document.body.textContent")
    assert "⟨U+202E⟩right⟨U+2066⟩to⟨U+200B⟩left⟨U+0000⟩" in shown and not set(shown) & HIDDEN
    assert [address for address in browser.requests() if not address.startswith("blob:")] == [page.as_uri()]
    assert browser.console() == []


def test_the_policy_stops_what_escaping_might_miss(browser, page) -> None:
    browser.open(page)
    browser.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=http://127.0.0.1/ onerror=\"window.attacked=1\">');"
        "const s = document.createElement('script'); s.textContent = 'window.attacked = 2'; document.body.append(s)"
    )
    said = " ".join(browser.console())
    assert browser.run("return window.attacked ?? null") is None
    assert "Content Security Policy" in said and "img-src" in said and "script-src" in said


@pytest.mark.parametrize(
    "fragment",
    [
        "t.method=__proto__&t.m=NaN&t.tau=-1&t.run=99&t.moment=1e9&t.at=1e9~-1",
        "t.m=1e999&t.tau=0&t.go=toString&t.at=~",
        "t.find=%3Cimg%20src=x%20onerror=alert(1)%3E&t.m=javascript:alert(1)&%E0%A4%A",
        "t.m=1&" * 500,
        "e.a=__proto__&e.on=nowhere&e.only=constructor&e.problem=x",
        f"e.a={quote(ATTACK)}&e.source=2",
        "e.a=%E0%A4%A",
        "scores",
    ],
)
def test_hostile_addresses_are_harmless(browser, seven, fragment) -> None:
    view(browser, seven, fragment)
    assert browser.run("return window.attacked ?? null") is None
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert math.isfinite(figures(browser)[0]) and browser.value("run-a") == "1"  # SFT, as ever
    assert browser.console() == []


def test_readable_without_script(browser, page) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page)
    shown = browser.run("return document.body.innerText")
    assert "average@8 (%)" in shown and "median gap" in shown
    assert "gap -3.00" in browser.run("return document.querySelector('.t').title")
    assert "With JavaScript this page shows 2 examples" in shown
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


def test_a_token_of_any_length_leaves_the_page_readable(browser, tmp_path) -> None:
    long, accents, hostile = "a" * 100_000, "e" + "\u0301" * 5_000, "<img src=x onerror=window.attacked=1>" * 9
    texts = [["So", " the", long, " sum", accents, " is", hostile, " 42", ".\n"]] * 3
    base = make_table(tmp_path / "base.parquet", texts, gap=np.linspace(-5, 9, 27), prompts=("Sum?",) * 3, top=True)
    page = write_report(tmp_path / "report.html", {"Base": base}, title="Long")
    short = ["a" * 100 + "…⟨100,000\u00a0characters⟩", "e" + "\u0301" * 8 + "…⟨5,001\u00a0characters⟩"]
    view(browser, page)
    assert browser.run("return document.documentElement.scrollHeight") < 5000
    texts_of = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
    drawn = browser.run(texts_of, "#pane .t")
    assert [drawn[2], drawn[4]] == short and drawn[6].endswith("…⟨333\u00a0characters⟩")
    browser.run("document.querySelectorAll('#pane .t')[2].focus()")
    assert short[0] in browser.run(texts_of, "#card code")
    longest = "return Math.max(...[...document.querySelectorAll('main *')].map((e) => e.title?.length ?? 0))"
    assert browser.run(longest) < 500 and "100,000" in browser.text("story")
    assert browser.run("return window.attacked ?? null") is None and browser.console() == []
    assert long in browser.exported("csv-tokens"), "what is saved is whole"
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page)
    written = browser.run("return document.documentElement.scrollHeight")
    browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert written < 5000


def test_a_page_without_tokens_or_with_an_empty_table_has_no_errors(browser, tmp_path) -> None:
    make_eval(tmp_path / "run", "lab-easy", [3, 4])
    for number in range(2):
        browser.open(write_report(tmp_path / f"{number}.html", {"Base": tmp_path / "run"}, title="None"))
        assert browser.run("return document.getElementById('viewer')") is None
        assert "None of the runs has a token table" in browser.run("return document.body.innerText")
        assert browser.console() == []
        make_table(tmp_path / "run" / "tokens.parquet", [])


# ---- colours and paper


def test_tabs_show_one_table_and_print_shows_all(browser, page) -> None:
    browser.open(page)
    count = "return [...document.querySelectorAll('.panel')].filter(p => p.offsetHeight > 0).length"
    assert browser.run(count) == 1
    browser.click("metric-2")
    shown = "return [...document.querySelectorAll('.panel')].find(p => p.offsetHeight > 0).innerText"
    assert browser.run(shown).startswith("greedy")
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert browser.run(count) == 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme_and_can_be_read(browser, seven, scheme) -> None:
    """Text is read on its ground, and methods have their colours."""
    browser.scheme(scheme)
    view(browser, seven)
    ink, paper = browser.run("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
    assert contrast(ink, paper) > 12 and (luminance(paper) < 0.1) == (scheme == "dark")
    style = "return [...document.querySelectorAll(arguments[0])].map(e => getComputedStyle(e)[arguments[1]])"
    names = dict(zip(METHODS, ("base", "sft", "fsft", "dft", "trim", "trim-e", "trim-h"), strict=True))
    lines = [METHOD_LINES[names[label]] for label in METHODS]
    colours = [_rgb(line.colour if scheme == "light" else line.dark) for line in lines]
    assert browser.run(style, ".legend .series", "stroke") == colours
    assert browser.run(style, "#gaps .chart-wide .series", "stroke") == colours
    assert browser.run(style, "#scores .chart-wide .disc:not(.key)", "fill") == colours
    assert browser.run(style, "#scores .chart-wide .diamond:not(.key)", "stroke") == colours
    dashes = [", ".join(f"{2 * length:g}px" for length in line.dashes) or "none" for line in lines]
    assert browser.run(style, ".legend .series", "strokeDasharray") == dashes


def _rgb(colour: str) -> str:
    return f"rgb({', '.join(map(str, bytes.fromhex(colour[1:])))})"


def test_print_shows_every_example_and_no_controls(browser, two_tables) -> None:
    view(browser, two_tables)
    browser.size(780)  # a sheet of paper
    browser.run(
        "addEventListener('beforeprint', () => { window.blank = [...document.querySelectorAll('#pane .completion')]"
        ".filter(c => c.children.length === 0).length })"
    )
    browser.command("Page.printToPDF")
    assert browser.run("return window.blank") == 0
    browser.command("Emulation.setEmulatedMedia", media="print")
    heights = browser.run(
        "return ['bar', 'pane', 'figures', 'histogram', 'painted'].map(id => document.getElementById(id).offsetHeight)"
    )
    assert heights[0] == 0 and min(heights[1:4]) > 50 and heights[4] > 10
    assert "TrimSFT m=1.5 τ=0.8 on Base" in browser.text("painted")
    assert browser.run("const p = document.getElementById('pane'); return p.scrollHeight <= p.clientHeight + 1")
    controls = "return [...document.querySelectorAll('button, select, input')].filter(e => e.offsetHeight > 0"
    assert browser.run(f"{controls}).length") == 0


# ---- windows: what is pointed at is in sight, nothing is cut, nothing covers anything


@pytest.mark.parametrize("width", [390, 700, 1280])
def test_seven_runs_in_windows_of_any_width(browser, seven, width) -> None:
    browser.size(width)
    view(browser, seven)
    charts = browser.run(
        "return [...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().width)"
        ".map(s => [s.getBoundingClientRect().right, 11 * s.getScreenCTM().a, s.closest('figure').scrollWidth"
        " - s.closest('figure').clientWidth])"
    )
    assert len(charts) == 2
    for right, letters, hidden in charts:
        assert right <= width and letters > 9 and hidden <= 0
    assert browser.run("return document.documentElement.scrollWidth") <= width
    shadows = browser.run(  # of tables that go on
        "return [...document.querySelectorAll('.wide, .panel')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => getComputedStyle(e).backgroundImage.split('gradient(').length - 1)"
    )
    assert set(shadows) <= {4} and (width > 390 or len(shadows) > 2)
    in_one_line = {390: [], 700: ["#model", "#help-button"], 1280: [".methods", "#model", "#help-button"]}[width]
    tops = [browser.box(selector)[1] for selector in in_one_line]
    assert not tops or max(tops) - min(tops) < 12
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    browser.run("document.querySelectorAll('.t')[3].focus()")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.box("#viewer")[2] <= width
