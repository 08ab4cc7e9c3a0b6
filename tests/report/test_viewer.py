"""The token viewer in a real browser: figures, colours, one token, keys, sizes."""

import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.report.browser import Browser, needs_browser
from tests.report.viewing import WORDS, choose, figures, make_page, opened_at, put, text_of, wait
from tests.tokens.tiny import make_table
from trimsft.objectives import OBJECTIVES
from trimsft.report import write_report
from trimsft.tokens import read_token_table
from trimsft.tokens.statistics.weighting import diagnose, objective_of, weights_of

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return make_page(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="module")
def binned(tmp_path_factory) -> Path:
    """A corpus of more tokens than there are cells, so that it is put into bins."""
    folder = tmp_path_factory.mktemp("binned")
    rng = np.random.default_rng(3)
    texts = [[WORDS[n] for n in rng.integers(0, len(WORDS), 400)] for _ in range(300)]
    gap = np.where(rng.random(120_000) < 0.3, rng.normal(0, 3, 120_000), rng.normal(10, 5, 120_000))
    table = make_table(folder / "tokens.parquet", texts, gap=gap)
    return write_report(folder / "report.html", {"Base": table}, title="Bins")


@pytest.fixture(scope="module")
def browser():
    with Browser(size=(1400, 1000)) as opened:
        yield opened


@pytest.fixture
def opened(browser, page) -> Browser:
    return opened_at(browser, page)


def classes(browser: Browser) -> list[str]:
    return browser.run(
        "return [...document.querySelectorAll('.example')[0].querySelectorAll('.t')].map(t => t.className)"
    )


def expected(table, method: str, margin: float, bandwidth: float, *, band=None) -> list[float]:
    values = {"margin": margin, "bandwidth": bandwidth}
    found = diagnose(table, objective_of(method, values), **(band or values))
    return [
        found.mean_weight,
        found.effective_ratio,
        found.high_weight,
        found.mass.low,
        found.mass.middle,
        found.mass.high,
    ]


# ---- figures of the whole corpus


def test_sliders_give_the_figures_of_the_statistics(browser, page) -> None:
    table = read_token_table(page.parent / "base.parquet")
    opened_at(browser, page)
    for method, (margin, bandwidth) in product(OBJECTIVES, [(1.5, 0.8), (-2.0, 3.1), (4.35, 0.25)]):
        choose(browser, method)
        put(browser, "margin", margin)
        put(browser, "bandwidth", bandwidth)
        shown = figures(browser)
        for place, exact in enumerate(expected(table, method, margin, bandwidth)):
            assert shown[place] == pytest.approx(exact, abs=6e-5 if place < 2 else 6e-3), (
                method,
                place,
                margin,
            )


def test_bins_give_them_to_a_thousandth_of_the_whole(browser, binned) -> None:
    table = read_token_table(binned.parent / "tokens.parquet")
    opened_at(browser, binned)
    assert "120,000 tokens" in text_of(browser, "counts") and "80,000 tokens in 200 examples" in text_of(
        browser, "counts"
    )
    assert "in cells 1/256 of a gap wide" in text_of(browser, "counts")
    for method, (margin, bandwidth) in product(OBJECTIVES, [(1.5, 0.8), (6.0, 4.0), (2.0, 0.3), (3.0, 0.15)]):
        choose(browser, method)
        put(browser, "margin", margin)
        put(browser, "bandwidth", bandwidth)
        exact = expected(table, method, margin, bandwidth)
        for place, shown in enumerate(figures(browser)):
            rounding = 6e-5 if place < 2 else 6e-3
            within = {"rel": 1e-3, "abs": rounding} if place < 3 else {"abs": 0.05}  # percent of the mass
            assert shown == pytest.approx(exact[place], **within), (method, place, margin, bandwidth)


def test_categories_share_tokens_and_mass(opened, page) -> None:
    table = read_token_table(page.parent / "base.parquet")
    mass = weights_of(objective_of("trim"), table) * table["gradient_norm"]
    rows = opened.run(
        "return [...document.querySelectorAll('#bars .bar-row')].slice(1).map(r => [r.firstChild.textContent,"
        " ...[...r.querySelectorAll('.bar-value')].map(v => Number(v.textContent))])"
    )
    assert [row[0] for row in rows] == ["numeric", "symbol", "connector", "other"]
    for kind, (_, tokens, share) in enumerate(rows):
        there = table["category"] == kind
        assert tokens == pytest.approx(100 * there.mean(), abs=0.06)
        assert share == pytest.approx(100 * mass[there].sum() / mass.sum(), abs=0.06)


def test_a_setting_kept_as_b_stands_beside(opened, page) -> None:
    table = read_token_table(page.parent / "base.parquet")
    opened.run("document.getElementById('keep').click()")
    choose(opened, "trim-h")
    put(opened, "margin", 3)
    band = {"margin": 3.0, "bandwidth": 0.8}
    assert figures(opened, 1)[1] == pytest.approx(expected(table, "trim-h", 3, 0.8)[1], abs=6e-5)
    assert figures(opened, 2)[1] == pytest.approx(expected(table, "trim", 1.5, 0.8, band=band)[1], abs=6e-5)
    put(opened, "target", "differing", "change")
    one, other = (weights_of(objective_of(m, {"margin": g}), table) for m, g in (("trim-h", 3.0), ("trim", 1.5)))
    count = int((np.abs(one - other) > 0.5).sum())
    total = f"{len(table):,}"
    assert text_of(opened, "found") == f"{count:,} of {total} shown, {count:,} of {total} in all"
    put(opened, "quantity", "difference", "change")
    steps = np.searchsorted([-0.75, -0.5, -0.25, -0.05, 0.05, 0.25, 0.5, 0.75], one - other, side="right")
    seen = classes(opened)
    assert [name.split()[1] for name in seen] == [f"x{step}" for step in steps[: len(seen)]]
    opened.run("document.getElementById('swap-settings').click()")
    assert opened.run("return document.getElementById('margin').value") == "1.5"
    opened.run("document.getElementById('drop').click()")
    assert opened.run("return document.getElementById('quantity').value") == "weight"


def test_the_histogram_is_dragged(opened) -> None:
    box = opened.run(
        "const b = document.getElementById('histogram').getBoundingClientRect(); return [b.left, b.top, b.width]"
    )
    for kind, share in (("mousePressed", 0.3), ("mouseMoved", 0.6), ("mouseReleased", 0.6)):
        opened.command(
            "Input.dispatchMouseEvent",
            type=kind,
            x=box[0] + share * box[2],
            y=box[1] + 60,
            button="left",
            buttons=1,
            clickCount=1,
        )
    assert float(opened.run("return document.getElementById('margin-number').value")) > 4


# ---- colours, one token


def test_tokens_are_recoloured_by_what_is_chosen(opened, page) -> None:
    table = read_token_table(page.parent / "base.parquet")
    other = read_token_table(page.parent / "after.parquet")
    ninths = np.arange(1, 9) / 9

    def steps(values, edges, letter):
        return [f"t {letter}{step}" for step in np.searchsorted(edges, values, side="right")]

    count = len(classes(opened))
    edges = [-6, -3, -1, 0, 1, 2, 4, 8]
    assert classes(opened) == steps(table["gap"][:count], edges, "d")
    put(opened, "model", 1, "change")
    assert classes(opened) == steps(other["gap"][:count], edges, "d")
    put(opened, "quantity", "weight", "change")
    choose(opened, "trim-e")
    put(opened, "margin", 2.5)
    weights = weights_of(objective_of("trim-e", {"margin": 2.5}), other)[:count]
    assert _alike(classes(opened), steps(weights, ninths, "q"))
    put(opened, "quantity", "probability", "change")
    assert _alike(classes(opened), steps(np.exp(-other["nll"][:count]), ninths, "q"))
    assert opened.run("return document.getElementById('scale').children.length") == 9
    assert opened.console() == []


def _alike(one: list[str], other: list[str]) -> bool:
    """Equal but for values that quantisation moves over an edge."""
    return len(one) == len(other) and sum(a != b for a, b in zip(one, other, strict=True)) <= 1


def test_the_inspector_shows_every_run_and_method(opened, page) -> None:
    opened.run("document.querySelectorAll('.t')[4].focus()")
    rows = opened.run(
        "return [...document.querySelectorAll('#inspected tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    assert rows[0][:7] == ["", "p", "gap", "nll", "competitor", "entropy", "rank"]
    for row, name in zip(rows[1:], ("base", "after"), strict=True):
        table = read_token_table(page.parent / f"{name}.parquet")
        assert float(row[2]) == pytest.approx(float(table["gap"][4]), abs=1.1e-3)
        assert float(row[1]) == pytest.approx(float(np.exp(-table["nll"][4])), abs=6e-4)
        for place, method in enumerate(OBJECTIVES):
            assert float(row[7 + place]) == pytest.approx(weights_of(objective_of(method), table)[4], abs=1.1e-3)
    top = opened.run(
        "return [...document.querySelectorAll('.top li')].map(l => [l.firstChild.textContent, l.className])"
    )
    assert len(top) == 2 and [kind for _, kind in top if kind] == ["gold"]
    assert "numeric" in text_of(opened, "inspected") or "other" in text_of(opened, "inspected")
    assert " id 4, " in text_of(opened, "inspected") and "number 5 of" in text_of(opened, "inspected")


def test_only_what_is_near_has_spans(browser, binned) -> None:
    opened_at(browser, binned)
    count = "return document.querySelectorAll('#pane .t').length"
    wait(lambda: browser.run(count) > 0)
    assert browser.run("return document.querySelectorAll('.example').length") == 200
    assert browser.run(count) <= 10 * 400
    browser.run("const p = document.getElementById('pane'); p.scrollTop = p.scrollHeight / 2")
    time.sleep(0.3)
    assert 0 < browser.run(count) <= 10 * 400
    middle = "return [...document.querySelectorAll('.example')].findIndex(e => e.querySelector('.t'))"
    assert browser.run(middle) > 50


# ---- keys, sizes, schemes


def test_all_of_it_by_keyboard(opened) -> None:
    opened.run("document.querySelector('.t').focus()")
    opened.press("4", "]", "]", "}")
    assert opened.run("return document.getElementById('margin-number').value") == "1.7"
    assert opened.run("return document.getElementById('bandwidth-number').value") == "0.9"
    opened.press("b", "5", "c")
    assert "B: TrimSFT m=1.7" in text_of(opened, "figures") and "A: TrimSFT-E" in text_of(opened, "figures")
    opened.press("x")
    assert "A: TrimSFT m=1.7" in text_of(opened, "figures")
    opened.press("?")
    assert opened.run("return document.getElementById('help').open") is True
    opened.press("Escape")
    opened.run("document.getElementById('help').close(); document.querySelector('.t').focus()")
    opened.press("/")
    assert opened.run("return document.activeElement.id") == "query"
    opened.press("5", "b")  # typed, not obeyed
    assert "A: TrimSFT m=1.7" in text_of(opened, "figures")


def test_arrows_walk_and_escape_closes(opened) -> None:
    opened.run("document.querySelector('.t').focus()")
    opened.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert opened.run("return document.activeElement.token") == 1
    opened.press("End")
    last = opened.run("return document.activeElement.parentNode.children.length") - 1
    assert opened.run("return document.activeElement.token") == last
    opened.press("ArrowRight")
    assert opened.run("return document.activeElement.token") == last
    opened.press("ArrowUp")
    up = opened.run("return document.activeElement.token")
    assert up < last
    opened.press("ArrowDown")
    assert up < opened.run("return document.activeElement.token") <= last
    stops = "return [...document.querySelectorAll('.completion')].map(c => c.querySelectorAll(arguments[0]).length)"
    assert set(opened.run(stops, '[tabindex="0"]')) <= {0, 1}
    opened.press("Escape")
    assert opened.run("return document.getElementById('inspector').hidden") is True


@pytest.mark.parametrize("width", [400, 700, 1100])
def test_nothing_hangs_over_the_edge(browser, page, width) -> None:
    browser.width(width)
    opened_at(browser, page)
    browser.run(
        "document.getElementById('keep').click(); document.querySelectorAll('details').forEach(d => { d.open = true })"
    )
    browser.run("document.querySelectorAll('.t')[3].focus()")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return document.getElementById('viewer').getBoundingClientRect().right") <= width
    browser.command("Emulation.clearDeviceMetricsOverride")


def test_the_theme_is_chosen_by_hand(opened) -> None:
    colours = []
    for _ in range(3):
        colours.append(opened.run("return getComputedStyle(document.body).backgroundColor"))
        opened.run("document.getElementById('theme').click()")
    assert colours[0] == colours[1] != colours[2]
    assert opened.run("return document.documentElement.dataset.theme ?? 'system'") == "system"


def test_print_shows_what_is_drawn(opened) -> None:
    opened.width(780)  # a sheet of paper
    opened.command("Emulation.setEmulatedMedia", media="print")
    heights = opened.run(
        "return ['bar', 'dock', 'pane', 'figures', 'histogram'].map(id => document.getElementById(id).offsetHeight)"
    )
    assert heights[:2] == [0, 0] and min(heights[2:]) > 50
    assert opened.run("const p = document.getElementById('pane'); return p.scrollHeight <= p.clientHeight + 1")
    opened.command("Emulation.setEmulatedMedia", media="")
    opened.command("Emulation.clearDeviceMetricsOverride")


def test_a_cell_of_the_sweep_sets_the_sliders(opened) -> None:
    tell = "document.dispatchEvent(new CustomEvent('trimsft:setting', {detail: arguments[0]}))"
    opened.run(tell, {"objective": "trim-h", "margin": 0.5, "bandwidth": 2})
    assert text_of(opened, "yaml") == "objective: trim-h\nmargin: 0.5\nbandwidth: 2"
    opened.run(tell, {"objective": {}, "margin": "x", "bandwidth": -1})
    assert text_of(opened, "yaml") == "objective: trim-h\nmargin: 0.5\nbandwidth: 0.001"
