"""The course of trainings on the page: a panel for each field that some run has, a line for each run."""

import re

from tests.report.page.pages import make_telemetry, page_of


def panels(page) -> list[str]:
    """Titles, from the drawing for wide windows."""
    drawing = page.html.split('id="training"')[1].split('class="chart-wide"')[1].split("</svg>")[0]
    return re.findall(r'<text class="key"[^>]*>([^<]*)', drawing)


def test_an_objective_that_adapts_shows_gate_and_exponent(tmp_path) -> None:
    auto = make_telemetry(tmp_path / "auto", "auto-trim", gate=[1.0, 0.2, 0.0], exponent=[1.0, 2.0, 3.0])
    trim = make_telemetry(tmp_path / "trim", "trim", skipped=[0.1, 0.2, 0.3])
    page = page_of(tmp_path, {"AutoTrim": auto, "TrimSFT": trim})
    moves = ["gate x", "exponent a"]
    assert panels(page) == ["loss", "nll", *moves, "gap: median", "effective ratio", "gap with weight 1/2"]
    drawing = page.html.split('id="training"')[1].split("</figure>")[0]
    for line, times in (("line-auto-trim", 7), ("line-trim", 5)):
        # wide, narrow, and the legend
        assert len(re.findall(f'"series {line}"', drawing)) == 2 * times + 1
    assert "AutoTrim moves it" in page.words
    assert "#training" in page.links()


def test_fixed_objectives_show_what_they_have(tmp_path) -> None:
    page = page_of(tmp_path, {"SFT": make_telemetry(tmp_path / "sft", "sft", gap_p05=[-3.0])})
    assert panels(page) == ["loss", "nll", "gap: 5 % are below", "gap: median", "effective ratio"]
    assert "exponent" not in page.html.split('id="training"')[1].split("</section>")[0]


def test_nothing_is_drawn_of_runs_without_telemetry(tmp_path) -> None:
    (tmp_path / "run").mkdir()
    page = page_of(tmp_path, {"Base": tmp_path / "run"})
    assert 'id="training"' not in page.html and "#training" not in page.links()
