"""The page in windows of several sizes: what is pointed at is in sight, nothing is cut, nothing covers anything."""

from pathlib import Path

import numpy as np
import pytest

from tests.report.browser import Browser, needs_browser
from tests.report.evaluated import make_evaluated
from tests.report.test_evaluation_page import EASY, HARD
from tests.report.viewing import WORDS, choose, opened_at, put, text_of, wait
from tests.tokens.tiny import make_table
from trimsft.report import write_report

pytestmark = needs_browser
LABELS = ("Base", "SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H")
BOX = "const {left, top, right, bottom} = document.querySelector(arguments[0]).getBoundingClientRect(); "


@pytest.fixture(scope="module")
def tokens(tmp_path_factory) -> Path:
    """A token table, of more tokens than there are cells."""
    rng = np.random.default_rng(3)
    texts = [[WORDS[n] for n in rng.integers(0, len(WORDS), 400)] for _ in range(100)]
    gap = np.where(rng.random(40_000) < 0.3, rng.normal(0, 3, 40_000), rng.normal(10, 5, 40_000))
    return make_table(tmp_path_factory.mktemp("tokens") / "tokens.parquet", texts, gap=gap)


@pytest.fixture(scope="module")
def single(tokens) -> Path:
    return write_report(tokens.parent / "report.html", {"Base": tokens}, title="One")


@pytest.fixture(scope="module")
def seven(tmp_path_factory) -> Path:
    """Seven evaluated runs and a title that needs several lines."""
    folder = tmp_path_factory.mktemp("seven")
    for label in LABELS:
        make_evaluated(folder / label, "easy", EASY)
        make_evaluated(folder / label, "a-benchmark-with-a-long-name", HARD)
        make_table(folder / label / "tokens.parquet", [WORDS * 20] * 3)
    runs = {label: folder / label for label in LABELS}
    return write_report(folder / "report.html", runs, title="a long title " * 12)


@pytest.fixture(scope="module")
def browser():
    with Browser(size=(1280, 900)) as opened:
        yield opened


def sized(browser: Browser, page: Path, width: int, height: int) -> Browser:
    browser.width(width, height)
    return opened_at(browser, page)


def box(browser: Browser, selector: str) -> list[float]:
    return browser.run(BOX + "return [left, top, right, bottom]", selector)


def point_at(browser: Browser, selector: str) -> None:
    left, top, right, bottom = box(browser, selector)
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=(left + right) / 2, y=(top + bottom) / 2)


def test_a_token_pointed_at_on_opening_shows_its_numbers_in_the_window(browser, single) -> None:
    sized(browser, single, 1280, 900)
    point_at(browser, "#pane .t")
    wait(lambda: "id 0," in text_of(browser, "inspected"))
    assert browser.run("return scrollY") == 0  # nothing moved
    for part in ("#inspected", "#target", "#next"):
        left, top, right, bottom = box(browser, part)
        assert top > 300 and bottom <= 900
        middle = [(left + right) / 2, (top + bottom) / 2]
        seen = "return document.querySelector('#dock').contains(document.elementFromPoint(...arguments))"
        assert browser.run(seen, *middle), part


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_the_dock_hides_no_token_that_is_chosen(browser, single, size) -> None:
    sized(browser, single, *size)
    put(browser, "target", "kept", "change")
    seen = []
    for _ in range(60):
        browser.run("document.getElementById('next').click()")
        seen.append(browser.run("return document.activeElement.token"))
        here = browser.run("const b = document.activeElement.getBoundingClientRect(); return [b.top, b.bottom]")
        dock = box(browser, "#dock")
        assert box(browser, "#pane")[1] <= here[0] and here[1] <= dock[1] + 1 and dock[3] <= size[1]
    assert len(set(seen)) == 60
    dock = box(browser, "#dock")[1]
    touched = browser.run(
        "const t = [...document.querySelectorAll('#pane .t')].find(t => t.getBoundingClientRect().top > arguments[0]);"
        "t.focus({preventScroll: true}); return t.getBoundingClientRect().bottom",
        dock - 5,
    )
    assert touched <= box(browser, "#dock")[1]


def test_charts_are_whole_and_legible_on_a_telephone(browser, seven) -> None:
    for width in (390, 1280):
        sized(browser, seven, width, 844)
        found = browser.run(
            "return [...document.querySelectorAll('figure svg')].filter(s => s.getBoundingClientRect().width)"
            ".map(s => [s.getBoundingClientRect().right, 11 * s.getScreenCTM().a, s.closest('figure').scrollWidth"
            " - s.closest('figure').clientWidth])"
        )
        assert len(found) == 2
        for right, letters, hidden in found:
            assert right <= width and letters > 9 and hidden <= 0
        assert browser.run("return document.documentElement.scrollWidth") <= width


def test_tables_that_go_on_have_a_shadow(browser, seven) -> None:
    sized(browser, seven, 390, 844)
    found = browser.run(
        "return [...document.querySelectorAll('.wide, .panel')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => getComputedStyle(e).backgroundImage.split('gradient(').length - 1)"
    )
    assert len(found) > 2 and set(found) == {4}


@pytest.mark.parametrize("width", [390, 1280])
def test_a_long_title_leaves_the_button_free(browser, seven, width) -> None:
    sized(browser, seven, width, 900)
    touching = browser.run(
        "const b = document.getElementById('theme').getBoundingClientRect(); const r = document.createRange();"
        "r.selectNodeContents(document.querySelector('h1')); return [...r.getClientRects()].filter("
        "t => t.right > b.left && t.left < b.right && t.bottom > b.top && t.top < b.bottom).length"
    )
    assert touching == 0


def test_the_bar_of_seven_runs_is_one_line(browser, seven) -> None:
    sized(browser, seven, 1280, 900)
    tops = [box(browser, selector)[1] for selector in (".methods", "#model", "#help-button")]
    assert max(tops) - min(tops) < 12
    sized(browser, seven, 700, 900)
    assert abs(box(browser, "#model")[1] - box(browser, "#help-button")[1]) < 12


# ---- what is said of a setting


def test_a_bandwidth_that_is_none_is_refused_in_words(browser, single) -> None:
    sized(browser, single, 1280, 900)
    assert browser.run("return document.getElementById('remark').hidden")
    put(browser, "bandwidth-number", 0, "change")
    assert text_of(browser, "remark").startswith(
        "bandwidth must be a number from 0.001 to 1000, got 0: it is 0.001 now."
    )
    put(browser, "margin-number", "", "change")
    assert text_of(browser, "remark").startswith("margin must be a number from -1000 to 1000, got none")
    put(browser, "bandwidth-number", 2, "change")
    assert text_of(browser, "remark") == "" and browser.run("return document.getElementById('remark').hidden")


def test_bandwidths_too_small_for_the_cells_are_told(browser, single, seven) -> None:
    sized(browser, single, 1280, 900)
    assert "in cells 1/256" in text_of(browser, "counts")
    put(browser, "bandwidth", 0.15)
    assert text_of(browser, "remark") == ""
    put(browser, "bandwidth", 0.1)
    assert "with a bandwidth below 0.15 its figures are approximate" in text_of(browser, "remark")
    choose(browser, "dft")  # has none
    assert text_of(browser, "remark") == ""
    sized(browser, seven, 1280, 900)  # token by token
    put(browser, "bandwidth", 0.05)
    assert text_of(browser, "remark") == ""


@pytest.mark.parametrize(
    ("model", "word"),
    [("org/name-1.5B", "org/name-1.5B"), ("a b'; rm x", "'a b'\\''; rm x'"), ("", "MODEL")],
)
def test_the_command_names_the_model_as_one_word(browser, tmp_path, model, word) -> None:
    page = write_report(tmp_path / "report.html", {"A": make_table(tmp_path / "a.parquet", [["a", "b"]])}, title="T")
    text = page.read_text(encoding="utf-8")
    assert text.count('"model":"m"') == 1
    page.write_text(text.replace('"model":"m"', f'"model":"{model}"'), encoding="utf-8")
    sized(browser, page, 1280, 900)
    assert text_of(browser, "command") == (
        f"trimsft train --model_name_or_path {word} --dataset_name DATA.jsonl --objective trim --margin 1.5 "
        "--bandwidth 0.8"
    )


def test_a_token_focused_from_afar_ends_in_sight(browser, seven) -> None:
    sized(browser, seven, 1280, 900)
    browser.run("scrollTo({top: 0, behavior: 'instant'}); document.querySelectorAll('#pane .t')[30].focus()")

    def in_sight() -> bool:
        _, top, _, bottom = box(browser, "#pane .t:focus")
        return box(browser, "#pane")[1] <= top and bottom <= box(browser, "#dock")[1]

    wait(in_sight)  # the window moves there smoothly
    assert in_sight()
