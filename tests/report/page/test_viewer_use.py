"""The token viewer in use: what a hand does with it one thing after the other, and what it says meanwhile."""

from urllib.parse import quote

import pytest

from tests.report.page.browser import Browser, wait
from tests.report.page.pages import settle, view
from tests.tokens.tiny import make_table
from trimsft.report.page.build import write_report
from trimsft.tokens.table import read_token_table

CURRENT = "return document.querySelector('#pane [aria-current]')?.token ?? null"


@pytest.fixture
def opened(browser, two_tables) -> Browser:
    return view(browser, two_tables)


@pytest.fixture(scope="module")
def table(two_tables):
    return read_token_table(two_tables.parent / "base.parquet", first_examples=30)


def pointer(browser: Browser, kind: str, x: float, y: float) -> None:
    browser.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)


# ---- texts of tokens


def test_every_line_break_is_a_sign_and_a_dot_of_the_text_is_no_space(browser, tmp_path) -> None:
    texts = [["a", "\n\n", " ·", "2·3", "↵", "\u0301", "b"]]
    tokens = make_table(tmp_path / "tokens.parquet", texts)
    view(browser, write_report(tmp_path / "report.html", {"Base": tokens}, title="Signs"))
    shown = browser.run("return [...document.querySelectorAll('.t')].map(t => t.textContent)")
    assert shown == ["a", "↵\n↵\n", "·⟨U+00B7⟩", "2⟨U+00B7⟩3", "⟨U+21B5⟩", "◌\u0301", "b"]
    browser.run("document.querySelectorAll('.t')[1].focus()")
    assert browser.run("return document.querySelector('#inspected code').textContent") == "↵↵"
    for query, count in (("·", 2), (" ", 1), ("\n\n", 1)):
        view(browser, tmp_path / "report.html", f"t.go=matches&t.find={quote(query)}")
        assert browser.text("found").startswith(f"{count} of"), query


# ---- finding, clearing, sorting


def test_enter_in_find_goes_on_from_match_to_match(opened) -> None:
    opened.run("document.getElementById('query').focus()")
    opened.put("query", "thus")
    seen = []
    for _ in range(5):
        opened.press("Enter")
        seen.append(opened.run(CURRENT))
    assert len(set(seen)) == 5 and seen == sorted(seen)
    assert opened.run("return document.activeElement.id") == "query"


def test_clear_lets_go_of_everything_and_keeps_the_place_to_type(opened) -> None:
    opened.put("query", "thus")
    opened.put("category", 3, "change")
    opened.put("gap-low", 1)
    opened.click("clear")
    assert [opened.value(name) for name in ("query", "category", "gap-low")] == ["", "", ""]
    assert opened.run("return document.querySelectorAll('.example[hidden]').length") == 0
    assert opened.run("return document.activeElement.id") == "query"
    assert not opened.text("found").startswith("0 of")


def test_the_examples_are_sorted_anew_where_a_drag_ends(opened) -> None:
    opened.put("sort", "trimmed", "change")
    titles = "return [...document.querySelectorAll('.example h3')].map(h => h.firstChild.textContent)"
    before = opened.run(titles)
    left, top, right, bottom = opened.box("#histogram")
    for kind, share in (("mousePressed", 0.3), ("mouseMoved", 0.6)):
        pointer(opened, kind, left + share * (right - left), (top + bottom) / 2)
    assert opened.run(titles) == before
    pointer(opened, "mouseReleased", left + 0.6 * (right - left), (top + bottom) / 2)
    assert opened.run(titles) != before


def test_what_was_copied_is_not_said_of_another_setting(opened) -> None:
    opened.run("document.querySelector('[data-copy=command]').click()")
    wait(lambda: opened.text("said") != "")
    settle(opened, "trim", 2, 1)
    assert opened.text("said") == ""


def test_the_theme_is_kept(browser, two_tables) -> None:
    view(browser, two_tables)
    browser.click("theme")
    browser.click("theme")
    view(browser, two_tables)
    kept = browser.run("return [document.documentElement.dataset.theme, document.getElementById('theme').textContent]")
    browser.click("theme")
    assert kept == ["dark", "Theme: dark"]
    view(browser, two_tables)
    assert browser.text("theme") == "Theme: system"
