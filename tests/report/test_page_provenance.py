"""What the page says of its own making: inputs of the tables, what was cut, which tables do not compare."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.report.test_report import Page
from tests.report.unpacking import page_data
from tests.tokens.tiny import make_eval, make_table
from trimsft.report import write_report
from trimsft.report.page.provenance import cut_words, lead, table_facts
from trimsft.report.page.sources import read_run
from trimsft.text.templates import SYSTEM_PROMPT

TEXTS = [["a", "b"], ["c", "d", "e"]]
HOW = {"template": "chat", "system_prompt": None, "max_length": None}


def table(path: Path, texts=TEXTS, **told) -> Path:
    """A token table whose metadata says so."""
    make_table(path, texts, prompts=tuple(f"P{n}?" for n in range(len(texts))))
    content = pq.read_table(path)
    metadata = json.loads(content.schema.metadata[b"trimsft"]) | HOW | told
    pq.write_table(content.replace_schema_metadata({b"trimsft": json.dumps(metadata)}), path)
    return path


def written(folder: Path, runs: dict[str, Path], **more) -> tuple[str, Page]:
    text = write_report(folder / "report.html", runs, title="T", **more).read_text(encoding="utf-8")
    return text, Page(text)


def plain(page: Page) -> str:
    return " ".join(page.text.split())


def test_what_was_run_tells_template_system_prompt_and_length(tmp_path) -> None:
    runs = {
        "A": table(tmp_path / "a.parquet"),
        "B": table(tmp_path / "b.parquet", system_prompt="<b>hello", max_length=2048),
    }
    _, page = written(tmp_path, runs)
    rows = {row[0]: row[1] for row in page.rows if len(row) == 2}
    how = "tokens of m, 2 rows, template chat"
    assert rows["A"].endswith(f"{how}, the usual system prompt, no limit of length")
    assert rows["B"].endswith(f"{how}, system prompt “<b>hello”, rows of at most 2,048 tokens")
    assert "no system prompt" in table_facts({"system_prompt": "", "max_length": 0})
    assert table_facts({"model": "m"}) == "tokens of m, ? rows"  # of a file that does not say more


def test_a_run_does_not_take_the_place_of_a_setting(tmp_path) -> None:
    _, page = written(tmp_path, {"margin": table(tmp_path / "a.parquet")}, settings={"margin": 2.0})
    rows = {row[0]: row[1] for row in page.rows if len(row) == 2}
    assert rows["margin"] == "2.0" and "tokens of m" in rows["run margin"]


def test_cut_and_lost_rows_are_told(tmp_path) -> None:
    cut = {"rows_cut": 3, "tokens_cut": 1204, "rows_lost": 1}
    _, page = written(tmp_path, {"A": table(tmp_path / "a.parquet", max_length=64, cut=cut)})
    words = "3 rows cut by 1,204 tokens, 1 of them with the whole solution"
    assert f"Not all of the data is here. A: {words}, at max_length 64." in plain(page)
    assert [row[1] for row in page.rows if len(row) == 2][-1].endswith(words)
    none = {"rows_cut": 0, "tokens_cut": 0, "rows_lost": 0}
    _, page = written(tmp_path, {"A": table(tmp_path / "a.parquet", max_length=64, cut=none)})
    assert "Not all of the data" not in page.text and cut_words({}) == ""


def test_tables_that_do_not_compare_are_named_with_the_reason(tmp_path) -> None:
    runs = {
        "A": table(tmp_path / "a.parquet"),
        "Same": table(tmp_path / "same.parquet"),
        "Hello": table(tmp_path / "h.parquet", system_prompt="hello"),
        "Other": table(tmp_path / "b.parquet", data={"rows": 2, "sha256": "f" * 64}),
        "Shorter": table(tmp_path / "c.parquet", [["a", "b"], ["c"]], max_length=3),
    }
    _, page = written(tmp_path, runs)
    text = plain(page)
    assert "Not all tables compare." in text and "all on the same examples" not in text
    assert "'A' and 'Other' are not about the same tokens: data is 2 rows, None" in text
    assert "'A' and 'Hello' are not about the same tokens: system_prompt is" in text
    assert "'A' and 'Shorter' are not about the same tokens" in text and "'Same'" not in text
    assert "so not to be compared with it: Hello, Other, Shorter." in text
    _, page = written(tmp_path, {name: runs[name] for name in ("A", "Same")})
    assert "compare" not in page.text.split("What was run")[0].replace("--", "")
    assert "Same" in page.text and "all on the same examples" in plain(page)


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ({}, []),
        ({"system_prompt": SYSTEM_PROMPT}, []),  # which is the usual one
        ({"system_prompt": "hello"}, None),
        ({"template": "plain"}, None),
        ({"prompts": ["P0?", "Another?"]}, [1]),
        ({"max_length": 2048}, []),  # where it cuts nothing of an example, it changes nothing
    ],
)
def test_other_prompts_are_not_set_beside_each_other(tmp_path, told, missing) -> None:
    runs = {"A": table(tmp_path / "a.parquet"), "B": table(tmp_path / "b.parquet", **told)}
    text, _ = written(tmp_path, runs)
    found = page_data(text)["examples"]["runs"][1]
    assert (found and found["missing"]) == missing


def test_the_first_lines_count_and_name_the_sources(tmp_path) -> None:
    one, two = table(tmp_path / "a.parquet"), table(tmp_path / "b.parquet")
    folders = [tmp_path / "x", tmp_path / "y"]
    for folder in folders:
        make_eval(folder, "lab-easy", [1])

    def said(*places: Path) -> str:
        return lead([read_run(place.name, place) for place in places]).removesuffix("; it loads nothing.")

    made = "Everything on this page was made from"
    assert said(one) == f"1 run. {made} a token table"
    assert said(one, two) == f"2 runs. {made} token tables"
    assert said(folders[0]) == f"1 run. {made} the run directory"
    assert said(*folders, one) == f"3 runs. {made} the run directories and a token table"
    _, page = written(tmp_path, {"A": one})
    assert said(one) in plain(page)
    links = [a["href"] for tag, a in page.elements if tag == "a"]
    assert links == ["#tokens", "#gaps", "#weights", "#run"]
    assert "before and after" not in page.text
    _, page = written(tmp_path, {"X": folders[0]})
    assert [a["href"] for tag, a in page.elements if tag == "a"] == ["#scores", "#run"]


@pytest.mark.parametrize(("gap", "ends"), [((-3, 4), ("-5", "10")), ((-30, 21.5), ("-30", "22"))])
def test_the_slider_of_the_margin_reaches_the_gaps(tmp_path, gap, ends) -> None:
    path = make_table(tmp_path / "a.parquet", [["a"] * 2000], gap=[gap[0]] * 1000 + [gap[1]] * 1000)
    _, page = written(tmp_path, {"A": path})
    slider = next(a for _, a in page.elements if a.get("id") == "margin")
    assert (slider["min"], slider["max"]) == ends
