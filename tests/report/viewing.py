"""The viewer for tests: a page of two made-up runs, and hands to use it with."""

import time
from pathlib import Path

import numpy as np

from tests.report.browser import Browser
from tests.tokens.tiny import make_table
from trimsft.report import write_report

WORDS = ["So", " the", " sum", " is", " 4", "2", ".\n", "<0xE2>", " thus", " x", " =", " 7"]


def make_page(folder: Path) -> Path:
    """Two runs of 30 examples; gaps as of a real model: some out of reach, most mastered."""
    rng = np.random.default_rng(7)
    texts = [[WORDS[n] for n in rng.integers(0, len(WORDS), rng.integers(20, 120))] for _ in range(30)]
    count = sum(map(len, texts))
    gap = np.where(rng.random(count) < 0.4, rng.normal(1, 2, count), rng.normal(11, 4, count))
    prompts = tuple(f"Question {number}?" for number in range(30))
    base = make_table(folder / "base.parquet", texts, gap=gap, prompts=prompts, top=True)
    after = make_table(folder / "after.parquet", texts, gap=gap + rng.normal(1, 1, count), prompts=prompts)
    return write_report(folder / "report.html", {"Base": base, "After": after}, title="Viewer")


def opened_at(browser: Browser, page: Path, fragment: str = "") -> Browser:
    browser.run("location.replace('about:blank')")  # so that an address alone loads it again
    browser.open(page, "#" + fragment if fragment else "")
    wait(lambda: browser.run("return document.documentElement.dataset.tokens ?? null") == "ready")
    wait(lambda: browser.run("return document.querySelector('#pane .t, #nothing:not([hidden])') !== null"))
    browser.console(), browser.requests()
    return browser


def wait(done, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def put(browser: Browser, name: str, value: object, event: str = "input") -> None:
    browser.run(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event(arguments[2], {bubbles: true}))",
        name,
        str(value),
        event,
    )


def choose(browser: Browser, method: str) -> None:
    browser.run("document.querySelector(`#bar input[value='${arguments[0]}']`).click()", method)


def figures(browser: Browser, column: int = 1) -> list[float]:
    return browser.run(
        "return [...document.querySelectorAll('#figures tbody tr')]"
        ".map(r => Number(r.children[arguments[0]].textContent))",
        column,
    )


def text_of(browser: Browser, name: str) -> str:
    return browser.run("return document.getElementById(arguments[0]).textContent", name)
