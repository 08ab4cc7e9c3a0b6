"""Picture of the page for the documentation, taken in Chromium from the report of a quickstart.

    python tools/pictures.py runs/quickstart/report.html docs/figures

quickstart_report.png      the first screen
"""

import argparse
import base64
import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the driver is that of the tests

from tests.report.page.browser import Browser, wait

WIDE = (1000, 1000)
COLOURS = 200  # of a picture, which keeps it below 150 KB
READY = "return document.documentElement.dataset.tokens === 'ready'"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    with Browser() as browser:
        opened(browser, arguments.page, WIDE)
        save(browser, arguments.folder / "quickstart_report.png", height=browser.box("main")[3])


def opened(browser: Browser, page: Path, size: tuple[int, int]) -> None:
    browser.size(*size)
    browser.open(page)
    wait(lambda: browser.run(READY))


def save(browser: Browser, path: Path, *, height: float | None = None) -> None:
    """Save what the window shows, or its upper part, in few colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(browser.command("Page.captureScreenshot", format="png")["data"])))
    if height is not None:
        picture = picture.crop((0, 0, picture.width, min(picture.height, round(height))))
    reduced = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


if __name__ == "__main__":
    main()
