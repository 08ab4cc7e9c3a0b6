"""The page as a file: what it holds of runs, says of its own making, and cannot be made to hold."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.report.page.pages import (
    HIDDEN,
    HOSTILE,
    HOSTILE_TEXTS,
    Page,
    make_eval,
    make_evaluated,
    make_telemetry,
    page_of,
)
from tests.tokens.tiny import make_table
from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.errors import RunError
from trimsft.report.page.build import write_report
from trimsft.report.page.details_tab import cut_words, table_facts

TEXTS = [["a", "b"], ["c", "d", "e"]]
HOW = {"template": "chat", "system_prompt": None, "max_length": None}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Base, SFT and TrimSFT, evaluated on two benchmarks and with token tables."""
    folder = tmp_path_factory.mktemp("runs")
    runs = {"Base": folder / "base", "SFT": folder / "sft", "TrimSFT": folder / "trim"}
    counts = [([1, 2, 3], [0, 4]), ([2, 4, 3], [1, 5]), ([8, 3, 3], [7, 5])]
    for number, (run, (easy, hard)) in enumerate(zip(runs.values(), counts, strict=True)):
        make_eval(run, "lab-hard", hard)
        make_eval(run, "lab-easy", easy)
        make_table(run / "tokens.parquet", [[" a", "b\n"] * 8, ["c"] * 15], shift=number, prompts=("P?",))
    manifest = {"command": "trimsft train x", "versions": {"trl": "1"}}
    for label in ("SFT", "TrimSFT"):
        (runs[label] / "manifest.json").write_text(json.dumps(manifest))
    return runs


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory) -> Page:
    settings = {"lab": {"rows": 480, "tiers": ["a", "b"], "base": ""}, "command": "trimsft quickstart"}
    return page_of(tmp_path_factory.mktemp("out") / "made", runs, settings=settings)


def table(path: Path, texts=TEXTS, **facts) -> Path:
    """A token table whose metadata says so."""
    make_table(path, texts, prompts=tuple(f"P{n}?" for n in range(len(texts))))
    content = pq.read_table(path)
    metadata = json.loads(content.schema.metadata[b"trimsft"]) | HOW | facts
    pq.write_table(content.replace_schema_metadata({b"trimsft": json.dumps(metadata)}), path)
    return path


def test_one_trained_run_is_told_by_its_training_log(tmp_path) -> None:
    """Nobody would train it once more by SFT, and nothing is known of before the training but the log."""
    run = make_telemetry(tmp_path / "mine", "trim", mean_token_accuracy=[0.76, 0.8, 0.815])
    make_table(run / "tokens.parquet", [["3", " * ", "8", " = ", "25"]], gap=[5, 5, 5, 5, -6])
    page = page_of(tmp_path, {"mine": run})
    known = "the training log of mine, tokens that its model would have written differently: 24 % at step 1 and 18 % at"
    assert f"{known} step 3." in page.words
    assert "SFT spends" not in page.words and "is before training" not in page.words
    rows = {row[0]: row[1:] for row in page.rows if len(row) in (3, 8)}
    assert rows["SFT"] == ["\u2013"] * 2 and rows["TrimSFT"][0] == "\u2013" and len(rows["TrimSFT"]) == 7


def test_auto_trim_is_weighed_before_and_after(tmp_path) -> None:
    auto = make_telemetry(tmp_path / "auto", "auto-trim", gate=[1.0, 0.5, 0.0], exponent=[1.0, 1.0, 3.0])
    for path in (auto / "tokens.parquet", tmp_path / "base.parquet"):
        make_table(path, [["a", "b"]], gap=[0.0, 0.0])  # p = 1/2
    page = page_of(tmp_path, {"Base": tmp_path / "base.parquet", "Auto": auto})
    row = next(row[1:] for row in page.rows if row[0] == "AutoTrim" and len(row) == 13)
    assert (row[0], row[6]) == ("0.750", "0.125")  # 0.5 + 0.5 p, and p^3
    words = "before, at step 2 (gate 0.50, exponent 1.00); after, at step 3 (gate 0.00, exponent 3.00)"
    assert words in page.words


def test_a_page_names_no_folder_of_its_maker(tmp_path) -> None:
    """It is made to be shared; what lies where is known by the last part of its path."""
    runs = {label: make_evaluated(tmp_path / label, "easy", {"e0": "1 1"}) for label in ("a", "b")}
    table(runs["a"] / "tokens.parquet", model=str(tmp_path / "models/base"))
    (runs["b"] / "manifest.json").write_text(json.dumps({"command": f"{tmp_path}/__main__.py --out={tmp_path}/b x/y"}))
    page = page_of(tmp_path, runs, settings={"data": str(tmp_path / "rows.jsonl")}, title="t")
    assert str(tmp_path) not in page.html
    assert page.facts["data"] == "rows.jsonl" and page.facts["command of b"] == "__main__.py --out=b x/y"
    assert page.facts["a"].startswith("a; tokens of base") and page.data("evaluation")["folders"] == ["a", "b"]


def test_the_page_says_what_was_run(page) -> None:
    rows = page.facts
    assert rows["lab.rows"] == "480" and rows["lab.tiers"] == "a, b" and rows["command"] == "trimsft quickstart"
    assert rows["command of SFT, TrimSFT"] == "trimsft train x"
    assert "lab.base" not in rows and all(rows.values())  # what is empty has no row
    assert rows["versions"] == "transformers 5, torch 2, trl 1"


def test_nothing_is_loaded_and_only_its_own_style_and_script_are_allowed(page) -> None:
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    addresses = re.findall(r"https?://[^\s\"'<]+", page.html)
    assert {address.split("/")[2] for address in addresses} == {"www.w3.org"}  # namespaces
    loading = {"src", "srcset", "data", "action", "poster", "background"}
    for tag, attributes in page.elements:
        assert not loading & attributes.keys(), tag
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) > 40 and sorted(ids) == sorted(set(ids))


def test_hostile_text_stays_text(tmp_path) -> None:
    """The page has the elements that a page of plain texts has."""
    pages = []
    for kind, texts in (("plain", ["word"] * len(HOSTILE_TEXTS)), ("hostile", HOSTILE_TEXTS)):
        written = "".join(texts).replace("%", "")
        labels = ["Base", *(HOSTILE if kind == "hostile" else map(str, range(len(HOSTILE))))]
        runs = {label: tmp_path / kind / str(place) for place, label in enumerate(labels)}
        for number, run in enumerate(runs.values()):
            answers = {
                f"{written}{place}": words
                for place, words in enumerate(("1 2 2 1", "1 1 1 1" if number else "2 2 2 2"))
            }
            make_evaluated(run, "easy", answers, text=written, problem=f"{written}%s")
            make_table(run / "tokens.parquet", [texts * 2], prompts=(" ".join(texts),))
        pages.append(page_of(tmp_path / kind, runs, texts[0], settings={texts[1]: HOSTILE[5]}))
    plain, page = pages
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert [attributes.keys() for _, attributes in page.elements] == [
        attributes.keys() for _, attributes in plain.elements
    ]
    assert [tag for tag, _ in page.elements].count("script") == 3  # one runs, two hold data
    assert "{{ 7 * 7 }}" in page.text.replace("·", " ")
    assert not set(page.html) & HIDDEN
    assert "⟨U+202E⟩right⟨U+2066⟩to⟨U+200B⟩left⟨U+0000⟩⟨U+001B⟩[31m⟨U+D800⟩" in page.text
    assert HOSTILE[0] in page.data()["examples"]["vocabulary"]["texts"]


def test_runs_that_lack_something_are_shown_without_it(tmp_path, runs) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    page = page_of(tmp_path, {"Nothing": empty})
    assert "None of the runs has been evaluated." in page.text
    assert "None of the runs has a token table" in page.text
    assert page.links() == ["#run"]  # none to what is not there
    make_eval(empty, "lab-easy", [1, 2, 3])
    row = next(row for row in page_of(tmp_path, {**runs, "Half": empty}).rows if row[0] == "Half")
    assert row[2:] == ["–", "–"]  # noqa: RUF001


def test_what_cannot_be_read_is_named(tmp_path) -> None:
    with pytest.raises(ValueError, match="runs: there are none"):
        write_report(tmp_path / "r.html", {}, title="")
    with pytest.raises(RunError, match=r"'SFT'.* run directory"):
        write_report(tmp_path / "r.html", {"SFT": tmp_path / "no"}, title="")
    make_eval(tmp_path / "half", "lab-easy", [1])
    for wrong in ("many", True, None, float("nan"), 0):
        with pytest.raises(ValueError, match="bandwidth: must be a finite number > 0, got"):
            page_of(tmp_path, {"Half": tmp_path / "half"}, settings={"bandwidth": wrong})
    (tmp_path / "half/eval/lab-easy/scores.json").write_text('{"average"')
    with pytest.raises(RunError, match=r"scores.json: invalid JSON"):
        page_of(tmp_path, {"Half": tmp_path / "half"})


def test_runs_have_the_lines_of_their_methods_in_every_chart(tmp_path) -> None:
    """By what they were trained with, or else by their label; another run has a line that no method here needs."""
    runs = {label: tmp_path / label for label in ("TrimSFT", "mine", "Base", "SFT")}
    for run in runs.values():
        make_eval(run, "lab-easy", [1, 2])
        make_table(run / "tokens.parquet", TEXTS)
    (runs["SFT"] / "config.yaml").write_text("objective: dft\n")
    page = page_of(tmp_path, runs)
    drawn = re.findall(r'class="(series|disc|diamond) line-([\w-]+)"', page.html)
    of_kind = {kind: [line for other, line in drawn if other == kind] for kind, _ in drawn}
    lines = ["trim", of_kind["disc"][1], "base", "dft"]
    assert of_kind == {"disc": lines * 2, "diamond": lines * 2, "series": lines * 3}  # wide, narrow, and the legend
    assert lines[1] not in ("trim", "base", "dft")


def test_what_was_run_names_template_system_prompt_and_length(tmp_path) -> None:
    runs = {
        "A": table(tmp_path / "a.parquet"),
        "B": table(tmp_path / "b.parquet", system_prompt="<b>hello", max_length=2048),
    }
    rows = page_of(tmp_path, runs).facts
    how = "tokens of m, 2 rows, template chat"
    assert rows["A"].endswith(f"{how}, the usual system prompt, no limit of length")
    assert rows["B"].endswith(f"{how}, system prompt “<b>hello”, rows of at most 2,048 tokens")
    assert "no system prompt" in table_facts({"system_prompt": "", "max_length": 0})
    assert table_facts({"model": "m"}) == "tokens of m, ? rows"  # of a file that does not say more
    rows = page_of(tmp_path, {"margin": runs["A"]}, settings={"margin": 2.0}).facts
    assert rows["margin"] == "2.0" and "tokens of m" in rows["run margin"]


def test_cut_and_lost_rows_are_named(tmp_path) -> None:
    cut = {"rows_cut": 3, "tokens_cut": 1204, "rows_lost": 1}
    page = page_of(tmp_path, {"A": table(tmp_path / "a.parquet", max_length=64, cut=cut)})
    words = "3 rows cut by 1,204 tokens, 1 of them with the whole solution"
    assert f"Not all of the data is here. A: {words}, at max_length 64." in page.words
    assert list(page.facts.values())[-1].endswith(words)
    none = {"rows_cut": 0, "tokens_cut": 0, "rows_lost": 0}
    page = page_of(tmp_path, {"A": table(tmp_path / "a.parquet", max_length=64, cut=none)})
    assert "Not all of the data" not in page.text and cut_words({}) == ""


def test_tables_that_do_not_compare_are_named_with_the_reason(tmp_path) -> None:
    runs = {
        "A": table(tmp_path / "a.parquet"),
        "Same": table(tmp_path / "same.parquet"),
        "Hello": table(tmp_path / "h.parquet", system_prompt="hello"),
        "Other": table(tmp_path / "b.parquet", data={"rows": 2, "sha256": "f" * 64}),
        "Shorter": table(tmp_path / "c.parquet", [["a", "b"], ["c"]], max_length=3),
    }
    text = page_of(tmp_path, runs).words
    assert "Not all tables compare." in text and "all on the same examples" not in text
    assert "'A' and 'Other' are not about the same tokens: data is 2 rows, None" in text
    assert "'A' and 'Hello' are not about the same tokens: system_prompt is" in text
    assert "'A' and 'Shorter' are not about the same tokens" in text and "'Same'" not in text
    assert "so not to be compared with it: Hello, Other, Shorter." in text
    page = page_of(tmp_path, {name: runs[name] for name in ("A", "Same")})
    assert "compare" not in page.text.split("What was run")[0].replace("--", "")
    assert "Same" in page.text and "all on the same examples" in page.words


@pytest.mark.parametrize(
    ("facts", "texts", "missing"),
    [
        ({}, TEXTS, []),
        ({"system_prompt": SYSTEM_PROMPT}, TEXTS, []),  # which is the usual one
        ({"system_prompt": "hello"}, TEXTS, None),
        ({"template": "plain"}, TEXTS, None),
        ({"prompts": ["P0?", "Another?"]}, TEXTS, [1]),
        ({"max_length": 2048}, TEXTS, []),  # where it cuts nothing of an example, it changes nothing
        ({}, [["x"] * 3, ["c"] * 20], None),
    ],
)
def test_other_prompts_and_tokens_are_not_set_beside_each_other(tmp_path, facts, texts, missing) -> None:
    runs = {"A": table(tmp_path / "a.parquet"), "B": table(tmp_path / "b.parquet", texts, **facts)}
    run = page_of(tmp_path, runs).data()["examples"]["runs"][1]
    assert (run and run["missing"]) == missing
