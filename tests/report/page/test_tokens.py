"""The tab Tokens in a real browser: headline, example, the figure that is the control, keys, copying, windows."""

import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.page.browser import Browser, wait
from tests.report.page.conftest import WRONG
from tests.report.page.pages import (
    HIDDEN,
    HOSTILE,
    HOSTILE_TEXTS,
    Page,
    make_evaluated,
    make_telemetry,
    report_of,
    texts,
    view,
)
from tests.tokens.tiny import make_table
from trimsft.objectives import TrimSFT, display_name, make_objective
from trimsft.report.page.tokens import COMPUTED
from trimsft.tokens.statistics import weights_of
from trimsft.tokens.table import SCHEMA, read_token_table


@pytest.fixture
def opened(browser, page) -> Browser:
    return view(browser, page)


# percent of the gradient by bin, from the bars of one colour; what explains the colours stands below them
BARS = """
const shares = new Array(48).fill(0);
for (const bar of document.querySelectorAll(`#gradient rect.${arguments[0]}`)) {
  const [x, y, height] = ["x", "y", "height"].map(name => Number(bar.getAttribute(name)));
  if (y !== 180) shares[Math.floor((x - 8) / 8)] = height;
}
const sum = shares.reduce((a, b) => a + b);
return shares.map(share => 100 * share / sum);
"""


def headline(browser: Browser) -> str:
    return browser.text("headline")


def drag(browser: Browser, name: str, by: float) -> None:
    """Draw a handle to the side by so many pixels."""
    left, top, right, bottom = browser.box(f"[aria-label={name}]")
    x, y = (left + right) / 2, (top + bottom) / 2
    for kind, at, buttons in (("mousePressed", x, 1), ("mouseMoved", x + by, 1), ("mouseReleased", x + by, 0)):
        browser.command("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=buttons, clickCount=1)


# ---- what it says


def test_headline_follows_the_handles(opened, three) -> None:
    table = read_token_table(three["Base"] / "tokens.parquet")
    wrong = np.isin(np.arange(len(table)), [7, 14 + 10])

    def share(weights) -> float:
        mass = weights * table["gradient_norm"]
        return 100 * mass[wrong].sum() / mass.sum()

    sft, usual = share(np.ones(len(table))), share(weights_of(TrimSFT(), table))
    assert sft > 10 and usual < 0.1
    start = f"2 of 3 steps in these examples are wrong. SFT spends {sft:.0f} % of its gradient on them; TrimSFT spends"
    assert headline(opened) == f"{start} almost none."
    assert texts(opened, ".spent b") == [f"{sft:.0f} %", "< 0.1 %"]
    opened.run("document.querySelector('[aria-label=margin]').focus()")
    for _ in range(7):
        opened.press("PageDown")
    opened.press("ArrowLeft")
    low = share(weights_of(TrimSFT(margin=-5.6), table))
    assert low > 10 and headline(opened) == f"{start} {low:.0f} %."
    assert opened.text("setting-is") == "margin m -5.6, bandwidth τ 0.8"
    assert opened.run("return document.activeElement.getAttribute('aria-valuenow')") == "-5.6"
    drag(opened, "bandwidth", 60)
    wait(lambda: opened.text("setting-is") != "margin m -5.6, bandwidth τ 0.8")
    width = float(opened.text("setting-is").split()[-1])
    assert width > 2
    wide = share(weights_of(TrimSFT(margin=-5.6, bandwidth=width), table))
    assert headline(opened) == f"{start} {wide:.0f} %."


def test_shares_and_bars_of_every_method(browser, tmp_path) -> None:
    """Data weights count, too; p-threshold is weighed in Python, the others by the script."""
    path = make_table(tmp_path / "t.parquet", WRONG * 40, gap=np.random.default_rng(0).normal(2, 4, 26 * 40))
    content = pq.read_table(path)
    data_weights = np.random.default_rng(1).uniform(0, 2, content.num_rows).astype(np.float32)
    content = content.drop_columns("data_weight").append_column("data_weight", pa.array(data_weights))
    pq.write_table(content.select(SCHEMA.names).replace_schema_metadata(content.schema.metadata), path)
    table, names = read_token_table(path), ("sft", *COMPUTED[1:], "p-threshold")
    made = report_of(tmp_path, {"Base": path}, objectives=names)
    view(browser, made)
    data = Page(made).data["tokens"]
    first = 14 * (np.arange(80) % 2) + 26 * (np.arange(80) // 2)
    wrong = [first[place] + at for place, begin, end, *_ in data["wrong"] for at in range(begin, end + 1)]
    edges = np.sinh(np.linspace(*np.arcsinh(data["range"]), 49))
    edges[[0, -1]] = -np.inf, np.inf
    for name in names[1:]:
        label = display_name(name)
        browser.click(f"#methods input[value='{label}']")
        masses = [weights_of(make_objective(one), table) * table["gradient_norm"] for one in ("sft", name)]
        pattern = r"80 of 120 .*SFT spends (.*?) of its gradient on them; .* spends (.*?)\."
        for words, mass in zip(re.fullmatch(pattern, headline(browser)).groups(), masses, strict=True):
            share = 100 * mass[wrong].sum() / mass.sum()
            assert words == ("almost none" if share < 0.1 else f"{share:.1f} %" if share < 10 else f"{share:.0f} %")
        for colour, mass in zip(("grey", "blue"), masses, strict=True):
            shares = 100 * np.histogram(table["gap"], edges, weights=mass)[0] / mass.sum()
            np.testing.assert_allclose(browser.run(BARS, colour), shares, atol=0.02)


def test_outcome_and_scores(opened) -> None:
    said = "After training on such data, 38 % of SFT's sampled answers are right and 56 % of TrimSFT's, which do not "
    assert opened.text("outcome") == f"{said}differ clearly. Greedy answers do not differ clearly: 50 and 100 %."
    assert texts(opened, "#scored g") == ["Base38", "SFT38", "TrimSFT56"]


def test_examples_and_their_wrong_steps(opened) -> None:
    assert opened.text("question") == "Example 1: 3 times 8?" and opened.text("place") == "wrong step 1 of 2"
    rows = texts(opened, ".row .text")
    assert rows == ["Step 1: 3 * 8 = 8 should be 24. So it is 8.", "Step 1: 3 * 8 = 8. So it is 8."]
    assert texts(opened, ".t.bad") == ["8", "8"]
    shares = "return [...document.querySelectorAll('.t.bad')].map(t => parseFloat(t.style.getPropertyValue('--share')))"
    first, second = opened.run(shares)
    assert first > 50 and second < 1
    opened.click("#next")
    assert opened.text("question") == "Example 2: And?" and "= 9 should be 8." in texts(opened, ".row .text")[0]
    opened.click("#next")
    assert opened.text("place") == "wrong step 1 of 2"
    opened.click("#all")
    assert texts(opened, "#list button") == ["1", "2"]
    said = "tells them apart: it doubts every wrong result (gap −6.0 or lower) and no right one (2.0 or higher)"  # noqa: RUF001
    assert said in opened.text("list")
    opened.run("document.querySelectorAll('#list button')[1].click()")
    assert opened.text("place") == "wrong step 2 of 2"


def test_headline_without_wrong_steps(browser, tmp_path) -> None:
    words = [["so ", "it ", "is ", "x"] * 30, ["a", "b", "c", "d"]]
    gap = np.where(np.arange(124) % 4 == 3, -2.0, 1.5)
    base = make_table(tmp_path / "base.parquet", words, gap=gap)
    view(browser, report_of(tmp_path, {"Base": base}))
    table = read_token_table(base)
    mass = table["gradient_norm"] * weights_of(TrimSFT(), table)
    sft, trim = (100 * one[gap < 0].sum() / one.sum() for one in (table["gradient_norm"], mass))
    said = f"SFT spends {sft:.0f} % of its gradient there, TrimSFT almost none."
    assert trim < 0.1
    assert headline(browser) == f"The model would have written 25 % of these tokens differently. {said}"
    assert browser.text("question") == "Example 1" and browser.text("place") == "example 1 of 2"
    assert len(texts(browser, ".row:first-child .t")) == 48
    browser.click(".text button")
    assert len(texts(browser, ".row:first-child .t")) == 120 and not texts(browser, ".t.bad")


def test_a_trained_model_alone(browser, tmp_path) -> None:
    run = make_telemetry(tmp_path / "mine", "trim", mean_token_accuracy=[0.76, 0.8, 0.815])
    make_table(run / "tokens.parquet", [["3", " * ", "8", " = ", "25"]], gap=[5, 5, 5, 5, -6])
    make_evaluated(run, "easy", {"e0": "1 1 1 2"})
    view(browser, report_of(tmp_path, {"mine": run}))
    said = "mine would at first have written 20.8 % of its training tokens differently, and 20.8 % in the end"
    assert headline(browser).startswith(said)
    assert browser.text("outcome") == "75 % of mine's sampled answers are right, and 100 % of its greedy ones."
    assert texts(browser, ".row b") == ["TrimSFT", "< 0.1 %"] and not texts(browser, "#methods label")[1:]


# ---- hands


def test_the_address_keeps_the_settings(browser, tmp_path, three) -> None:
    made = report_of(tmp_path, {"Base": three["Base"] / "tokens.parquet"})
    view(browser, made)
    browser.click("#methods input[value=AutoTrim]")
    assert "AutoTrim spends" in headline(browser) and browser.run("return document.querySelector('.knob')") is None
    browser.click("#methods input[value=TrimSFT]")
    browser.run("document.querySelector('[aria-label=bandwidth]').focus()")
    browser.press("ArrowUp")
    browser.click("#next")
    wait(lambda: browser.run("return location.hash") == "#tau=0.9&at=2")
    view(browser, made, "tau=0.9&at=2&m=-3")
    assert browser.text("setting-is") == "margin m -3, bandwidth τ 0.9" and browser.text("place") == "wrong step 2 of 2"
    view(browser, made, "method=DFT")
    assert "DFT spends" in headline(browser) and texts(browser, "label:has(:checked)") == ["DFT"]


def test_hostile_addresses_are_harmless(browser, page) -> None:
    for fragment in (
        "method=__proto__&m=NaN&tau=-1&at=1e9",
        "m=1e999&tau=0&at=~&tab=__proto__",
        "method=%3Cimg%20src=x%20onerror=window.attacked=1%3E&m=javascript:alert(1)&%E0%A4%A",
        "a=__proto__&only=constructor&problem=x&tab=answers",
        "m=1&" * 500,
    ):
        view(browser, page, fragment)
        assert browser.run("return window.attacked ?? null") is None
        assert "2 of 3 steps" in headline(browser)
        assert not texts(browser, "img") and browser.console() == [], fragment


def test_every_control_is_reached_by_keys(opened) -> None:
    reached = []
    for _ in range(12):
        opened.press("Tab")
        focus = "const e = document.activeElement; return e.id || e.ariaLabel || e.classList[0] || e.name"
        reached.append(opened.run(focus))
        if not reached[-1]:
            break
    assert reached[:6] == ["tab-tokens", "t", "next", "margin", "bandwidth", "command"] and len(reached) <= 8
    opened.run("document.querySelector('#toolbar [tabindex=\"0\"]').focus()")
    for name in ("all", "image", "previous", "next"):
        opened.press("ArrowRight")
        assert opened.run("return document.activeElement.id") == name


def test_handles_and_tokens_by_touch(opened) -> None:
    opened.command("Emulation.setTouchEmulationEnabled", enabled=True)

    def touch(selector: str, by: float = 0) -> None:
        left, top, right, bottom = opened.box(selector)
        x, y = (left + right) / 2, (top + bottom) / 2
        for kind, at in (("touchStart", x), ("touchMove", x + by), ("touchEnd", None)):
            points = [] if at is None else [{"x": at, "y": y}]
            opened.command("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    touch("[aria-label=margin]", by=-60)
    wait(lambda: opened.text("setting-is") != "margin m 1.5, bandwidth τ 0.8")
    assert float(opened.text("setting-is").split()[2].rstrip(",")) < 1 and "TrimSFT spends" in headline(opened)
    touch(".t.bad")
    wait(lambda: opened.text("card").startswith("“8”: the model gives it"))


def test_tabs_by_keys_and_by_links(opened, page) -> None:
    shown = "return [...document.querySelectorAll('main > section')].filter(s => !s.hidden).map(s => s.id)"
    assert opened.run(shown) == ["tokens"]
    opened.run("document.getElementById('tab-tokens').focus()")
    opened.press("ArrowRight")
    assert opened.run(shown) == ["scores"] and opened.run("return location.hash") == "#tab=scores"
    opened.press("End")
    assert opened.run(shown) == ["details"] and opened.run("return document.activeElement.ariaSelected") == "true"
    view(opened, page, "tab=answers&problem=easy/3")
    assert opened.run(shown) == ["answers"]


def test_the_command_is_copied_and_a_table_saved(opened) -> None:
    opened.run("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    opened.click("#command")
    command = "trimsft train --model_name_or_path m --dataset_name DATA.jsonl --objective trim"
    command += " --margin 1.5 --bandwidth 0.8"
    wait(lambda: opened.run("return window.copied ?? ''") == command)
    save = (
        "URL.createObjectURL = (blob) => { window.exported = blob; return 'blob:kept' };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.querySelector('[data-csv=\"average@4\"] button').click(); return exported.text()"
    )
    lines = opened.run(save).splitlines()
    assert lines[0].startswith("run,easy,easy low,easy high,easy significant,hard,") and lines[1].startswith("Base,0.5")


# ---- windows, colours, hostile text


@pytest.mark.skipif("AXE_CORE" not in os.environ, reason="AXE_CORE must name axe.min.js of the npm package axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_objection(browser, page, scheme) -> None:
    browser.scheme(scheme)
    for tab in ("tokens", "scores", "answers", "details"):
        view(browser, page, f"tab={tab}")
        browser.run(Path(os.environ["AXE_CORE"]).read_text(encoding="utf-8") + "; window.axe = axe")
        browser.run("axe.run().then(({ violations }) => { window.objections = violations.map(({ id }) => id) })")
        wait(lambda: browser.run("return window.objections ?? null") is not None)
        assert browser.run("return window.objections") == [], tab


@pytest.mark.parametrize("width", [390, 1400, 1920])
def test_nothing_is_wider_than_the_window(browser, page, width) -> None:
    browser.size(width)
    for tab in ("tokens", "scores", "answers", "details"):
        view(browser, page, f"tab={tab}")
        assert browser.run("return document.documentElement.scrollWidth") == width, tab


def test_hostile_text_in_a_browser(browser, tmp_path) -> None:
    runs = {"Base": tmp_path / "base", HOSTILE[0] + HOSTILE[1]: tmp_path / "odd"}
    for number, run in enumerate(runs.values()):
        make_evaluated(run, "easy", {HOSTILE[1]: "1 2", "b": "1 1" if number else "2 2"}, text=" ".join(HOSTILE))
        make_table(run / "tokens.parquet", [[*HOSTILE_TEXTS, " b", "\n"]] * 2, prompts=(" ".join(HOSTILE_TEXTS),) * 2)
    made = report_of(tmp_path, runs, title=HOSTILE[0], settings={HOSTILE[2]: HOSTILE[3]})
    view(browser, made)
    browser.run("for (const t of document.querySelectorAll('.t')) t.click(); document.getElementById('all').click()")
    for tab in ("answers", "details"):
        browser.click(f"#tab-{tab}")
    wait(lambda: browser.run("return document.documentElement.dataset.answers === 'ready'"))
    browser.run(
        "const show = document.querySelectorAll('#pair select')[2]; show.value = 'all';"
        "show.dispatchEvent(new Event('change'));"
        "for (const line of document.querySelectorAll('.problem')) line.click()"
    )
    assert browser.run("return document.title") == HOSTILE[0]
    assert browser.run("return document.querySelectorAll('img, iframe, object, embed, base, link').length") == 0
    assert browser.run("return document.querySelectorAll('script:not([type])').length") == 1
    assert texts(browser, ".t")[0] == HOSTILE[0]
    shown = browser.run("return document.body.textContent")
    assert len(texts(browser, ".answer")) > 3 and not set(shown) & HIDDEN and "⟨U+202E⟩" in shown
    assert [address for address in browser.requests() if not address.startswith("blob:")] == [made.as_uri()]


def test_the_policy_stops_scripts(browser, page) -> None:
    browser.open(page)
    browser.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=http://127.0.0.1/ onerror=\"window.attacked=1\">');"
        "const s = document.createElement('script'); s.textContent = 'window.attacked = 2'; document.body.append(s)"
    )
    said = " ".join(browser.console())
    assert "Content Security Policy" in said and "img-src" in said and "script-src" in said


def test_readable_without_script(browser, page) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page)
    shown = browser.run("return document.body.innerText")
    assert "average@4" in shown and "median gap" in shown and "need JavaScript" in shown
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
