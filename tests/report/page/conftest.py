"""One browser for all tests of the page (one a worker), and the pages that several of them look at."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.report.page.browser import CHROMIUM, DRIVER, Browser
from tests.report.page.pages import EASY, HARD, WORDS, make_evaluated, make_telemetry, make_three, view
from tests.tokens.tiny import make_table
from trimsft.report.page.build import write_report
from trimsft.tokens.table import TokenTable, read_token_table

METHODS = ("Base", "SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed; `make browser` installs them")
    with Browser() as opened:
        yield opened


@pytest.fixture
def browser(chromium) -> Iterator[Browser]:
    yield chromium
    chromium.reset()


@pytest.fixture(scope="session")
def two_tables(tmp_path_factory) -> Path:
    """Two token tables of 30 examples; gaps as of a real model: some out of reach, most mastered."""
    folder = tmp_path_factory.mktemp("two")
    rng = np.random.default_rng(7)
    texts = [[WORDS[n] for n in rng.integers(0, len(WORDS), rng.integers(20, 120))] for _ in range(30)]
    count = sum(map(len, texts))
    gap = np.where(rng.random(count) < 0.4, rng.normal(1, 2, count), rng.normal(11, 4, count))
    prompts = tuple(f"Question {number}?" for number in range(30))
    base = make_table(folder / "base.parquet", texts, gap=gap, prompts=prompts, top=True)
    after = make_table(folder / "after.parquet", texts, gap=gap + rng.normal(1, 1, count), prompts=prompts)
    return write_report(folder / "report.html", {"Base": base, "After": after}, title="Viewer")


@pytest.fixture
def opened(browser, two_tables) -> Browser:
    return view(browser, two_tables)


@pytest.fixture(scope="session")
def table(two_tables) -> TokenTable:
    """The first of them as numbers."""
    return read_token_table(two_tables.parent / "base.parquet", examples=range(30))


@pytest.fixture(scope="session")
def trained(two_tables, tmp_path_factory) -> Path:
    """The first of the two tables, and a run that AutoTrim trained in four steps."""
    folder = tmp_path_factory.mktemp("trained")
    make_telemetry(folder / "auto", "auto-trim", gate=[1.0, 0.7, 0.2, 0.0], exponent=[1.0, 1.0, 1.5, 2.5])
    runs = {"Base": two_tables.parent / "base.parquet", "AutoTrim": folder / "auto"}
    return write_report(folder / "report.html", runs, title="Trained")


@pytest.fixture(scope="session")
def large(tmp_path_factory) -> Path:
    """A token table of which the page shows the first quarter."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(3)
    texts = [[WORDS[n] for n in rng.integers(0, len(WORDS), 150)] for _ in range(800)]
    gap = np.where(rng.random(120_000) < 0.3, rng.normal(0, 3, 120_000), rng.normal(10, 5, 120_000))
    table = make_table(folder / "tokens.parquet", texts, gap=gap)
    return write_report(folder / "report.html", {"Base": table}, title="Large")


@pytest.fixture(scope="session")
def seven(tmp_path_factory) -> Path:
    """The methods of the paper, evaluated, and a title that needs several lines."""
    folder = tmp_path_factory.mktemp("seven")
    for label in METHODS:
        make_evaluated(folder / label, "easy", EASY)
        make_evaluated(folder / label, "a-benchmark-with-a-long-name", HARD)
        make_table(folder / label / "tokens.parquet", [WORDS * 20] * 3)
    runs = {label: folder / label for label in METHODS}
    return write_report(folder / "report.html", runs, title="a long title " * 12)


@pytest.fixture(scope="session")
def three(tmp_path_factory) -> dict[str, Path]:
    """Base, SFT and TrimSFT, evaluated; not to be written to."""
    return make_three(tmp_path_factory.mktemp("three"), text="Since $x^2=1$ it is \\boxed{%s}, for \\$5.")


@pytest.fixture(scope="session")
def compared(three) -> Path:
    """The page of the three."""
    return write_report(three["Base"].parent / "report.html", three, title="A title")
