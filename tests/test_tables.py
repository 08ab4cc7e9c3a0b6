"""Tables: the same numbers in every format, and hostile names."""

import csv
import io
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from trimsft.data.visible import single_line
from trimsft.intervals import Interval
from trimsft.tables import FORMATS, Cell, Table, mark_best

HOSTILE = [
    "a|b",
    "**bold** _it_ `code` <script>alert(1)</script> [x](http://y) ![i](z)",
    "[red]markup[/red] [link=file:///]x[/link]",
    "\x1b[31mred\x1b[0m \x07 bell",
    "two\nlines\r\nand\ttabs",
    '=cmd|"/c calc"!A1, "quoted"',
    "right\u202eleft \ud800 surrogate \u2028",
    "\\",
    "&lt;b&gt;",
    "caf\u00e9 \u6a21\u578b \u2264 \U0001f600",
    "",
]
SIGNS = "\\|`*_{}[]<>()#!&~$^@:-'\"%=+ \nab"
texts = st.text(max_size=20) | st.text(SIGNS, max_size=16) | st.sampled_from(HOSTILE)
SCORE = Cell("41.2", "[38.0, 44.5]", "↑", True, Interval(0.412, 0.38, 0.445))


def named(name: str) -> Table:
    return Table(name, (name, "score"), ((Cell(name), SCORE),), (f"note on {name}",))


def test_the_same_numbers_in_every_format() -> None:
    table = Table("", ("run", "score"), ((Cell("trim"), SCORE), (Cell("gone"), Cell(""))))
    assert "| trim | **41.2** ↑ \\[38.0, 44.5\\] |\n| gone | - |" in FORMATS["markdown"](table)
    assert "trim 41.2 ↑ [38.0, 44.5]" in FORMATS["terminal"](table)
    first, second = csv.DictReader(io.StringIO(FORMATS["csv"](table)))
    numbers = {"score": "0.412", "score low": "0.38", "score high": "0.445", "score significant": "true"}
    assert first == {"run": "trim", **numbers} and second["score"] == ""


def test_the_best_of_each_column_is_bold_within_its_group() -> None:
    rows = [
        (Cell("a"), Cell("1.0", data=1.04)),
        (Cell("b"), Cell("1.0", data=0.96)),
        (Cell("c"), Cell("0.9", data=0.9)),
    ]

    def bold(**options: object) -> list[bool]:
        return [cells[1].bold for cells in mark_best(rows, **options)]  # type: ignore[arg-type]

    assert bold() == [True, True, False]  # shown as the same number
    assert bold(best=min) == [False, False, True]
    assert bold(groups=["x", "x", "y"]) == [False, False, False]


@given(texts)
def test_markdown_shows_names_as_they_are(name: str) -> None:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(FORMATS["markdown"](named(name)))
    inline = [token for token in tokens if token.type == "inline"]
    plain = ["".join(child.content for child in token.children or ()) for token in inline]
    shown = single_line(name)
    expected = [shown, shown, "score", shown or "-", "41.2 ↑ [38.0, 44.5]", single_line(f"note on {name}")]
    assert plain == (expected if shown else expected[1:])
    kinds = {child.type for token in inline for child in token.children or ()}
    assert kinds <= {"text", "strong_open", "strong_close", "text_special"}


@given(texts)
def test_no_control_character_and_no_formula_survives(name: str) -> None:
    for form in ("terminal", "markdown", "csv"):
        text = FORMATS[form](named(name)).replace("\n", "")
        assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in text)
    header, row = csv.reader(io.StringIO(FORMATS["csv"](named(name))))
    assert row[1:] == ["0.412", "0.38", "0.445", "true"] and header[0] == row[0]
    assert row[0].removeprefix("'") == single_line(name).removeprefix("'")
    assert not row[0].startswith(("=", "+", "-", "@"))
