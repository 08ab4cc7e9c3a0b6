"""The page in a real browser: what its script does, and what hostile text cannot make it do."""

from pathlib import Path

import pytest

from tests.report.browser import Browser, needs_browser
from tests.report.test_report import HOSTILE
from tests.report.viewing import wait
from tests.tokens.tiny import make_eval, make_table
from trimsft.report import write_report

pytestmark = needs_browser
TEXTS = [text.replace("\ud800", "") for text in HOSTILE]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Hostile labels, titles, settings, tokens, prompts and answers."""
    folder = tmp_path_factory.mktemp("page")
    runs = {"Base": folder / "base", "SFT": folder / "sft", HOSTILE[0] + HOSTILE[1]: folder / "odd"}
    for number, run in enumerate(runs.values()):
        make_eval(run, "lab-easy", [3, 4 + number, 2], text=" ".join(HOSTILE))
        make_table(run / "tokens.parquet", [TEXTS * 3, [" b", "\n"]], shift=number, prompts=(" ".join(TEXTS),))
    settings = {"margin": 2.0, HOSTILE[2]: HOSTILE[3]}
    return write_report(folder / "report.html", runs, title=HOSTILE[0], settings=settings)


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture
def opened(browser, page) -> Browser:
    browser.requests(), browser.console()
    browser.open(page)
    wait(lambda: browser.run("return document.querySelector('#pane .t') !== null"))
    return browser


def test_hostile_text_changes_nothing_and_nothing_is_asked_for(opened, page) -> None:
    inside = (
        "return [...document.querySelectorAll('#pane .t')].map(t => { t.focus(); const all = "
        "[...document.querySelectorAll('#inspected *')]; return all.filter(e => e.matches('code *, td > :not(code), "
        "th *, script, img, svg')).length })"
    )
    assert set(opened.run(inside)) == {0}  # the panel holds text and nothing else
    opened.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    for text in TEXTS:
        opened.run(
            "const q = document.getElementById('query'); q.value = arguments[0]; q.dispatchEvent(new Event('input'))",
            text,
        )
    opened.run("document.getElementById('copy-link').click()")
    assert opened.run("return window.attacked ?? null") is None
    assert opened.run("return document.querySelectorAll('img, iframe, object, embed, base, link').length") == 0
    assert opened.run("return document.querySelectorAll('script:not([type])').length") == 1
    assert opened.run("return document.title") == HOSTILE[0]
    opened.run("document.getElementById('clear').click()")
    wait(lambda: opened.run("return document.querySelector('#pane .t') !== null"))
    assert opened.run("return document.querySelector('#pane .t').textContent") == TEXTS[0].replace(" ", "·")
    shown = opened.run("return document.body.textContent")
    assert "⟨U+202E⟩right⟨U+2066⟩to⟨U+200B⟩left⟨U+0000⟩" in shown
    assert not set(shown) & set("\u202e\u2066\u200b")
    assert [address for address in opened.requests() if not address.startswith("blob:")] == [page.as_uri()]
    assert opened.console() == []


def test_the_policy_stops_what_escaping_might_miss(opened) -> None:
    opened.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=http://127.0.0.1/ onerror=\"window.attacked=1\">');"
        "const s = document.createElement('script'); s.textContent = 'window.attacked = 2'; document.body.append(s)"
    )
    said = " ".join(opened.console())
    assert opened.run("return window.attacked ?? null") is None
    assert "Content Security Policy" in said and "img-src" in said and "script-src" in said


def test_tabs_show_one_table_and_print_shows_all(opened) -> None:
    count = "return [...document.querySelectorAll('.panel')].filter(p => p.offsetHeight > 0).length"
    assert opened.run(count) == 1
    opened.run("document.getElementById('metric-2').click()")
    assert opened.run(
        "return [...document.querySelectorAll('.panel')].find(p => p.offsetHeight > 0).innerText"
    ).startswith("greedy")
    opened.command("Emulation.setEmulatedMedia", media="print")
    assert opened.run(count) == 4
    opened.command("Emulation.setEmulatedMedia", media="")


def test_colours_follow_the_scheme_and_can_be_read(opened) -> None:
    """Contrast of at least 4.5 (WCAG AA) for tokens of every colour, light and dark."""
    for scheme in ("light", "dark"):
        opened.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for colours in [f"{letter}{step}" for letter in "dqx" for step in range(9)]:
            pair = opened.run(
                "const t = document.querySelector('.t'); t.className = 't ' + arguments[0];"
                "const s = getComputedStyle(t); return [s.color, s.backgroundColor]",
                colours,
            )
            assert _contrast(*pair) >= 4.5, (scheme, colours, pair)
        body = opened.run("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
        assert _contrast(*body) > 12
        assert (_light(body[1]) < 0.1) == (scheme == "dark")
    opened.command("Emulation.setEmulatedMedia", features=[])


def test_a_page_without_tokens_or_with_an_empty_table_has_no_errors(browser, tmp_path) -> None:
    make_eval(tmp_path / "run", "lab-easy", [3, 4])
    for number in range(2):
        page = write_report(tmp_path / f"{number}.html", {"Base": tmp_path / "run"}, title="None")
        browser.open(page)
        assert browser.run("return document.getElementById('viewer')") is None
        assert "None of the runs has a token table" in browser.run("return document.body.innerText")
        assert browser.console() == []
        make_table(tmp_path / "run" / "tokens.parquet", [])


def test_readable_without_script(page) -> None:
    with Browser(javascript=False) as browser:
        browser.open(page)
        shown = browser.run("return document.body.innerText")
        assert "average@8 (%)" in shown and "median gap" in shown and "Colour by" not in shown
        assert "gap -3.00" in browser.run("return document.querySelector('.t').title")
        assert "With JavaScript this page shows 2 examples" in shown
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


def _contrast(one: str, other: str) -> float:
    bright, dim = sorted((_light(one), _light(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _light(colour: str) -> float:
    """Relative luminance of "rgb(r, g, b)"."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
