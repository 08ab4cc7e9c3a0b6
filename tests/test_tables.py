"""Tables: what is bold and what is marked, hostile names in every format, and records as files."""

import csv
import dataclasses
import io
import json
import math
import re
import shutil
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from tests.evaluate.graded import random_counts, score_of
from trimsft.data.visible import single_line
from trimsft.evaluate.compare import compare_runs
from trimsft.intervals import Interval
from trimsft.report.score_tables import comparison_table, score_table
from trimsft.tables import (
    FORMATS,
    Cell,
    Records,
    Table,
    csv_of,
    escape_latex,
    escape_markdown,
    render,
    to_rich,
    to_text,
)

HOSTILE = [
    "a|b",
    r"\end{tabular}",
    "[10cm] $x$ & 50% #1 ~ ^ _ {}",
    "**bold** _it_ `code` <script>alert(1)</script> [x](http://y) ![i](z)",
    "[red]markup[/red] [link=file:///]x[/link]",
    "\x1b[31mred\x1b[0m \x07 bell",
    "two\nlines\r\nand\ttabs",
    '=cmd|"/c calc"!A1, "quoted"',
    "right\u202eleft \ud800 surrogate \u2028",
    "--- ''quotes'' ``ticks`` *",
    "\\",
    "&lt;b&gt;",
    "runs/my_model-7B_50%&co",
    "caf\u00e9 cafe\u0301 \u00df \u00f8 \u0141\u00f3d\u017a",
    "\u6a21\u578b \u03b1\u03b2 \u0436 \u2264 \u00fe \U0001f600",
    "",
]
texts = st.text(max_size=20) | st.text("\\|`*_{}[]<>()#!&~$^@:-'\"%=+ \nab", max_size=16) | st.sampled_from(HOSTILE)


def named(name: str) -> Table:
    cell = Cell("41.2", "[38.0, 44.5]", "↑", True, Interval(0.412, 0.38, 0.445))
    return Table(name, (name, "score"), ((Cell(name), cell),), (f"note on {name}",))


@pytest.fixture(scope="module")
def runs():
    return {
        "sft": [score_of("gsm8k", random_counts(60, seed=1)), score_of("amc", random_counts(30, seed=2))],
        "trim": [score_of("gsm8k", random_counts(60, seed=1, shift=2)), score_of("amc", random_counts(30, seed=2))],
    }


# ---- what the tables say


def test_scores_best_and_marks(runs):
    found = compare_runs(runs["sft"], {"trim": runs["trim"]}, name="sft", resamples=300)
    table = score_table(runs, comparisons=found, resamples=300)
    assert table.header == ("run", "gsm8k", "amc", "average")
    sft, trim = table.rows
    assert [cell.marker for cell in sft] == ["", "", "", ""]
    assert [cell.marker for cell in trim] == ["", "↑", "", "↑"]
    assert [cell.bold for cell in sft] == [False, False, True, False]  # amc is the same: both are best
    assert [cell.bold for cell in trim] == [False, True, True, True]
    value = runs["sft"][0].average
    assert sft[1].text == f"{100 * value.value:.1f}"
    assert sft[1].spread == f"[{100 * value.low:.1f}, {100 * value.high:.1f}]"
    assert "sft" in table.notes[1]


def test_marks_of_losses_of_doubtful_differences_and_without_comparisons(runs):
    found = compare_runs(runs["trim"], {"sft": runs["sft"]}, name="trim", resamples=300)
    assert score_table(runs, comparisons=found, resamples=50).rows[0][1].marker == "↓"
    table = score_table(runs, resamples=50)
    assert not any(cell.marker for row in table.rows for cell in row) and len(table.notes) == 1
    doubtful = [dataclasses.replace(one, p_holm=0.06) for one in found]
    assert not any(cell.marker for row in score_table(runs, comparisons=doubtful).rows for cell in row)
    assert not any(cell.marker or cell.bold for row in comparison_table(doubtful).rows for cell in row)


def test_fewer_truncated_is_better_and_length_is_neither(runs):
    assert not any(cell.bold for row in score_table(runs, "tokens", resamples=50).rows for cell in row)
    worse = [score_of("toy", [0])]
    cut = [dataclasses.replace(worse[0], truncation_rate=Interval(0.5, 0.4, 0.6))]
    table = score_table({"cut": cut, "whole": worse}, "truncated", resamples=50)
    assert [row[1].bold for row in table.rows] == [False, True]


def test_a_missing_benchmark_leaves_a_gap_and_no_mean(runs):
    table = score_table({**runs, "half": runs["sft"][:1]}, resamples=50)
    assert [cell.text for cell in table.rows[2][2:]] == ["", ""]
    assert "| - | - |" in render(table, "markdown")
    assert json.loads(render(table, "json"))["rows"][2][2] == {"value": None}


def test_comparisons_of_another_metric_are_refused(runs):
    found = compare_runs(runs["sft"], {"trim": runs["trim"]}, "pass@2", resamples=50)
    with pytest.raises(ValueError, match="must be of the metric 'average' that the table shows, got 'pass@2'"):
        score_table(runs, comparisons=found)


def test_comparison_table(runs):
    a, b = runs["sft"][:1], runs["trim"][:1]
    (found,) = compare_runs(a, {"trim": b}, name="sft", resamples=300)
    row = comparison_table([found]).rows[0]
    assert [cell.text for cell in row[:4]] == ["trim", "gsm8k", "average (%)", "60"]
    assert row[6].text == f"{100 * found.difference.value:+.1f}" and row[6].marker == "↑" and row[6].bold
    assert row[7].text == "<0.001" and row[9].text == f"+{len(found.better)} -{len(found.worse)}"
    assert comparison_table([]).rows == ()
    with pytest.raises(ValueError, match="share a baseline"):
        comparison_table([found, *compare_runs(a, {"trim": b}, resamples=50)])


def test_no_negative_zero(runs):
    (found,) = compare_runs(runs["sft"][1:2], {"trim": runs["trim"][1:2]}, resamples=50)
    small = dataclasses.replace(found, difference=Interval(-1e-6, -1e-6, 0.5))
    cell = comparison_table([small]).rows[0][6]
    assert (cell.text, cell.spread) == ("+0.0", "[+0.0, +50.0]")


# ---- the formats


def test_the_same_numbers_everywhere(runs):
    found = compare_runs(runs["sft"], {"trim": runs["trim"]}, name="sft", resamples=300)
    table = score_table(runs, comparisons=found, resamples=300)
    cell = table.rows[1][1]
    low, high = cell.spread[1:-1].split(", ")
    assert f"**{cell.text}** ↑ \\[{low}, {high}\\]" in render(table, "markdown")
    latex = render(table, "latex")
    assert rf"\textbf{{{cell.text}}} $\uparrow$ {{\scriptsize {{[}}{low}, {high}]}}" in latex
    for line in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lrrr}"):
        assert latex.count(line) == 1
    assert f"{cell.text} ↑ {cell.spread}" in shown(table, width=200)
    record = json.loads(render(table, "json"))["rows"][1][1]
    expected = runs["trim"][0].average
    assert record == {**expected.as_dict(), "best": True, "significant": True}
    line = list(csv.DictReader(io.StringIO(render(table, "csv"))))[1]
    assert line["run"] == "trim" and line["gsm8k significant"] == "true"
    numbers = [float(line[name]) for name in ("gsm8k", "gsm8k low", "gsm8k high")]
    assert numbers == [expected.value, expected.low, expected.high]


def test_a_negative_number_has_a_minus_in_latex():
    cell = Cell("-3.4", "[-5.0, -1.2]", data=Interval(-0.034, -0.05, -0.012))
    text = render(Table("", ("run", "x"), ((Cell("a-b"), cell),)), "latex")
    assert r"a-b & $-$3.4 {\scriptsize {[}$-$5.0, $-$1.2]} \\" in text


def test_an_unknown_format_names_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown name 'html'.* known: terminal, markdown, latex, csv, json"):
        render(named("x"), "html")
    with pytest.raises(ValueError, match="must have 2 cells"):
        Table("", ("a", "b"), ((Cell("x"),),))


def test_a_terminal_gets_plain_text_where_it_has_no_colours(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert set(FORMATS) == {"terminal", "markdown", "latex", "csv", "json"}
    assert "\n x 41.2 ↑ [38.0, 44.5] \n" in render(named("x"), "terminal")


def test_a_wide_table_fits_80_columns_and_breaks_no_word():
    header = ("run", "benchmark", "problems", "before", "after", "difference", "p", "p (Holm)", "flips")
    row = ("my-auto-trim", "lab-medium", "16", "71.9", "89.8", "+18.0", "<0.001", "<0.001", "+0 -0")
    cells = [dataclasses.replace(Cell(text), spread="[+2.9, +27.2]" if text == "+18.0" else "") for text in row]
    text = to_text(Table("A comparison", header, (tuple(cells),), notes=("A note. " * 20,)))
    assert max(map(len, text.splitlines())) <= 80
    assert {*" ".join(header).split(), *" ".join(row).split()} <= set(text.split())


def shown(table: Table, width: int = 400) -> str:
    console = Console(file=io.StringIO(), width=width, color_system="truecolor", force_terminal=True)
    console.print(to_rich(table))
    return re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())


@given(texts)
def test_no_unseen_character_survives(name):
    assert "\n" not in single_line(name)
    for form in ("markdown", "latex", "csv"):
        text = render(named(name), form).replace("\n", "")
        assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in text)
        assert text.encode()


@given(texts)
def test_terminal_shows_names_as_they_are(name):
    text = shown(named(name))
    assert single_line(name) in text and "41.2 ↑ [38.0, 44.5]" in text
    assert not any(unicodedata.category(character) == "Cc" for character in text.replace("\n", ""))


@given(texts)
def test_markdown_shows_names_as_they_are(name):
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(render(named(name), "markdown"))
    inline = [token for token in tokens if token.type == "inline"]
    plain = ["".join(child.content for child in token.children) for token in inline]
    expected = [single_line(name), single_line(name), "score", single_line(name) or "-", "41.2 ↑ [38.0, 44.5]"]
    assert plain[-6 if single_line(name) else -5 :] == (expected if single_line(name) else expected[1:]) + [
        single_line(f"note on {name}")
    ]
    kinds = {child.type for token in inline for child in token.children}
    assert kinds <= {"text", "strong_open", "strong_close", "text_special"}
    assert sum(token.type == "tr_open" for token in tokens) == 2


LATEX_TEXT = re.compile(
    r"\\text(backslash|asciicircum|asciitilde)\{\}|\\[{}$&#%_]|\{\[\}|\$\\(up|down)arrow\$|[^\\{}$&#%_^~\[]"
)


@given(texts)
def test_latex_has_no_active_character_left(name):
    escaped = escape_latex(name)
    matches = list(LATEX_TEXT.finditer(escaped))
    assert "".join(match[0] for match in matches) == escaped and len(matches) == len(single_line(name))
    text = render(named(name), "latex")
    assert text.count("\\\\\n") == 2 and text.count("\n") == 14


@pytest.mark.parametrize("engine", ["pdflatex", "lualatex"])
def test_latex_compiles(engine, tmp_path):
    if shutil.which(engine) is None or subprocess.run(["kpsewhich", "booktabs.sty"]).returncode:
        pytest.skip(f"{engine} with booktabs is not here")
    body = "\\clearpage\n".join(render(named(name), "latex") for name in HOSTILE if name.isascii())
    start = "\\documentclass{article}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n\\listoftables\n"
    (tmp_path / "tables.tex").write_text(f"{start}{body}\\end{{document}}\n", encoding="utf-8")
    for _ in range(2):  # the second time reads the list of tables that the first has written
        command = [engine, "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "tables.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
        log = done.stdout.decode(errors="replace")
        assert done.returncode == 0, [line for line in log.splitlines() if line.startswith("!")] or log[-500:]


@given(texts)
def test_json_keeps_names_exactly(name):
    record = json.loads(render(named(name), "json"))
    assert record["title"] == name and record["rows"][0][0] == ({"text": name} if name else {"value": None})


@given(texts)
def test_csv_reads_back_and_starts_no_formula(name):
    header, row = csv.reader(io.StringIO(render(named(name), "csv")))
    assert row[1:] == ["0.412", "0.38", "0.445", "true"] and header[0] == row[0]
    assert row[0].removeprefix("'") == single_line(name).removeprefix("'")
    assert not row[0].startswith(("=", "+", "-", "@"))


def test_markdown_escapes_what_github_would_change_and_no_more() -> None:
    said = "see http://x.y, ask @you and :smile:, a|b &lt; [c](d) *e*"
    assert escape_markdown(said) == (r"see http\://x.y, ask \@you and \:smile:, a\|b \&lt; \[c\](d) \*e\*")
    plain = "average@8, 95 % (over seeds): 3 & 4!"
    assert escape_markdown(plain) == plain


# ---- records


def test_records_as_files(tmp_path):
    assert csv_of(["a", "b"], [[-0.0, 1 / 3], [7, "x"]]) == b"a,b\n0,0.333333\n7,x\n"
    assert csv_of(["a"], [["=1+1"], [-1.0]]) == b"a\n'=1+1\n-1\n"
    rows = [
        {"text": "a|b_c\nd", "some_number": -0.001, "count": 1234567},
        {"text": "*", "some_number": math.nan, "count": None},
        {"text": "e", "some_number": 2.345, "count": 3},
    ]
    records = Records("name", "Title_", rows, ["Note."], {"some_number": 1}, shown=2)
    text, table = records.write(tmp_path)
    assert text.read_text().splitlines() == [
        "# Title\\_",
        "",
        "| text | some number | count |",
        "| --- | ---: | ---: |",
        "| a\\|b\\_c d | 0.0 | 1,234,567 |",
        "| \\* | - | - |",
        "",
        "Note.",
        "",
        "1 more rows are in name.csv.",
    ]
    assert table.read_text() == 'text,some_number,count\n"a|b_c\nd",-0.001,1234567\n*,,\ne,2.345,3\n'


def test_records_show_an_interval_beside_its_value_where_it_has_a_width():
    row = {"x_ours": 3.14159, "x_low": 2.9, "x_high": 3.41, "x_paper": 3.0, "low": 1.0}
    records = Records("n", "", [row, {**row, "x_low": 3.14159, "x_high": 3.14159}, {**row, "x_low": None}])
    assert records.table().header == ("x ours", "x paper", "low")
    assert [cells[0].spread for cells in records.table().rows] == ["[2.90, 3.41]", "", ""]
