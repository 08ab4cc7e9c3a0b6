"""Finding tokens in the viewer, and taking them away: search, filters, order, addresses, copies, exports."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.report.browser import Browser, needs_browser
from tests.report.viewing import choose, figures, make_page, opened_at, put, text_of, wait
from trimsft.tokens import read_token_table
from trimsft.tokens.statistics.weighting import objective_of, weights_of

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return make_page(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="module")
def browser():
    with Browser(size=(1400, 1000)) as opened:
        yield opened


@pytest.fixture
def opened(browser, page) -> Browser:
    return opened_at(browser, page)


def test_text_is_found_across_tokens_whatever_the_case(opened, page) -> None:
    table = read_token_table(page.parent / "base.parquet", first_examples=30)
    joined = [
        "".join(t for t, e in zip(table.texts["text"], table["example"], strict=True) if e == n) for n in range(30)
    ]
    put(opened, "query", "SUM IS")
    count = sum(text.lower().count("sum is") for text in joined)
    assert count > 3 and text_of(opened, "found").startswith(f"{count} of")
    hidden = opened.run("return [...document.querySelectorAll('.example')].map(e => e.hidden)")
    assert hidden == ["sum is" not in text.lower() for text in joined]
    opened.press("Enter")
    opened.run("document.getElementById('query').focus()")
    opened.press("Enter")
    assert opened.run("return document.activeElement.textContent") == "·sum"
    assert "hit" in opened.run("return document.activeElement.className")
    opened.run("document.getElementById('clear').click()")
    assert opened.run("return document.querySelectorAll('.dim, .hit').length") == 0
    put(opened, "query", "sO tHE")
    assert text_of(opened, "found").startswith(f"{sum(text.count('So the') for text in joined)} of")
    put(opened, "query", ".*(")
    assert text_of(opened, "found").startswith("0 of")
    assert opened.console() == []


def test_filters_dim_the_others(opened, page) -> None:
    table = read_token_table(page.parent / "base.parquet")
    put(opened, "gap-low", 0)
    put(opened, "gap-high", 2)
    put(opened, "category", 0, "change")
    put(opened, "target", "matches", "change")
    fits = (table["gap"] >= 0) & (table["gap"] <= 2) & (table["category"] == 0)
    assert abs(int(text_of(opened, "found").split()[0]) - fits.sum()) <= 1
    put(opened, "weight-low", 0.9)
    fits &= weights_of(objective_of("trim"), table) >= 0.9
    assert abs(int(text_of(opened, "found").split()[0]) - fits.sum()) <= 1
    shown = "return [...document.querySelectorAll('.example:not([hidden]) .t')].map(t => t.classList.contains('dim'))"
    wait(lambda: opened.run(shown))
    dimmed = opened.run(shown)
    assert True in dimmed and False in dimmed


def test_examples_are_sorted_by_trimmed_mass(opened, page) -> None:
    table = read_token_table(page.parent / "base.parquet")
    mass = weights_of(objective_of("trim"), table) * table["gradient_norm"]
    trimmed = [
        1 - mass[table["example"] == n].sum() / table["gradient_norm"][table["example"] == n].sum() for n in range(30)
    ]
    put(opened, "sort", "trimmed", "change")
    order = opened.run("return [...document.querySelectorAll('.example h3')].map(h => h.firstChild.textContent.trim())")
    exact = [trimmed[int(name.split()[1]) - 1] for name in order]
    assert all(one > other - 1e-3 for one, other in pairwise(exact))
    assert order != [f"Example {n + 1}" for n in range(30)]
    put(opened, "sort", "length", "change")
    first = opened.run("return document.querySelector('.example h3').textContent")
    assert f"{np.bincount(table['example']).max()} tokens" in first


def test_next_goes_from_one_target_to_the_next(opened, page) -> None:
    table = read_token_table(page.parent / "base.parquet")
    kept = np.flatnonzero(weights_of(objective_of("trim"), table) > 0.5).tolist()
    put(opened, "target", "kept", "change")
    opened.run("document.body.focus()")
    seen = []
    for _ in range(12):
        opened.press("n")
        seen.append(opened.run("return document.activeElement.token"))
    assert seen == kept[:12]
    opened.press("p")
    assert opened.run("return document.activeElement.token") == kept[10]
    opened.press("Home", "p") if kept[10] else None
    assert text_of(opened, "found") == f"{len(kept)} of {len(table):,} shown"


def test_the_address_restores_everything(browser, page) -> None:
    opened_at(browser, page)
    choose(browser, "trim-e")
    put(browser, "margin", 2.25)
    put(browser, "bandwidth", 1.35)
    browser.run("document.getElementById('keep').click()")
    choose(browser, "dft")
    put(browser, "quantity", "difference", "change")
    put(browser, "model", 1, "change")
    put(browser, "query", "thus & =")
    put(browser, "gap-low", -3)
    put(browser, "sort", "nll", "change")
    browser.run("history.replaceState(null, '', '#e.a=SFT')")
    put(browser, "query", "thus")
    fourth = "document.querySelectorAll('.example:not([hidden]) .t')[3]"
    wait(lambda: browser.run(f"return {fourth} !== undefined"))  # examples are drawn when they come into view
    browser.run(f"{fourth}.focus()")
    wait(lambda: "t.at=" in browser.run("return location.hash"))
    link = browser.run("return location.hash")
    assert "e.a=SFT" in link  # another room's
    state = (
        "const v = id => document.getElementById(id).value; return [v('margin'), v('bandwidth'), v('quantity'),"
        " v('model'), v('query'), v('gap-low'), v('sort'), document.querySelector('#bar input:checked').value,"
        " document.activeElement.token,"
        " document.getElementById('figures').textContent]"
    )
    before = browser.run(state)
    opened_at(browser, page, link[1:])
    assert browser.run(state) == before


@pytest.mark.parametrize(
    "fragment",
    [
        "t.method=__proto__&t.m=NaN&t.tau=-1&t.run=99&t.b=x~y~z&t.colour=constructor&t.at=1e9~-1&t.kind=77",
        "t.m=1e999&t.tau=0&t.gap=~&t.w=a~b~c&t.go=toString&t.sort=%00&t.at=~",
        "t.find=%3Cimg%20src=x%20onerror=alert(1)%3E&t.m=javascript:alert(1)&%E0%A4%A",
        "t.b=&t.colour=difference&" + "t.m=1&" * 500,
    ],
)
def test_hostile_addresses_are_harmless(browser, page, fragment) -> None:
    opened_at(browser, page, fragment)
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert all(np.isfinite(figures(browser)[:1]))
    assert browser.console() == []


def test_configuration_and_command_are_copied_or_selected(opened) -> None:
    put(opened, "margin", 2)
    put(opened, "bandwidth", 1)
    assert text_of(opened, "yaml") == "objective: trim\nmargin: 2\nbandwidth: 1"
    train = "trimsft train --model_name_or_path m --dataset_name DATA.jsonl"
    assert text_of(opened, "command") == f"{train} --objective trim --margin 2 --bandwidth 1"
    opened.run("document.getElementById('use').open = true; document.querySelector('[data-copy=command]').click()")
    wait(lambda: text_of(opened, "said") != "")
    copied = text_of(opened, "said") == "Copied."
    assert copied or opened.run("return getSelection().toString()") == text_of(opened, "command")
    opened.run("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    opened.run("document.querySelector('[data-copy=yaml]').click()")
    wait(lambda: "Ctrl+C" in text_of(opened, "said"))
    assert opened.run("return getSelection().toString()") == text_of(opened, "yaml")
    choose(opened, "fsft")
    assert text_of(opened, "yaml") == "objective: fsft\ngamma: 2"
    choose(opened, "sft")
    assert text_of(opened, "command") == f"{train} --objective sft"


def test_exports_hold_what_is_shown(opened, page, tmp_path) -> None:
    table = read_token_table(page.parent / "base.parquet", first_examples=30)
    opened.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    put(opened, "gap-low", 1)
    for name in ("csv-tokens", "csv-corpus", "svg"):
        opened.run("document.getElementById(arguments[0]).click()", name)
    wait(lambda: len([*tmp_path.glob("*.csv"), *tmp_path.glob("*.svg")]) == 3)
    wait(lambda: not list(tmp_path.glob("*.crdownload")))
    with (tmp_path / "tokens.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    fits = np.flatnonzero(table["gap"] >= 1)
    assert abs(len(rows) - len(fits)) <= 1
    assert int(rows[0]["token_id"]) == table["token_id"][fits[0]]
    assert json.loads(rows[0]["text"]) == table.texts["text"][fits[0]].replace(" ", "·").replace("\n", "↵")
    exact = weights_of(objective_of("trim"), table)[fits[0]]
    assert float(rows[0]["weight_a"]) == pytest.approx(exact, abs=1e-3)
    with (tmp_path / "corpus.csv").open(encoding="utf-8") as file:
        cells = list(csv.DictReader(file))
    assert sum(int(cell["tokens"]) for cell in cells) == len(table)
    drawn = (tmp_path / "gaps.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml") and 'fill="rgb(' in drawn and "class=" not in drawn
    assert opened.console() == []
