"""The token viewer in use: what a hand does with it one thing after the other, and what it says meanwhile."""

import re
from urllib.parse import quote

import numpy as np
import pytest

from tests.report.page.browser import Browser, wait
from tests.report.page.pages import chip, choose, contrast, figures, make_telemetry, settle, view
from tests.tokens.tiny import make_table
from trimsft.report.page.build import write_report
from trimsft.tokens.statistics.weighting import diagnose, objective_of, weights_of
from trimsft.tokens.table import read_token_table

CURRENT = "return document.querySelector('#pane [aria-current]')?.token ?? null"


def pointer(browser: Browser, kind: str, x: float, y: float) -> None:
    browser.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)


def grip(browser: Browser, name: str, letter: str = "A") -> tuple[float, float]:
    """Where a handle of the histogram is held."""
    browser.run("document.getElementById('viewer').scrollIntoView({behavior: 'instant'})")
    left, top, right, bottom = browser.box(f".handle[data-moves='{name}-{letter}'] .reach")
    return (left + right) / 2, (top + bottom) / 2


def classes(browser: Browser, row: str = "A") -> list[str]:
    """What the tokens of the first example look like in a row."""
    script = "return [...document.querySelector(`.row-${arguments[0]}`).children].map(t => t.className)"
    return browser.run(script, row)


# ---- texts of tokens


def test_every_line_break_is_a_sign_and_a_dot_of_the_text_is_no_space(browser, tmp_path) -> None:
    texts = [["a", "\n\n", " ·", "2·3", "↵", "\u0301", "b"]]
    tokens = make_table(tmp_path / "tokens.parquet", texts)
    view(browser, write_report(tmp_path / "report.html", {"Base": tokens}, title="Signs"))
    shown = browser.run("return [...document.querySelectorAll('.t')].map(t => t.textContent)")
    assert shown == ["a", "↵\n↵\n", "·⟨U+00B7⟩", "2⟨U+00B7⟩3", "⟨U+21B5⟩", "◌\u0301", "b"]
    browser.run("document.querySelectorAll('.t')[1].focus()")
    assert browser.run("return document.querySelector('#card code').textContent") == "↵↵"
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
    x, y = grip(opened, "margin")
    pointer(opened, "mousePressed", x, y)
    pointer(opened, "mouseMoved", x + 80, y)
    assert opened.run(titles) == before
    pointer(opened, "mouseReleased", x + 80, y)
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


# ---- what is learned, with one setting and with two


def test_moving_the_margin_moves_the_colours_of_the_text(opened, table) -> None:
    gap = table["gap"][table["example"] == 0]
    for margin in (1.5, 5.0):
        opened.put("margin", margin)
        weight = np.exp(-((gap - margin) ** 2) / (2 * 0.8**2))
        below = np.searchsorted([0.02, 0.1, 0.25], weight, side="right")
        above = 8 - np.searchsorted([0.05, 0.25], weight, side="right")
        steps = np.where(weight > 0.5, np.where(weight < 0.8, 4, 5), np.where(gap < margin, below, above))
        off = sum(name != f"t d{step}" for name, step in zip(classes(opened), steps, strict=True))
        assert off <= 1  # rounding gaps to 1/1024 may move one value over an edge


def test_b_has_its_own_row_model_and_band(opened, two_tables) -> None:
    after = read_token_table(two_tables.parent / "after.parquet", examples=range(30))
    choose(opened, "trim", of="b")
    opened.put("model-b", 1, "change")
    opened.put("margin-b", 4)
    opened.put("bandwidth-b", 2, "change")
    exact = diagnose(after, objective_of("trim", {"margin": 4.0, "bandwidth": 2.0}), margin=4.0, bandwidth=2.0)
    mass = exact.mass_percent
    assert figures(opened, 2)[3:] == pytest.approx([mass.low, mass.middle, mass.high], abs=6e-3)
    heads = opened.run("return [...document.querySelectorAll('#figures thead th')].map(h => h.innerText)")
    assert heads == ["A: TrimSFT m=1.5 τ=0.8\non Base", "B: TrimSFT m=4 τ=2\non After"]
    assert "A 1.5 ± 0.8, B 4 ± 2" in opened.text("bars") and "B all" in opened.text("counts")
    opened.put("quantity", "gap", "change")
    steps = np.searchsorted([-6, -3, -1, 0, 1, 2, 4, 8], after["gap"][after["example"] == 0], side="right")
    assert classes(opened, "B") == [f"t d{step}" for step in steps]
    assert opened.box("#histogram-b")[3] > opened.box("#histogram")[3]
    choose(opened, "", of="b")
    assert opened.run("return document.querySelectorAll('.row-B .t').length") == 0
    assert opened.run("return document.getElementById('histogram-b').hidden") is True


def test_a_method_without_a_band_is_told_by_the_band_beside_it(opened, table) -> None:
    choose(opened, "sft", of="b")
    settle(opened, "trim", 3, 1)
    mass = diagnose(table, objective_of("sft"), margin=3.0, bandwidth=1.0).mass_percent
    assert figures(opened, 2)[3:] == pytest.approx([mass.low, mass.middle, mass.high], abs=6e-3)


def test_margin_and_bandwidth_rest_where_a_method_has_none(opened) -> None:
    inactive = (
        "return [...['margin', 'bandwidth'].map(id => document.getElementById(id).disabled),"
        " ...[...document.querySelectorAll('#histogram .handle')].map(h => h.hasAttribute('hidden'))]"
    )
    assert opened.run(inactive) == [False] * 4
    for method in ("sft", "fsft", "dft", "auto-trim"):
        choose(opened, method)
        assert opened.run(inactive) == [True] * 4 and "handles" not in opened.text("hint"), method
    opened.run("document.querySelector('.t').focus()")
    opened.press("]")
    assert opened.value("margin") == "1.5"


def test_a_setting_against_itself_is_said(opened) -> None:
    choose(opened, "sft")
    choose(opened, "sft", of="b")
    assert opened.text("remark").startswith("A and B are the same setting")
    opened.put("model-b", 1, "change")
    assert opened.text("remark") == "A and B weigh by the same rule, SFT: what differs comes from the models."
    choose(opened, "dft", of="b")
    assert opened.text("remark") == ""


# ---- the histogram is the control


def test_a_handle_reaches_round_numbers_by_hand(opened) -> None:
    opened.put("margin", 3, "change")
    x, y = grip(opened, "margin")
    pointer(opened, "mousePressed", x, y)
    seen = set()
    for step in range(45):  # pixel by pixel to the left
        pointer(opened, "mouseMoved", x - step, y)
        seen.add(opened.value("margin"))
    pointer(opened, "mouseReleased", x - 44, y)
    assert {"2.5", "2", "1.5"} <= seen
    x, y = grip(opened, "bandwidth")
    pointer(opened, "mousePressed", x, y)
    widths = set()
    for step in range(12):
        pointer(opened, "mouseMoved", x + step, y)
        widths.add(opened.value("bandwidth"))
    pointer(opened, "mouseReleased", x + 11, y)
    assert {"1", "1.5"} <= widths


@pytest.mark.parametrize(("letter", "suffix"), [("A", ""), ("B", "-b")])
def test_handles_are_moved_by_keys(opened, letter, suffix) -> None:
    choose(opened, "trim", of="b")
    opened.put(f"margin{suffix}", 1.4, "change")
    opened.run(f"document.querySelector('#histogram{suffix} [data-moves=margin-{letter}]').focus()")
    opened.press("ArrowRight", "ArrowRight")
    assert opened.value(f"margin{suffix}") == "1.5"
    opened.press("PageUp", "ArrowLeft")
    assert opened.value(f"margin{suffix}") == "1.95"
    opened.run(f"document.querySelector('#histogram{suffix} [data-moves=bandwidth-{letter}]').focus()")
    opened.press("ArrowDown")
    assert opened.value(f"bandwidth{suffix}") == "0.75"
    assert opened.run("return document.activeElement.getAttribute('aria-valuenow')") == "0.75"
    assert letter == "A" or opened.value("margin") == "1.5"  # B's handles move B


def test_gaps_that_are_dragged_over_are_found(opened, table) -> None:
    opened.run("document.getElementById('viewer').scrollIntoView({behavior: 'instant'})")
    left, _, right, bottom = opened.box("#histogram .paper-of")
    y = bottom - 8  # below the handles
    for kind, share in (("mousePressed", 0.5), ("mouseMoved", 0.6), ("mouseMoved", 0.7), ("mouseReleased", 0.7)):
        pointer(opened, kind, left + share * (right - left), y)
    low, high = float(opened.value("gap-low")), float(opened.value("gap-high"))
    assert low < high
    fits = int(((table["gap"] >= low) & (table["gap"] <= high)).sum())
    assert abs(int(opened.text("found").split()[0].replace(",", "")) - fits) <= 1 and fits > 10
    pointer(opened, "mousePressed", left + 5, y)
    pointer(opened, "mouseReleased", left + 5, y)
    assert opened.value("gap-low") == "" and opened.run("return document.querySelectorAll('.dim').length") == 0


def test_a_category_or_region_that_is_clicked_is_found(opened, table) -> None:
    press = "[...document.querySelectorAll('#bars button')].find(b => arguments[0] === (b.textContent || b.title)"
    press += " || b.title.includes(arguments[0])).click()"
    opened.run(press, "numeric")
    assert opened.value("category") == "0"
    assert opened.text("found").startswith(f"{int((table['category'] == 0).sum())} of")
    opened.run(press, "numeric")  # once more forgets it
    assert opened.value("category") == ""
    opened.run(press, "below the band")
    below = int((table["gap"] <= 0.7).sum())
    assert abs(int(opened.text("found").split()[0].replace(",", "")) - below) <= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_histogram_can_be_read(browser, two_tables, scheme) -> None:
    browser.scheme(scheme)
    view(browser, two_tables)
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    fills = (
        "return ['.all', '.kept', '.disc-A'].map(s => getComputedStyle(document.querySelector(`#histogram ${s}`)).fill)"
    )
    assert min(contrast(fill, paper) for fill in browser.run(fills)) >= 3
    left, _, right, _ = browser.box("#histogram svg")
    ends = browser.run(
        "return [...document.querySelectorAll('#histogram text')].map(t => t.getBoundingClientRect())"
        ".flatMap(b => [b.left, b.right])"
    )
    assert min(ends) >= left and max(ends) <= right
    assert "dark" not in browser.text("control")


# ---- guided


def test_chips_count_what_there_is_and_lead_to_it(opened, table, two_tables) -> None:
    counts = "return Object.fromEntries([...document.querySelectorAll('.chip')].map(c => [c.dataset.target,"
    counts += " c.querySelector('b').textContent]))"
    shown = opened.run(counts)
    errors = -table["gap"] >= 4 * (1 + table["entropy"])
    exact = {"errors": errors.sum(), "band": (np.abs(table["gap"] - 1.5) <= 0.8).sum()}
    exact["mastered"] = (table["gap"] > 2.3).sum()
    exact["format"] = sum(text in (".\n", "<0xE2>") for text in table.texts["text"])
    assert shown == {name: f"{count:,}" if count else "none" for name, count in exact.items()}
    chip(opened, "format")
    seen = opened.run("return document.querySelector('#pane [aria-current]').textContent")
    assert seen in (".↵\n", "<0xE2>")
    assert opened.run("return document.activeElement.dataset.target") == "format"  # and goes on from there
    opened.press("ArrowLeft")
    assert opened.run("return document.activeElement.dataset.target") == "mastered"
    opened.put("margin", 300, "change")
    assert opened.run(counts)["mastered"] == "none"
    chip(opened, "mastered")
    assert opened.run("return document.querySelector('.chip[aria-current]').dataset.target") == "format"


def test_the_news_of_auto_trim_are_what_it_has_learned(browser, two_tables, tmp_path, table) -> None:
    make_telemetry(tmp_path / "auto", "auto-trim", gate=[1.0, 0.0], exponent=[1.0, 1.0])
    (tmp_path / "auto" / "tokens.parquet").write_bytes((two_tables.parent / "after.parquet").read_bytes())
    runs = {"Base": two_tables.parent / "base.parquet", "AutoTrim": tmp_path / "auto"}
    view(browser, write_report(tmp_path / "report.html", runs, title="News"))
    after = read_token_table(two_tables.parent / "after.parquet", examples=range(30))
    news = int(((table["gap"] < 0) & (after["gap"] > 0)).sum())
    chip(browser, "news")
    wait(lambda: browser.text("found").startswith(f"{news} of"))


# ---- keys and voices


def test_letters_are_keys_inside_the_viewer_alone(opened) -> None:
    opened.run("document.activeElement.blur()")
    opened.press("4", "b")
    assert opened.run("return document.querySelector('#setting-b input:checked').value") == ""
    opened.run("document.querySelector('.t').focus()")
    opened.press("b")
    assert opened.run("return document.querySelector('#setting-b input:checked').value") == "trim"


def test_a_token_says_its_gap_and_weight(opened, table) -> None:
    opened.run("document.querySelectorAll('.t')[4].focus()")
    said = opened.run("const t = document.activeElement; return [t.role, t.ariaLabel, t.parentNode.role]")
    assert said[0] == "option" and said[2] == "listbox"
    gap, weight = map(float, re.fullmatch(r"\S+; A: gap (\S+), weight (\S+)", said[1]).groups())
    # two and three digits are said; a gap is rounded to 1/1024 before that
    assert gap == pytest.approx(float(table["gap"][4]), abs=6e-3)
    assert weight == pytest.approx(np.exp(-((table["gap"][4] - 1.5) ** 2) / (2 * 0.8**2)), abs=1.1e-3)
    opened.put("query", "thus")
    opened.run("document.getElementById('query').focus()")
    opened.press("Enter")  # the focus stays, so it is said elsewhere
    assert opened.text("heard").startswith("·thus; A: gap ")


def test_the_texts_are_a_few_stops_away(opened) -> None:
    before = opened.run(
        "const stops = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex]')].filter("
        "e => e.tabIndex >= 0 && !e.disabled && e.checkVisibility({visibilityProperty: true}));"
        "const groups = new Set(); const kept = stops.filter(e => e.type !== 'radio' || (!groups.has(e.name)"
        " && groups.add(e.name)));"
        "return kept.findIndex(e => e.token !== undefined) - kept.indexOf(document.getElementById('to-texts'))"
    )
    assert before <= 16
    opened.click("to-texts")
    assert opened.run("return document.activeElement.token") == 0


# ---- types of tokens; an example as an image


def types(browser: Browser) -> list[list[str]]:
    return browser.run(
        "return [...document.querySelectorAll('#types tbody tr')].map(r => [...r.children].map(c => c.textContent))"
    )


def test_token_types_are_listed_by_their_share_of_the_gradient(opened, table) -> None:
    choose(opened, "sft", of="b")
    texts = np.array(table.texts["text"])
    norm, trim = table["gradient_norm"], weights_of(objective_of("trim"), table)
    exact = {
        text.replace(" ", "·").replace("\n", "↵"): [
            int((texts == text).sum()),
            *(100 * (norm * w)[texts == text].sum() / (norm * w).sum() for w in (trim, np.ones(len(texts)))),
        ]
        for text in set(texts)
    }
    wait(lambda: len(types(opened)[0]) == 4)
    rows = types(opened)
    assert {row[0] for row in rows} == set(exact)
    for name, count, *shares in rows:
        assert int(count.replace(",", "")) == exact[name][0]
        # half of the last digit shown; norms are kept in 255 steps, which is up to a thousandth of each
        assert [float(share) for share in shares] == pytest.approx(exact[name][1:], rel=1e-3, abs=6e-3)
    assert [float(row[2]) for row in rows] == sorted((float(row[2]) for row in rows), reverse=True)
    opened.run("document.querySelector('[data-sort=B]').click()")
    assert [float(row[3]) for row in types(opened)] == sorted((float(row[3]) for row in rows), reverse=True)
    sorting = "return [...document.querySelectorAll('#types th[aria-sort]')].map(h => [h.textContent, h.ariaSort])"
    assert opened.run(sorting) == [["B (%)", "descending"]]
    opened.run("document.querySelector('[data-sort=B]').click()")
    assert opened.run(sorting) == [["B (%)", "ascending"]]
    name, count, *_ = types(opened)[0]
    opened.run("document.querySelector('#types tbody button').click()")
    assert opened.text("found").startswith(f"{count} of")
    wait(lambda: name in opened.run("return document.querySelector('.hit')?.textContent ?? ''").replace("\n", ""))


def test_an_example_is_copied_as_an_image_or_saved(opened) -> None:
    opened.run("navigator.clipboard.write = async ([item]) => { window.copied = await item.getType('image/png') }")
    opened.run("document.querySelectorAll('.copy')[1].click()")
    wait(lambda: "Example 2 is in the clipboard" in opened.text("said"))
    found = opened.run(
        "return createImageBitmap(copied).then(b => {"
        "const c = new OffscreenCanvas(b.width, b.height).getContext('2d'); c.drawImage(b, 0, 0);"
        "const data = c.getImageData(0, 0, b.width, b.height).data; const seen = new Set();"
        "for (let i = 0; i < data.length; i += 4) seen.add(`rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`);"
        "const tokens = document.querySelectorAll('.example')[1].querySelectorAll('.row-A .t');"
        "const grounds = new Set([...tokens].map(t => getComputedStyle(t).backgroundColor));"
        "const scale = document.querySelectorAll('#scale li[class^=d]');"
        "const colours = [...scale].map(l => getComputedStyle(l).backgroundColor);"
        "return [b.width, b.height, [...grounds, ...colours].every(g => seen.has(g)), grounds.size] })"
    )
    assert found[0] > 800 and found[1] > 300 and found[2] is True and found[3] > 3
    opened.run("navigator.clipboard.write = () => Promise.reject(new Error('no'))")
    opened.run(
        "URL.createObjectURL = (blob) => { window.saved = blob.type; return 'blob:kept' };"
        "HTMLAnchorElement.prototype.click = function () { window.savedName = this.download };"
    )
    opened.run("document.querySelector('.t').focus()")
    opened.press("i")
    wait(lambda: "Saved as example-1.png" in opened.text("said"))
    assert opened.run("return [saved, savedName]") == ["image/png", "example-1.png"]
    assert opened.console() == []
