"""LaTeX as MathML in a real browser: what formulas become, and that no text hangs it or breaks out."""

from importlib import resources
from pathlib import Path

import pytest

from tests.report.page.browser import Browser

SHARED = Path(__file__).parents[4] / "shared" / "data" / "benchmarks"
UNREADABLE = ["{x", r"\frac{1", "x^2^3", r"\left(x", r"\begin{odd}1\end{odd}"]
# an element as name(children); text stands as it is
OUTLINE = """
const outline = (node) => node.nodeType === 3 ? node.textContent
  : `${node.localName}(${[...node.childNodes].map(outline).join(" ")})`;
const box = document.createElement("div");
box.append(readable(arguments[0]));
document.body.replaceChildren(box);
return [...box.childNodes].map(outline).filter(Boolean);
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    script = resources.files("trimsft.report.page").joinpath("mathematics.js").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("page") / "mathematics.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><script>{script}</script><body>", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(chromium, page) -> Browser:
    chromium.open(page)
    return chromium


def outline(browser: Browser, text: str) -> list[str]:
    return browser.run(OUTLINE, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$x^2_1$", ["math(msubsup(mi(x) mn(1) mn(2)))"]),
        (r"\(\frac12\)", ["math(mfrac(mn(1) mn(2)))"]),
        (r"so \boxed{7}.", ["so ", "math(mrow(mn(7)))", "."]),
        ("$1,000.5$", ["math(mn(1,000.5))"]),
        (r"$\text{if $n$ is odd}$", ["math(mrow(mtext(if\u00a0) mi(n) mtext(\u00a0is odd)))"]),
        (r"$\sum_{i=1}^n i$", ["math(mrow(munderover(mo(∑) mrow(mi(i) mo(=) mn(1)) mi(n)) mi(i)))"]),
        (
            r"$\begin{pmatrix}1&2\end{pmatrix}$",
            ["math(mrow(mo(() mtable(mtr(mtd(mrow(mn(1))) mtd(mrow(mn(2))))) mo())))"],
        ),
        (r"$\mystery{x}$", [r"math(mrow(mtext(\mystery) mi(x)))"]),
        (r"$\constructor \toString$", [r"math(mrow(mtext(\constructor) mtext(\toString)))"]),
        # text around formulas
        ("It costs $5 and then $10 more.", ["It costs $5 and then $10 more."]),
        ("plain <b>text</b>", ["plain <b>text</b>"]),
        # what cannot be read stands as its source
        *((f"\\({source} \\)", [f"code(\\({source} \\))"]) for source in UNREADABLE),
    ],
)
def test_formulas(browser, text, expected) -> None:
    assert outline(browser, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "$" + "{" * 10_000 + "}" * 10_000 + "$",
        "$" + "x^{" * 1200 + "$",
        "$2^{" * 900 + "}" * 900 + "$",
        "$a" * 5_000,
        r"\boxed{" * 3_000,
        "$" + "9" * 3_900 + "^" + "{9}" + "$",
    ],
    ids=lambda text: text[:12],
)
def test_hostile_formulas_end(browser, text) -> None:
    """The driver stops a script that takes 30 s; what comes of one is bounded."""
    assert outline(browser, text)
    nodes = "return [...document.querySelectorAll('math')].map(m => m.querySelectorAll('*').length)"
    assert max(browser.run(nodes), default=0) <= 3001


def test_html_in_formulas_stays_text(browser) -> None:
    attack = "</math><img src=x onerror=window.attacked=1><script>window.attacked=2</script>"
    for text in (f"${attack}$", rf"$\text{{{attack}}}$", rf"\[{{{attack}\]", rf"$\{attack}$"):
        outline(browser, text)
        assert browser.run("return document.querySelectorAll('img, body script').length") == 0
        assert browser.run("return /onerror|=/.test(document.body.textContent)")
    assert browser.run("return window.attacked ?? null") is None
