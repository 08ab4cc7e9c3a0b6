"""The page of `trimsft watch` in a real browser: a curve grows when a line arrives."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.page.browser import Browser, wait
from tests.report.watch.test_follow import begin, line, write
from trimsft.report.watch.follow import Watched
from trimsft.report.watch.server import WatchServer

POINTS = "return document.querySelector('#nll .series')?.getAttribute('d').split('L').length ?? 0"


def _labels(browser: Browser, panel: str) -> list[str]:
    return browser.run(
        "return [...document.querySelectorAll(`#${arguments[0]} text`)].map((e) => e.textContent)", panel
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    run = tmp_path / "run"
    with WatchServer(Watched(run), port=0, every=0.1) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield run, server.address
        server.shutdown()
        thread.join()


def test_a_curve_grows_while_the_training_runs(browser: Browser, served: tuple[Path, str]) -> None:
    run, address = served
    browser.visit(address)
    wait(lambda: "waits for a training" in browser.text("runs"))
    assert browser.run(POINTS) == 0
    write(
        begin(run, "trim"),
        line(1, gap_p05=-2.0, gap_p50=1.0, gap_p95=4.0),
        line(2, gap_p05=-1.0, gap_p50=2.0, gap_p95=5.0),
    )
    wait(lambda: browser.run(POINTS) == 2)
    assert "TrimSFT" in browser.text("runs") and "step 2" in browser.text("runs")
    write(run, line(3, nll=0.1))
    wait(lambda: browser.run(POINTS) == 3)
    assert browser.run("return document.querySelectorAll('#gap .band, #gap .wide, #gap .limit').length") == 3
    assert _labels(browser, "loss") == ["0.4", "0.6", "0.8", "1", "1", "2", "3", "step"]
    write(run, line(4, loss=0.0152))  # less than a fiftieth of the highest: an axis of powers of ten
    wait(lambda: browser.run(POINTS) == 4)
    assert _labels(browser, "loss") == ["0.1", "1", "1", "2", "3", "4", "step"]
    _, top, right, bottom = browser.box("#nll svg")
    browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=right - 20, y=(top + bottom) / 2)
    wait(lambda: browser.run("return document.querySelector('#nll figcaption span').textContent") == "step 4: 0.5")
    write(run, {"step": 4, "train_runtime": 9.0})
    wait(lambda: "finished at step 4, after 0:00:09" in browser.text("runs"))
    assert browser.text("news") == "TrimSFT finished"
    assert browser.run("return document.title").startswith("finished at step 4, after 0:00:09 | Watching ")
    assert browser.console() == [] and all(url.startswith(address) for url in browser.requests())
