"""One browser for all tests of the page (one a worker), and the pages that several of them look at."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.report.page.browser import CHROMIUM, DRIVER, Browser
from tests.report.page.pages import make_three, report_of
from tests.tokens.tiny import make_table

WRONG = [
    ["Step ", "1", ": ", "3", " * ", "8", " = ", "8", ".\n", "So ", "it ", "is ", "8", "."],
    ["2", " + ", "2", " = ", "4", ". Then ", "4", " + ", "4", " = ", "9", "."],
]
GAPS = [1.2, *[7.0] * 6, -9.0, *[6.0] * 3, 1.9, 8.0, 8.0, *[9.0] * 4, 2.0, 5.0, *[9.0] * 4, -6.0, 4.0]
"""Two of three steps are wrong: 3 * 8 = 8 at token 7 of the first example, 4 + 4 = 9 at token 10 of the second."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed; `make browser` installs them")
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture
def browser(chromium) -> Iterator[Browser]:
    """The browser; whatever a test did, no script of others ran and no error was logged."""
    yield chromium
    chromium.reset()
    assert chromium.run("return window.attacked ?? null") is None
    assert chromium.console() == []


@pytest.fixture(scope="session")
def three(tmp_path_factory) -> dict[str, Path]:
    """Base, SFT and TrimSFT, evaluated; the base's tokens are known; not to be written to."""
    runs = make_three(tmp_path_factory.mktemp("three"), text="Since $x^2=1$ it is \\boxed{%s}, for \\$5.")
    make_table(runs["Base"] / "tokens.parquet", WRONG, gap=np.array(GAPS), prompts=("Ask: 3 times 8?", "Ask: And?"))
    return runs


@pytest.fixture(scope="session")
def page(three) -> Path:
    """The page of the three."""
    return report_of(three["Base"].parent, three)
