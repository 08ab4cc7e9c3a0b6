import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report.unpacking import page_data
from tests.tokens.tiny import make_eval, make_table
from trimsft.errors import RunError
from trimsft.report import write_report
from trimsft.report.page.charts import _ticks
from trimsft.report.page.sources import read_run

HOSTILE = [
    "</script><script>window.attacked = 1</script>",
    "<img/src=x/onerror=window.attacked=2>",
    '"><svg/onload=window.attacked=3>',
    "</title></style></script x><!--<script>",
    "{{ 7 * 7 }} ${7*7} \\u003cscript\\u003e",
    "\u202eright\u2066to\u200bleft\x00\x1b[31m\ud800",
]


@pytest.fixture
def runs(tmp_path) -> dict[str, Path]:
    """Base, SFT and TrimSFT, evaluated on two benchmarks and with token tables."""
    folders = {"Base": tmp_path / "base", "SFT": tmp_path / "sft", "TrimSFT": tmp_path / "trim"}
    counts = [([1, 2, 3], [0, 4]), ([2, 4, 3], [1, 5]), ([8, 3, 3], [7, 5])]
    for number, (folder, (easy, hard)) in enumerate(zip(folders.values(), counts, strict=True)):
        make_eval(folder, "lab-hard", hard)
        make_eval(folder, "lab-easy", easy)
        make_table(folder / "tokens.parquet", [[" a", "b\n"] * 8, ["c"] * 15], shift=number, prompts=("P?",))
    return folders


class Page(HTMLParser):
    """Elements, attributes and text, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag, attributes) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data) -> None:
        self.text += data
        if self._in_cell:
            self.rows[-1][-1] += data


def make_page(tmp_path: Path, runs: dict[str, Path], **settings) -> tuple[str, Page]:
    path = write_report(tmp_path / "out" / "report.html", runs, title="A title", settings=settings)
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_weights_before_and_after(tmp_path, runs) -> None:
    _, page = make_page(tmp_path, runs)
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in page.rows if len(row) in (8, 13)}
    assert rows["SFT"][:3] == ["1.000", "1.000", "100.0"]
    assert rows["DFT"][-1] == "–"  # noqa: RUF001 -- no run was trained with it
    _, other = make_page(tmp_path, runs, margin=6, bandwidth=3)
    changed = {row[0].strip(): row[1:] for row in other.rows if len(row) in (8, 13)}
    assert changed["TrimSFT"][:3] != rows["TrimSFT"][:3]
    assert "margin 6, bandwidth 3" in other.text


def test_the_page_says_what_was_run(tmp_path, runs) -> None:
    (runs["SFT"] / "manifest.json").write_text(json.dumps({"command": "trimsft train x", "versions": {"trl": "1"}}))
    _, page = make_page(tmp_path, runs, lab={"rows": 480, "tiers": ["a", "b"]}, command="trimsft quickstart")
    rows = {row[0]: row[1] for row in page.rows if len(row) == 2}
    assert rows["lab.rows"] == "480" and rows["lab.tiers"] == "a, b" and rows["command"] == "trimsft quickstart"
    assert rows["command of SFT"] == "trimsft train x"
    assert rows["versions"] == "transformers 5, torch 2, trl 1"


def test_nothing_is_loaded_and_only_its_own_style_and_script_are_allowed(tmp_path, runs) -> None:
    text, page = make_page(tmp_path, runs)
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert {address.split("/")[2] for address in re.findall(r"https?://[^\s\"'<]+", text)} == {
        "www.w3.org"
    }  # namespaces
    loading = {"src", "srcset", "data", "action", "poster", "background"}
    for tag, attributes in page.elements:
        assert not loading & attributes.keys(), tag
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")


def test_no_two_elements_have_the_same_id(tmp_path, runs) -> None:
    _, page = make_page(tmp_path, runs)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) > 40 and sorted(ids) == sorted(set(ids))


def test_hostile_text_stays_text(tmp_path) -> None:
    folders = {name: tmp_path / str(number) for number, name in enumerate(["Base", *HOSTILE])}
    for folder in folders.values():
        make_eval(folder, "lab-easy", [3, 4], text=" ".join(HOSTILE))
        texts = [text.replace("\ud800", "") for text in HOSTILE]  # which no parquet file can hold
        make_table(folder / "tokens.parquet", [texts * 2], prompts=(" ".join(texts),))
    path = write_report(tmp_path / "r.html", folders, title=HOSTILE[0], settings={HOSTILE[1]: HOSTILE[5]})
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 4  # one runs, three hold data
    assert [tag for tag, _ in page.elements].count("style") == 1
    assert "img" not in [tag for tag, _ in page.elements]
    assert not any("onload" in attributes for _, attributes in page.elements)
    assert "{{ 7 * 7 }}" in page.text.replace("·", " ")
    assert not set(text) & set("\u202e\u2066\u200b\x00\x1b")
    assert "⟨U+202E⟩right⟨U+2066⟩to⟨U+200B⟩left⟨U+0000⟩⟨U+001B⟩[31m⟨U+D800⟩" in page.text
    assert HOSTILE[0].replace(" ", "·") in page_data(text)["examples"]["vocabulary"]["texts"]


def test_runs_that_lack_something_are_shown_without_it(tmp_path, runs) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    _, page = make_page(tmp_path, {"Nothing": empty})
    assert "None of the runs has been evaluated." in page.text
    assert "None of the runs has a token table" in page.text
    assert [a["href"] for tag, a in page.elements if tag == "a"] == ["#run"]  # no links to what is not there
    make_eval(empty, "lab-easy", [1, 2, 3])
    _, page = make_page(tmp_path, {**runs, "Half": empty})
    row = next(row for row in page.rows if row[0] == "Half")
    assert [cell.strip() for cell in row[2:]] == ["–", "–"]  # noqa: RUF001


def test_a_table_may_stand_alone_and_begin_anywhere(tmp_path) -> None:
    table = make_table(tmp_path / "some.parquet", [[]] * 300 + [["a", "b"], ["c"]])
    empty = make_table(tmp_path / "none.parquet", [])
    path = write_report(tmp_path / "r.html", {"None": empty, "Some": table}, title="")
    data = page_data(path.read_text(encoding="utf-8"))
    assert data["examples"]["numbers"] == [300, 301] and data["examples"]["lengths"] == [2, 1]
    assert [cells is None for cells in data["corpus"]] == [True, False]
    assert "All 3 trained tokens of 2 examples" in Page(path.read_text(encoding="utf-8")).text


def test_other_tokens_are_not_compared(tmp_path, runs) -> None:
    make_table(runs["SFT"] / "tokens.parquet", [["x"] * 3, ["c"] * 20])
    text, _ = make_page(tmp_path, runs)
    assert [run is None for run in page_data(text)["examples"]["runs"]] == [False, True, False]


def test_no_runs_and_missing_folders_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="runs: there are none"):
        write_report(tmp_path / "r.html", {}, title="", settings={})
    with pytest.raises(RunError, match="'SFT' has no folder"):
        write_report(tmp_path / "r.html", {"SFT": tmp_path / "no"}, title="", settings={})


@pytest.mark.parametrize("wrong", ["many", True, None, float("nan"), 0])
def test_a_parameter_that_is_no_number_is_named(tmp_path, runs, wrong) -> None:
    with pytest.raises(ValueError, match="bandwidth must be a finite number > 0, got"):
        write_report(tmp_path / "r.html", runs, title="", settings={"bandwidth": wrong})


def test_half_a_file_is_named(tmp_path, runs) -> None:
    (runs["SFT"] / "eval/lab-easy/scores.json").write_text('{"average"')
    with pytest.raises(RunError, match=r"scores.json: not readable as JSON"):
        make_page(tmp_path, runs)


def test_the_objective_is_the_configured_one_or_that_of_the_label(tmp_path) -> None:
    (tmp_path / "config.yaml").write_text("objective: trim-h\n")
    assert read_run("mine", tmp_path).objective == "trim-h"
    (tmp_path / "config.yaml").unlink()
    labels = {
        "TrimSFT-E": "trim-e",
        "TrimSFT": "trim",
        "trim_h": "trim-h",
        "DFT": "dft",
        "Base": None,
        "mine": None,
    }
    assert {label: read_run(label, tmp_path).objective for label in labels} == labels


@pytest.mark.parametrize(
    ("low", "high", "about", "ticks"),
    [(-3.5, 11, 10, [-2, 0, 2, 4, 6, 8, 10]), (0, 0.152, 4, [0, 0.05, 0.1, 0.15]), (0, 1, 4, [0, 0.5, 1])],
)
def test_ticks_are_round(low, high, about, ticks) -> None:
    assert _ticks(low, high, about) == ticks
