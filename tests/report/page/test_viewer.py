"""The token viewer in a real browser: figures, colours, one token, keys, finding tokens and taking them away."""

import csv
import re
from itertools import product
from urllib.parse import quote

import numpy as np
import pytest

from tests.report.page.browser import Browser, wait
from tests.report.page.pages import choose, contrast, figures, settle, view
from tests.tokens.tiny import make_table
from trimsft.objectives import PAPER_OBJECTIVES
from trimsft.report.course import ENDED, Moment
from trimsft.report.page.build import write_report
from trimsft.report.story import level_of
from trimsft.tokens.statistics.weighting import diagnose, objective_of, weights_of
from trimsft.tokens.table import read_token_table

CURRENT = "return document.querySelector('#pane [aria-current]')?.token ?? null"


def target(browser: Browser, name: str) -> int:
    """How many tokens of a kind there are to go to."""
    text = browser.run("return document.querySelector(`#target [value=${arguments[0]}]`).textContent", name)
    return int(re.search(r"\(([\d,]+)\)", text)[1].replace(",", ""))


def expected(table, objective, **band: float) -> list[float]:
    found = diagnose(table, objective, **band)
    mass = found.mass_percent
    return [found.mean_weight, found.effective_ratio, found.high_weight_percent, mass.low, mass.middle, mass.high]


def assert_figures(browser: Browser, exact: list[float], about: object) -> None:
    """Hold the figures to half of the last digit shown, and a thousandth for norms, which are kept in 255 steps."""
    for column, (shown, figure) in enumerate(zip(figures(browser), exact, strict=True)):
        assert shown == pytest.approx(figure, abs=6e-5 if column < 2 else 4e-2), (about, column)


# ---- figures and colours


def test_the_figures_are_those_of_the_statistics(opened, table) -> None:
    for method, (margin, bandwidth) in product((*PAPER_OBJECTIVES, "auto-trim"), [(-2.0, 3.1), (4.35, 0.25)]):
        settle(opened, method, margin, bandwidth)
        values = {"margin": margin, "bandwidth": bandwidth}
        objective = ENDED if method == "auto-trim" else objective_of(method, values)
        assert_figures(opened, expected(table, objective, **values), (method, margin))
    assert opened.console() == []


def test_gate_and_exponent_follow_the_training(browser, trained, table) -> None:
    view(browser, trained)
    hidden = "return document.getElementById('moments').hidden"
    assert browser.run(hidden) is True  # no other method has moments
    choose(browser, "auto-trim")
    assert browser.run(hidden) is False and browser.text("moment-is") == "4: x 0.00, a 2.50"
    moments = [Moment(1, 1.0, 1.0), Moment(2, 0.7, 1.0), Moment(3, 0.2, 1.5), Moment(4, 0.0, 2.5)]
    for place, moment in enumerate(moments):
        browser.put("moment", place)
        assert_figures(browser, expected(table, moment, margin=1.5, bandwidth=0.8), moment)
    browser.put("moment", 2)
    assert browser.text("yaml") == "objective: auto-trim"
    wait(lambda: "t.moment=2" in browser.run("return location.hash"))
    view(browser, trained, browser.run("return location.hash.slice(1)"))
    assert browser.text("moment-is") == "3: x 0.20, a 1.50"


def test_categories_share_tokens_and_gradient(opened, table) -> None:
    mass = weights_of(objective_of("trim"), table) * table["gradient_norm"]
    rows = opened.run(
        "return [...document.querySelectorAll('#kinds tbody tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    assert [row[0] for row in rows] == ["numeric", "symbol", "connector", "other"]
    for kind, (_, tokens, share) in enumerate(rows):  # shown with one digit
        there = table["category"] == kind
        assert float(tokens) == pytest.approx(100 * there.mean(), abs=0.06)
        assert float(share) == pytest.approx(100 * mass[there].sum() / mass.sum(), abs=0.1)


def test_tokens_are_coloured_by_their_gradient(opened, table, two_tables) -> None:
    other = read_token_table(two_tables.parent / "after.parquet")
    script = "return [...document.querySelector('.completion').children].map(t => t.className)"
    for run, of_run, margin in ((0, table, 0.5), (1, other, 2.5)):
        opened.put("model", run, "change")
        settle(opened, "trim-h", margin, 0.8)
        gradient = weights_of(objective_of("trim-h", {"margin": margin}), of_run) * of_run["gradient_norm"]
        seen = opened.run(script)
        levels = [f"t lit l{level_of(float(value))}" for value in gradient[: len(seen)]]
        assert len(set(levels)) > 3
        # rounding gaps to 1/1024 and norms to 1/255 may move one value over an edge
        assert sum(a != b for a, b in zip(seen, levels, strict=True)) <= 1


def test_only_what_is_near_has_spans(browser, large) -> None:
    view(browser, large)
    assert browser.run("return document.querySelectorAll('.example').length") == 200
    drawn = "return [...document.querySelectorAll('.example')].flatMap((e, n) => e.querySelector('.t') ? [n] : [])"
    assert 0 < len(browser.run(drawn)) <= 20
    browser.run("const p = document.getElementById('pane'); p.scrollTop = p.scrollHeight / 2")
    wait(lambda: min(browser.run(drawn), default=0) > 50)
    assert len(browser.run(drawn)) <= 20


# ---- one token


def test_a_line_break_is_a_sign_and_a_dot_no_space(browser, tmp_path) -> None:
    texts = [["a", "\n\n", " ·", "2·3", "↵", "\u0301", "b"]]
    tokens = make_table(tmp_path / "tokens.parquet", texts)
    view(browser, write_report(tmp_path / "report.html", {"Base": tokens}, title="Signs"))
    shown = browser.run("return [...document.querySelectorAll('.t')].map(t => t.textContent)")
    assert shown == ["a", "↵\n↵\n", "·⟨U+00B7⟩", "2⟨U+00B7⟩3", "⟨U+21B5⟩", "◌\u0301", "b"]
    browser.run("document.querySelectorAll('.t')[1].focus()")
    assert browser.run("return document.querySelector('#card code').textContent") == "↵↵"
    for query, count in (("·", 2), (" ", 1), ("\n\n", 1)):
        view(browser, tmp_path / "report.html", f"t.find={quote(query)}")
        assert target(browser, "matches") == count, query


def test_a_card_and_a_voice_say_what_is_known(opened, table) -> None:
    opened.run("document.querySelectorAll('.t')[4].focus()")
    rows = opened.run(
        "return Object.fromEntries([...document.querySelectorAll('#card tr')].map(r => [r.children[0].textContent,"
        " r.children[1].textContent]))"
    )
    weights = weights_of(objective_of("trim"), table)
    share = weights * table["gradient_norm"] / (weights * table["gradient_norm"]).sum()
    assert float(rows["gap"]) == pytest.approx(float(table["gap"][4]), abs=6e-3)
    assert float(rows["weight"]) == pytest.approx(float(weights[4]), abs=1.1e-3)

    def percent(text: str) -> float:
        return float(text.removesuffix(" %")) * (1 if "%" in text else 100)

    assert percent(rows["probability"]) == pytest.approx(100 * np.exp(-table["nll"][4]), abs=0.06)
    assert percent(rows["share of the gradient"]) == pytest.approx(100 * share[4], rel=0.2, abs=0.06)
    said = opened.run("const t = document.activeElement; return [t.role, t.ariaLabel, t.parentNode.role]")
    assert said[0] == "option" and said[2] == "listbox"
    assert re.fullmatch(rf"\S+; gap {re.escape(rows['gap'])}, weight {rows['weight']}", said[1])


def test_the_card_stands_beside_its_token(browser, large) -> None:
    browser.size(1280)
    view(browser, large)
    browser.run("document.getElementById('viewer').scrollIntoView({behavior: 'instant'})")
    left, top, right, bottom = browser.box("#pane .t")
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=(left + right) / 2, y=(top + bottom) / 2)
    wait(lambda: not browser.run("return document.getElementById('card').hidden"))
    card = browser.box("#card")
    assert card[1] >= bottom or card[3] <= top  # below or above, never over it
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    wait(lambda: browser.run("return document.getElementById('card').hidden"))


# ---- keys


def test_all_of_it_by_keyboard(opened) -> None:
    opened.run("document.activeElement.blur()")
    opened.press("4", "]")
    assert opened.value("margin") == "1.5"  # outside of the viewer letters are no keys
    opened.run("document.querySelector('.t').focus()")
    opened.press("4", "]", "]", "}")
    assert opened.value("margin") == "1.7" and opened.value("bandwidth") == "0.9"
    opened.press("5")
    assert opened.text("yaml") == "objective: trim-e\nmargin: 1.7\nbandwidth: 0.9"
    opened.press("?")
    assert opened.run("return document.getElementById('help').open") is True
    opened.run("document.getElementById('help').close(); document.querySelector('.t').focus()")
    opened.press("/")
    assert opened.run("return document.activeElement.id") == "query"
    opened.press("4")  # typed, not obeyed
    assert opened.text("yaml").startswith("objective: trim-e")


def test_arrows_walk(opened) -> None:
    at = "return document.activeElement.token"
    opened.click("to-texts")
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


def test_a_handle_reaches_round_numbers_by_hand(opened) -> None:
    opened.put("margin", 3, "change")
    opened.run("document.getElementById('viewer').scrollIntoView({behavior: 'instant'})")
    for name, steps, wanted in (("margin", range(0, -45, -1), {"2.5", "2", "1.5"}), ("bandwidth", range(12), {"1"})):
        left, top, right, bottom = opened.box(f".handle[data-moves='{name}'] .reach")
        x, y = (left + right) / 2, (top + bottom) / 2
        opened.command("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        seen = set()
        for step in steps:  # pixel by pixel
            opened.command("Input.dispatchMouseEvent", type="mouseMoved", x=x + step, y=y, button="left", buttons=1)
            seen.add(opened.value(name))
        opened.command("Input.dispatchMouseEvent", type="mouseReleased", x=x + steps[-1], y=y, button="left")
        assert wanted <= seen, name


def test_handles_are_moved_by_keys(opened) -> None:
    opened.put("margin", 1.4, "change")
    opened.run("document.querySelector('[data-moves=margin]').focus()")
    opened.press("ArrowRight", "ArrowRight", "PageUp", "ArrowLeft")
    assert opened.value("margin") == "1.95"
    opened.run("document.querySelector('[data-moves=bandwidth]').focus()")
    opened.press("ArrowDown")
    assert opened.value("bandwidth") == "0.75"
    assert opened.run("return document.activeElement.getAttribute('aria-valuenow')") == "0.75"
    choose(opened, "sft")  # has neither
    assert opened.run("return [...document.querySelectorAll('.handle')].every(h => h.hasAttribute('hidden'))")
    assert opened.run("return ['margin', 'bandwidth'].every(id => document.getElementById(id).disabled)")


def test_what_is_no_setting_is_refused(opened) -> None:
    opened.put("bandwidth", 0, "change")
    assert opened.text("remark").startswith("bandwidth must be a number from 0.001 to 1000, got 0: it is 0.001 now.")
    opened.put("margin", "", "change")
    assert opened.text("remark").startswith("margin must be a number from -1000 to 1000, got none")
    opened.put("bandwidth", 2, "change")
    assert opened.text("remark") == "" and opened.run("return document.getElementById('remark').hidden")


# ---- finding


def test_text_is_found_across_tokens_whatever_the_case(opened, table) -> None:
    joined = [
        "".join(t for t, e in zip(table.texts["text"], table["example"], strict=True) if e == n) for n in range(30)
    ]
    opened.put("query", "SUM IS")
    count = sum(text.lower().count("sum is") for text in joined)
    assert count > 3 and target(opened, "matches") == count
    hidden = opened.run("return [...document.querySelectorAll('.example')].map(e => e.hidden)")
    assert hidden == ["sum is" not in text.lower() for text in joined]
    opened.run("document.getElementById('query').focus()")
    opened.press("Enter")
    current = "return document.querySelector('#pane [aria-current]')"
    assert opened.run(f"{current}.textContent") == "·sum" and "hit" in opened.run(f"{current}.className")
    assert opened.text("heard").startswith("·sum; gap ")  # the focus stays, so it is said elsewhere
    seen = [opened.run(CURRENT)]
    for _ in range(3):
        opened.press("Enter")
        seen.append(opened.run(CURRENT))
    assert seen == sorted(set(seen)) and opened.run("return document.activeElement.id") == "query"
    look = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    assert contrast(opened.run(look, ".dim", "color"), opened.run(look, "body", "backgroundColor")) >= 4.5
    opened.press("Escape")
    assert opened.run("return document.querySelectorAll('.dim, .hit, .example[hidden]').length") == 0
    opened.put("query", ".*(")
    assert target(opened, "matches") == 0 and not opened.run("return document.getElementById('nothing').hidden")


def test_next_goes_from_one_target_to_the_next(opened, table) -> None:
    errors = -table["gap"] >= 4 * (1 + table["entropy"])
    assert target(opened, "errors") == errors.sum()
    band = np.flatnonzero(np.abs(table["gap"] - 1.5) <= 0.8).tolist()
    assert target(opened, "band") == len(band)
    opened.put("target", "band", "change")
    seen = [opened.run(CURRENT)]
    opened.run("document.querySelector('#pane [aria-current]').focus()")
    for _ in range(11):
        opened.press("n")
        seen.append(opened.run("return document.activeElement.token"))
    assert seen == band[:12]
    opened.press("p")
    assert opened.run("return document.activeElement.token") == band[10]


# ---- taking it away


def test_the_address_restores_everything(opened, two_tables) -> None:
    settle(opened, "trim-e", 2.25, 1.35)
    opened.put("model", 1, "change")
    opened.put("query", "thus & =")
    opened.run("history.replaceState(null, '', '#e.a=SFT')")
    opened.put("query", "thus")
    fourth = "document.querySelectorAll('.example:not([hidden]) .t')[3]"
    wait(lambda: opened.run(f"return {fourth} !== undefined"))  # examples are drawn when they come into view
    opened.run(f"{fourth}.focus()")
    wait(lambda: "t.at=" in opened.run("return location.hash"))
    link = opened.run("return location.hash")
    assert "e.a=SFT" in link  # another room's
    state = (
        "const v = id => document.getElementById(id).value; return [v('margin'), v('bandwidth'), v('model'),"
        " v('query'),"
        " document.querySelector('#bar input:checked').value, document.activeElement.token,"
        " document.getElementById('figures').textContent]"
    )
    before = opened.run(state)
    assert before[:5] == ["2.25", "1.35", "1", "thus", "trim-e"]
    view(opened, two_tables, link[1:])
    assert opened.run(state) == before


def test_configuration_and_command_are_copied_or_selected(opened) -> None:
    settle(opened, "trim", 2, 1)
    assert opened.text("yaml") == "objective: trim\nmargin: 2\nbandwidth: 1"
    train = "trimsft train --model_name_or_path m --dataset_name DATA.jsonl"
    assert opened.text("command") == f"{train} --objective trim --margin 2 --bandwidth 1"
    opened.run("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    opened.run("document.querySelector('[data-copy=command]').click()")
    wait(lambda: opened.text("said") == "Copied.")
    assert opened.run("return copied") == opened.text("command")
    opened.run("navigator.clipboard.writeText = () => Promise.reject(new Error('no'))")
    opened.run("document.getElementById('use').open = true; document.querySelector('[data-copy=yaml]').click()")
    wait(lambda: "Ctrl+C" in opened.text("said"))
    assert opened.run("return getSelection().toString()") == opened.text("yaml")
    settle(opened, {}, "x", -1)  # what is no setting changes nothing, or as little as it can
    assert opened.text("yaml") == "objective: trim\nmargin: 2\nbandwidth: 0.001" and opened.text("said") == ""
    choose(opened, "fsft")
    assert opened.text("yaml") == "objective: fsft\ngamma: 2"


@pytest.mark.parametrize(
    ("model", "word"), [("org/name-1.5B", "org/name-1.5B"), ("a b'; rm x", "'a b'\\''; rm x'"), ("", "MODEL")]
)
def test_the_command_names_the_model_as_one_word(browser, two_tables, tmp_path, model, word) -> None:
    text = two_tables.read_text(encoding="utf-8")
    assert text.count('"model":"m"') == 1
    (tmp_path / "report.html").write_text(text.replace('"model":"m"', f'"model":"{model}"'), encoding="utf-8")
    view(browser, tmp_path / "report.html")
    assert browser.text("command").startswith(f"trimsft train --model_name_or_path {word} --dataset_name DATA.jsonl ")


def test_exports_hold_what_is_shown(opened, table, tmp_path) -> None:
    opened.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    opened.put("query", " thus")
    for name in ("csv-tokens", "svg"):
        opened.click(name)
    wait(lambda: {path.name for path in tmp_path.iterdir()} == {"tokens.csv", "gaps.svg"})
    with (tmp_path / "tokens.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    fits = [place for place, text in enumerate(table.texts["text"]) if text == " thus"]
    assert [int(row["token_id"]) for row in rows] == table["token_id"][fits].tolist()
    assert {row["text"] for row in rows} == {" thus"}
    exact = weights_of(objective_of("trim"), table)[fits]
    assert [float(row["weight"]) for row in rows] == pytest.approx(exact.tolist(), abs=1e-3)
    drawn = (tmp_path / "gaps.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml") and 'fill="rgb(' in drawn and "class=" not in drawn


def test_an_example_is_copied_as_an_image_or_saved(opened) -> None:
    opened.run("navigator.clipboard.write = async ([item]) => { window.copied = await item.getType('image/png') }")
    opened.run("document.querySelectorAll('.copy')[1].click()")
    wait(lambda: "Example 2 is in the clipboard" in opened.text("said"))
    found = opened.run(
        "return createImageBitmap(copied).then(b => {"
        "const c = new OffscreenCanvas(b.width, b.height).getContext('2d'); c.drawImage(b, 0, 0);"
        "const data = c.getImageData(0, 0, b.width, b.height).data; const seen = new Set();"
        "for (let i = 0; i < data.length; i += 4) seen.add(`${data[i]} ${data[i + 1]} ${data[i + 2]}`);"
        "return [b.width, b.height, seen.size] })"
    )
    assert found[0] > 800 and found[1] > 200 and found[2] > 20
    opened.run("navigator.clipboard.write = () => Promise.reject(new Error('no'))")
    opened.run(
        "URL.createObjectURL = (blob) => { window.saved = blob.type; return 'blob:kept' };"
        "HTMLAnchorElement.prototype.click = function () { window.savedName = this.download };"
    )
    opened.run("document.querySelector('.t').focus()")
    opened.press("i")
    wait(lambda: "Saved as example-1.png" in opened.text("said"))
    assert opened.run("return [saved, savedName]") == ["image/png", "example-1.png"]
