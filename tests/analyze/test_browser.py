"""The page in a real browser: what its script does, and what hostile text cannot make it do."""

import math
from pathlib import Path

import pytest

from tests.analyze.browser import Browser, needs_browser
from tests.analyze.test_report import HOSTILE
from tests.analyze.tiny import make_eval, make_table
from trimsft.analyze import read_token_table, write_report
from trimsft.analyze.statistics import objective_of, weights_of
from trimsft.objectives import OBJECTIVES

pytestmark = needs_browser
TEXTS = [text.replace("\ud800", "") for text in HOSTILE]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Hostile labels, titles, settings, tokens, prompts and answers."""
    folder = tmp_path_factory.mktemp("page")
    runs = {"Base": folder / "base", "SFT": folder / "sft", HOSTILE[0] + HOSTILE[1]: folder / "odd"}
    for number, run in enumerate(runs.values()):
        make_eval(run, "lab-easy", [3, 4 + number, 2], text=" ".join(HOSTILE))
        make_table(
            run / "tokens.parquet", [TEXTS * 3, [" b", "\n"]], shift=number, prompts=(" ".join(TEXTS),)
        )
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
    return browser


def test_hostile_text_changes_nothing_and_nothing_is_asked_for(opened, page) -> None:
    inside = (
        "return [...document.querySelectorAll('.t')].map(t => { t.focus();"
        " return document.querySelectorAll('#inspected :is(p, code, td, th) :not(code)').length })"
    )
    assert set(opened.run(inside)) == {0}  # the panel holds text and nothing else
    opened.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert opened.run("return window.attacked ?? null") is None
    assert opened.run("return document.querySelectorAll('img, iframe, body script').length") == 2
    assert opened.run("return document.title") == HOSTILE[0]
    assert opened.run("return document.querySelector('.t').textContent") == TEXTS[0].replace(" ", "·")
    shown = opened.run("return document.body.textContent")
    assert "⟨U+202E⟩right⟨U+2066⟩to⟨U+200B⟩left⟨U+0000⟩" in shown
    assert not set(shown) & set("\u202e\u2066\u200b")
    assert opened.requests() == [page.as_uri()]
    assert opened.console() == []


def test_the_policy_stops_what_escaping_might_miss(opened) -> None:
    opened.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=http://127.0.0.1/ onerror=\"window.attacked=1\">');"
        "const s = document.createElement('script'); s.textContent = 'window.attacked = 2'; document.body.append(s)"
    )
    said = " ".join(opened.console())
    assert opened.run("return window.attacked ?? null") is None
    assert "Content Security Policy" in said and "img-src" in said and "script-src" in said


def test_the_panel_shows_the_weights_of_every_objective(opened, page) -> None:
    table = read_token_table(page.parent / "base" / "tokens.parquet")
    opened.run("document.querySelectorAll('.t')[4].focus()")
    rows = opened.run(
        "return [...document.querySelectorAll('#inspected tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    found = dict(zip(rows[0], rows[1], strict=True))
    assert rows[1][0] == "Base" and len(rows) == 4
    assert float(found["gap"]) == pytest.approx(float(table["gap"][4]), abs=6e-4)
    assert float(found["p"]) == pytest.approx(math.exp(-table["nll"][4]), abs=6e-4)
    for number, name in enumerate(OBJECTIVES):
        exact = weights_of(objective_of(name, {"margin": 2.0}), table)[4]
        assert float(rows[1][7 + number]) == pytest.approx(exact, abs=6e-4), name


def test_tokens_are_recoloured(opened) -> None:
    def classes():
        return opened.run("return [...document.querySelectorAll('.t')].map(t => t.className)")

    def choose(name, value):
        opened.run(
            "const s = document.getElementById(arguments[0]); s.value = arguments[1]; "
            "s.dispatchEvent(new Event('change'))",
            name,
            value,
        )

    first = classes()
    assert first[0] == "t d2" and first[-1] == "t d8"  # gaps -3 and 12
    choose("model", "2")
    assert classes()[0] == "t d3"  # -1
    choose("quantity", "sft")
    assert set(classes()) == {"t q8"}
    choose("quantity", "trim")
    assert len(set(classes())) > 3
    assert opened.run("return document.querySelector('#scale').children.length") == 9


def test_arrow_keys_walk_and_escape_closes(opened) -> None:
    focused = "return [...document.querySelectorAll('.completion')][0].contains(document.activeElement) && "
    focused += "[...document.activeElement.parentNode.children].indexOf(document.activeElement)"
    opened.run("document.querySelector('.t').focus()")
    opened.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert opened.run(focused) == 1
    opened.press("End")
    assert opened.run(focused) == 3 * len(TEXTS) - 1
    opened.press("ArrowRight")
    assert opened.run(focused) == 3 * len(TEXTS) - 1
    assert opened.run("return document.querySelectorAll('.t[tabindex=\"0\"]').length") == 2  # one an example
    assert opened.run("return document.getElementById('inspector').hidden") is False
    opened.press("Escape")
    assert opened.run("return document.getElementById('inspector').hidden") is True


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
        opened.command(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        for colours in [f"d{step}" for step in range(9)] + [f"q{step}" for step in range(9)]:
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


def test_readable_without_script(page) -> None:
    with Browser(javascript=False) as browser:
        browser.open(page)
        shown = browser.run("return document.body.innerText")
        assert "average@8 (%)" in shown and "median gap" in shown and "Colour by" not in shown
        assert "gap -3.00" in browser.run("return document.querySelector('.t').title")


def _contrast(one: str, other: str) -> float:
    bright, dim = sorted((_light(one), _light(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _light(colour: str) -> float:
    """Relative luminance of "rgb(r, g, b)"."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
