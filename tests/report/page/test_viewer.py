"""The token viewer in a real browser: figures, colours, one token, keys; finding tokens and taking them away."""

import csv
import json
from itertools import pairwise, product

import numpy as np
import pytest

from tests.report.page.browser import Browser, wait
from tests.report.page.pages import chip, choose, contrast, figures, settle, view
from trimsft.objectives import PAPER_OBJECTIVES
from trimsft.report.course import ENDED, Moment
from trimsft.tokens.statistics.weighting import diagnose, objective_of, weights_of
from trimsft.tokens.table import read_token_table


def classes(browser: Browser) -> list[str]:
    return browser.run(
        "return [...document.querySelectorAll('.example')[0].querySelectorAll('.t')].map(t => t.className)"
    )


def expected(table, method: str, margin: float, bandwidth: float, *, band=None) -> list[float]:
    values = {"margin": margin, "bandwidth": bandwidth}
    objective = ENDED if method == "auto-trim" else objective_of(method, values)
    return diagnosed(table, objective, band or values)


def diagnosed(table, objective, band) -> list[float]:
    found = diagnose(table, objective, **band)
    mass = found.mass_percent
    return [found.mean_weight, found.effective_ratio, found.high_weight_percent, mass.low, mass.middle, mass.high]


# ---- figures of the whole corpus


@pytest.mark.parametrize("page", ["two_tables", "binned"])
def test_the_figures_are_those_of_the_statistics(browser, request, page) -> None:
    """To the last digit shown, half a unit and a fifth of that for float32 sums; from bins to a thousandth."""
    path = request.getfixturevalue(page)
    table = read_token_table(next(path.parent.glob("[bt]*.parquet")))
    view(browser, path)
    choose(browser, "trim-e")
    browser.put("margin", 1.5)
    browser.put("bandwidth", 0.8)
    assert figures(browser)[0] == pytest.approx(expected(table, "trim-e", 1.5, 0.8)[0], abs=6e-5)
    bands = [(1.5, 0.8), (6.0, 4.0), (2.0, 0.3), (3.0, 0.15)] if page == "binned" else [(-2.0, 3.1), (4.35, 0.25)]
    for method, band in product((*PAPER_OBJECTIVES, "auto-trim"), bands):
        settle(browser, method, *band)
        for column, (shown, exact) in enumerate(zip(figures(browser), expected(table, method, *band), strict=True)):
            within = {"rel": 0.0, "abs": 6e-5 if column < 2 else 6e-3}
            if page == "binned":
                within = {**within, "rel": 1e-3} if column < 3 else {"abs": 0.05}  # percent of the mass
            assert shown == pytest.approx(exact, **within), (method, band, column)
    counts = browser.text("counts")
    if page == "binned":
        assert "120,000 tokens" in counts and "30,000 tokens in 200 examples" in counts
    assert ("in cells 1/256 of a gap wide" in counts) == (page == "binned")


def test_gate_and_exponent_of_auto_trim_follow_the_training(browser, trained, table) -> None:
    view(browser, trained)
    hidden = "return document.getElementById('moments').hidden"
    assert browser.run(hidden) is True  # no other method has moments
    choose(browser, "auto-trim")
    assert browser.run(hidden) is False and browser.text("moment-is") == "4: x 0.00, a 2.50"
    band = {"margin": 1.5, "bandwidth": 0.8}
    for place, moment in enumerate(
        [Moment(1, 1.0, 1.0), Moment(2, 0.7, 1.0), Moment(3, 0.2, 1.5), Moment(4, 0.0, 2.5)]
    ):
        browser.put("moment", place)
        exact = diagnosed(table, moment, band)
        for column, (shown, figure) in enumerate(zip(figures(browser), exact, strict=True)):
            # half of the last digit shown, and a fifth of that for float32 sums
            assert shown == pytest.approx(figure, abs=6e-5 if column < 2 else 6e-3), (moment, column)
    browser.put("moment", 2)
    assert browser.text("yaml") == "objective: auto-trim"
    browser.put("quantity", "weight", "change")
    steps = np.searchsorted(np.arange(1, 9) / 9, weights_of(Moment(3, 0.2, 1.5), table), side="right")
    seen = classes(browser)
    off = sum(name != f"t q{step}" for name, step in zip(seen, steps, strict=False))
    assert off <= 1  # rounding nll may move one value over an edge
    wait(lambda: "t.moment=2" in browser.run("return location.hash"))
    view(browser, trained, browser.run("return location.hash.slice(1)"))
    assert browser.text("moment-is") == "3: x 0.20, a 1.50"
    assert browser.console() == []


def test_categories_share_tokens_and_mass(opened, table) -> None:
    mass = weights_of(objective_of("trim"), table) * table["gradient_norm"]
    rows = opened.run(
        "return [...document.querySelectorAll('#bars .bar-row')].slice(1).map(r => [r.firstChild.textContent,"
        " ...[...r.querySelectorAll('.bar-value')].map(v => Number(v.textContent))])"
    )
    assert [row[0] for row in rows] == ["numeric", "symbol", "connector", "other"]
    for kind, (_, tokens, share) in enumerate(rows):  # shown with one digit
        there = table["category"] == kind
        assert tokens == pytest.approx(100 * there.mean(), abs=0.06)
        assert share == pytest.approx(100 * mass[there].sum() / mass.sum(), abs=0.06)


def test_a_setting_kept_as_b_stands_beside(opened, table) -> None:
    opened.click("keep")
    settle(opened, "trim-h", 3, 0.8)
    assert figures(opened, 1)[1] == pytest.approx(expected(table, "trim-h", 3, 0.8)[1], abs=6e-5)
    assert figures(opened, 2)[1] == pytest.approx(expected(table, "trim", 1.5, 0.8)[1], abs=6e-5)
    chip(opened, "differing")
    one, other = (weights_of(objective_of(m, {"margin": g}), table) for m, g in (("trim-h", 3.0), ("trim", 1.5)))
    count = int((np.abs(one - other) > 0.5).sum())
    total = f"{len(table):,}"
    assert opened.text("found") == f"{count:,} of {total} shown, {count:,} of {total} in all"
    opened.put("quantity", "difference", "change")
    steps = np.searchsorted([-0.75, -0.5, -0.25, -0.05, 0.05, 0.25, 0.5, 0.75], one - other, side="right")
    seen = classes(opened)
    assert [name.split()[1] for name in seen] == [f"x{step}" for step in steps[: len(seen)]]
    opened.click("swap-settings")
    assert opened.value("margin") == "1.5"
    choose(opened, "", of="b")
    assert opened.value("quantity") == "learned"
    assert opened.run("return document.querySelector('[data-target=differing]')") is None


# ---- colours, one token


def test_tokens_are_recoloured_by_what_is_chosen(opened, table, two_tables) -> None:
    other = read_token_table(two_tables.parent / "after.parquet")
    ninths = np.arange(1, 9) / 9
    count = len(classes(opened))

    def differing(values, edges, letter) -> int:
        steps = np.searchsorted(edges, values[:count], side="right")
        return sum(a != f"t {letter}{b}" for a, b in zip(classes(opened), steps, strict=True))

    opened.put("quantity", "gap", "change")
    edges = [-6, -3, -1, 0, 1, 2, 4, 8]
    assert differing(table["gap"], edges, "d") == 0
    opened.put("model", 1, "change")
    assert differing(other["gap"], edges, "d") == 0
    opened.put("quantity", "weight", "change")
    settle(opened, "trim-e", 2.5, 0.8)
    # rounding gaps to 1/1024 may move one value over an edge
    assert differing(weights_of(objective_of("trim-e", {"margin": 2.5}), other), ninths, "q") <= 1
    opened.put("quantity", "probability", "change")
    assert differing(np.exp(-other["nll"]), ninths, "q") <= 1
    assert opened.run("return document.getElementById('scale').children.length") == 9
    assert opened.console() == []


def test_the_inspector_shows_every_run_and_method(opened, two_tables) -> None:
    opened.run("document.querySelectorAll('.t')[4].focus()")
    opened.press("Enter")
    rows = opened.run(
        "return [...document.querySelectorAll('#inspected tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    assert rows[0][:7] == ["", "p", "gap", "nll", "competitor", "entropy", "rank"]
    for row, name in zip(rows[1:], ("base", "after"), strict=True):
        table = read_token_table(two_tables.parent / f"{name}.parquet")
        # three digits are shown; a gap is rounded to 1/1024 before that
        assert float(row[2]) == pytest.approx(float(table["gap"][4]), abs=1.1e-3)
        assert float(row[1]) == pytest.approx(float(np.exp(-table["nll"][4])), abs=6e-4)
        weighing = [*map(objective_of, PAPER_OBJECTIVES), ENDED]
        for shown, objective in zip(row[7:], weighing, strict=True):
            assert float(shown) == pytest.approx(weights_of(objective, table)[4], abs=1.1e-3)
    top = opened.run(
        "return [...document.querySelectorAll('.top li')].map(l => [l.firstChild.textContent, l.className])"
    )
    assert len(top) == 2 and [kind for _, kind in top if kind] == ["gold"]
    which = opened.text("which")
    assert "numeric" in which or "other" in which
    assert " id 4, " in which and "number 5 of" in which


def test_only_what_is_near_has_spans(browser, binned) -> None:
    view(browser, binned)
    assert browser.run("return document.querySelectorAll('.example').length") == 200
    drawn = "return [...document.querySelectorAll('.example')].flatMap((e, n) => e.querySelector('.t') ? [n] : [])"
    assert 0 < len(browser.run(drawn)) <= 20
    browser.run("const p = document.getElementById('pane'); p.scrollTop = p.scrollHeight / 2")
    wait(lambda: min(browser.run(drawn), default=0) > 50)
    assert len(browser.run(drawn)) <= 20


# ---- keys


def test_all_of_it_by_keyboard(opened) -> None:
    opened.run("document.querySelector('.t').focus()")
    opened.press("4", "]", "]", "}")
    assert opened.value("margin") == "1.7" and opened.value("bandwidth") == "0.9"
    opened.press("b", "5", "c")
    assert "B: TrimSFT m=1.7" in opened.text("figures") and "A: TrimSFT-E" in opened.text("figures")
    opened.press("x")
    assert "A: TrimSFT m=1.7" in opened.text("figures")
    opened.press("?")
    assert opened.run("return document.getElementById('help').open") is True
    opened.press("Escape")
    opened.run("document.getElementById('help').close(); document.querySelector('.t').focus()")
    opened.press("/")
    assert opened.run("return document.activeElement.id") == "query"
    opened.press("5", "b")  # typed, not obeyed
    assert "A: TrimSFT m=1.7" in opened.text("figures")


def test_arrows_walk_and_escape_closes(opened) -> None:
    at = "return document.activeElement.token"
    opened.run("document.querySelector('.t').focus()")
    opened.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert opened.run(at) == 1
    opened.press("End")
    last = opened.run("return document.activeElement.parentNode.children.length") - 1
    assert opened.run(at) == last
    opened.press("ArrowRight")
    assert opened.run(at) == last
    opened.press("ArrowUp")
    up = opened.run(at)
    assert up < last
    opened.press("ArrowDown")
    assert up < opened.run(at) <= last
    stops = "return [...document.querySelectorAll('.completion')].map(c => c.querySelectorAll(arguments[0]).length)"
    assert set(opened.run(stops, '[tabindex="0"]')) <= {0, 1}
    opened.press("Enter")
    hidden = "return document.getElementById('dock').hidden"
    assert opened.run(hidden) is False
    opened.press("Escape")
    assert opened.run(hidden) is True


# ---- finding


def test_text_is_found_across_tokens_whatever_the_case(opened, table, two_tables) -> None:
    joined = [
        "".join(t for t, e in zip(table.texts["text"], table["example"], strict=True) if e == n) for n in range(30)
    ]
    opened.put("query", "SUM IS")
    count = sum(text.lower().count("sum is") for text in joined)
    assert count > 3 and opened.text("found").startswith(f"{count} of")
    hidden = opened.run("return [...document.querySelectorAll('.example')].map(e => e.hidden)")
    assert hidden == ["sum is" not in text.lower() for text in joined]
    opened.run("document.getElementById('query').focus()")
    opened.press("Enter")
    current = "return document.querySelector('#pane [aria-current]')"
    assert opened.run(f"{current}.textContent") == "·sum"
    assert "hit" in opened.run(f"{current}.className")
    opened.click("clear")
    assert opened.run("return document.querySelectorAll('.dim, .hit').length") == 0
    opened.put("query", "sO tHE")
    assert opened.text("found").startswith(f"{sum(text.count('So the') for text in joined)} of")
    opened.put("query", ".*(")
    assert opened.text("found").startswith("0 of")
    view(opened, two_tables, "t.find=.%0A&t.go=matches")  # a line break is shown as another character
    assert opened.text("found").startswith(f"{sum(text.count('.' + chr(10)) for text in joined)} of")
    assert opened.console() == []


def test_filters_dim_the_others(opened, table) -> None:
    opened.put("gap-low", 0)
    opened.put("gap-high", 2)
    opened.put("category", 0, "change")
    fits = (table["gap"] >= 0) & (table["gap"] <= 2) & (table["category"] == 0)
    assert abs(int(opened.text("found").split()[0]) - fits.sum()) <= 1
    opened.put("weight-low", 0.9)
    fits &= weights_of(objective_of("trim"), table) >= 0.9
    assert abs(int(opened.text("found").split()[0]) - fits.sum()) <= 1
    shown = "return [...document.querySelectorAll('.example:not([hidden]) .t')].map(t => t.classList.contains('dim'))"
    wait(lambda: opened.run(shown))
    assert set(opened.run(shown)) == {True, False}
    look = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    assert (
        contrast(opened.run(look, ".dim", "color"), opened.run(look, "body", "backgroundColor")) >= 4.5
    )  # they can still be read


def test_examples_are_sorted(opened, table) -> None:
    mass, norm = weights_of(objective_of("trim"), table) * table["gradient_norm"], table["gradient_norm"]
    trimmed = [1 - mass[table["example"] == n].sum() / norm[table["example"] == n].sum() for n in range(30)]
    opened.put("sort", "trimmed", "change")
    order = opened.run("return [...document.querySelectorAll('.example h3')].map(h => h.firstChild.textContent.trim())")
    exact = [trimmed[int(name.split()[1]) - 1] for name in order]
    assert all(one > other - 1e-3 for one, other in pairwise(exact))
    assert order != [f"Example {n + 1}" for n in range(30)]
    opened.put("sort", "length", "change")
    first = opened.run("return document.querySelector('.example h3').textContent")
    assert f"{np.bincount(table['example']).max()} tokens" in first


def test_next_goes_from_one_target_to_the_next(opened, table) -> None:
    band = np.flatnonzero(np.abs(table["gap"] - 1.5) <= 0.8).tolist()
    chip(opened, "band")
    seen = [opened.run("return document.querySelector('#pane [aria-current]').token")]
    for _ in range(11):
        opened.press("n")
        seen.append(opened.run("return document.activeElement.token"))
    assert seen == band[:12]
    opened.press("p")
    assert opened.run("return document.activeElement.token") == band[10]
    assert opened.text("found") == f"{len(band)} of {len(table):,} shown"


# ---- taking it away


def test_the_address_restores_everything(opened, two_tables) -> None:
    settle(opened, "trim-e", 2.25, 1.35)
    opened.click("keep")
    choose(opened, "dft")
    opened.put("quantity", "difference", "change")
    opened.put("model", 1, "change")
    opened.put("query", "thus & =")
    opened.put("gap-low", -3)
    opened.put("sort", "nll", "change")
    opened.run("history.replaceState(null, '', '#e.a=SFT')")
    opened.put("query", "thus")
    fourth = "document.querySelectorAll('.example:not([hidden]) .t')[3]"
    wait(lambda: opened.run(f"return {fourth} !== undefined"))  # examples are drawn when they come into view
    opened.run(f"{fourth}.focus()")
    wait(lambda: "t.at=" in opened.run("return location.hash"))
    link = opened.run("return location.hash")
    assert "e.a=SFT" in link  # another room's
    state = (
        "const v = id => document.getElementById(id).value; return [v('margin'), v('bandwidth'), v('margin-b'),"
        " v('quantity'),"
        " v('model'), v('query'), v('gap-low'), v('sort'), document.querySelector('#bar input:checked').value,"
        " document.activeElement.token,"
        " document.getElementById('figures').textContent]"
    )
    before = opened.run(state)
    view(opened, two_tables, link[1:])
    assert opened.run(state) == before


def test_configuration_and_command_are_copied_or_selected(opened) -> None:
    settle(opened, "trim", 2, 1)
    assert opened.text("yaml") == "objective: trim\nmargin: 2\nbandwidth: 1"
    train = "trimsft train --model_name_or_path m --dataset_name DATA.jsonl"
    assert opened.text("command") == f"{train} --objective trim --margin 2 --bandwidth 1"
    opened.run("document.getElementById('use').open = true; document.querySelector('[data-copy=command]').click()")
    wait(lambda: opened.text("said") != "")
    copied = opened.text("said") == "Copied."
    assert copied or opened.run("return getSelection().toString()") == opened.text("command")
    opened.run("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    opened.run("document.querySelector('[data-copy=yaml]').click()")
    wait(lambda: "Ctrl+C" in opened.text("said"))
    assert opened.run("return getSelection().toString()") == opened.text("yaml")
    settle(opened, {}, "x", -1)  # what is no setting changes nothing, or as little as it can
    assert opened.text("yaml") == "objective: trim\nmargin: 2\nbandwidth: 0.001"
    choose(opened, "fsft")
    assert opened.text("yaml") == "objective: fsft\ngamma: 2"
    choose(opened, "sft")
    assert opened.text("command") == f"{train} --objective sft"


def test_exports_hold_what_is_shown(opened, table, tmp_path) -> None:
    opened.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    opened.put("gap-low", 1)
    for name in ("csv-tokens", "csv-corpus", "svg"):
        opened.click(name)
    wait(lambda: {path.name for path in tmp_path.iterdir()} == {"tokens.csv", "corpus.csv", "gaps.svg"})
    with (tmp_path / "tokens.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    fits = np.flatnonzero(table["gap"] >= 1)
    assert abs(len(rows) - len(fits)) <= 1
    assert int(rows[0]["token_id"]) == table["token_id"][fits[0]]
    assert json.loads(rows[0]["text"]) == table.texts["text"][fits[0]]
    exact = weights_of(objective_of("trim"), table)[fits[0]]
    assert float(rows[0]["weight_a"]) == pytest.approx(exact, abs=1e-3)
    with (tmp_path / "corpus.csv").open(encoding="utf-8") as file:
        cells = list(csv.DictReader(file))
    assert sum(int(cell["tokens"]) for cell in cells) == len(table)
    drawn = (tmp_path / "gaps.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml") and 'fill="rgb(' in drawn and "class=" not in drawn
    assert opened.console() == []
