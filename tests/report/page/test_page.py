"""The page as a file: what it holds of runs, says of its own making, and cannot be made to hold."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.report.page.pages import ATTACK, HIDDEN, HOSTILE, HOSTILE_TEXTS, Page, make_evaluated, page_of
from tests.tokens.tiny import make_table
from trimsft.errors import UsageError
from trimsft.report.page.build import json_for_script

TEXTS = [["a", "b"], ["c", "d", "e"]]


def table(path: Path, texts=TEXTS, **facts) -> Path:
    """A token table whose metadata says so."""
    make_table(path, texts, prompts=tuple(f"P{n}?" for n in range(len(texts))))
    content = pq.read_table(path)
    how = {"template": "chat", "system_prompt": None, "max_length": None}
    metadata = json.loads(content.schema.metadata[b"trimsft"]) | how | facts
    pq.write_table(content.replace_schema_metadata({b"trimsft": json.dumps(metadata)}), path)
    return path


# ---- what it cannot be made to hold


def test_nothing_is_loaded(page) -> None:
    read = Page(page)
    policy = next(a["content"] for tag, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    addresses = re.findall(r"https?://[^\s\"'<]+", read.html)
    assert {address.split("/")[2] for address in addresses} == {"www.w3.org"}  # namespaces
    loading = {"src", "srcset", "data", "action", "poster", "background"}
    for tag, attributes in read.elements:
        assert not loading & attributes.keys(), tag
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) > 30 and sorted(ids) == sorted(set(ids))
    assert read.tabs == ["#tokens", "#scores", "#answers", "#details"]


def test_hostile_text_stays_text(page, tmp_path) -> None:
    runs = {label: tmp_path / str(place) for place, label in enumerate(["Base", *HOSTILE])}
    for run in runs.values():
        make_evaluated(run, "easy", {ATTACK: "1 2 2 1"}, text=ATTACK, problem=f"{ATTACK}%s")
        make_table(run / "tokens.parquet", [HOSTILE_TEXTS * 2], prompts=(ATTACK,))
    read = page_of(tmp_path, runs, title=HOSTILE_TEXTS[0], settings={HOSTILE_TEXTS[1]: HOSTILE[5]})
    usual = Page(page)
    for tag, attributes in read.elements:
        assert any(tag == known and attributes.keys() <= those.keys() for known, those in usual.elements), tag
    assert [tag for tag, _ in read.elements].count("script") == 2  # one runs, one holds data
    assert "{{ 7 * 7 }}" in read.text and not set(read.html) & HIDDEN
    assert "⟨U+202E⟩right⟨U+2066⟩to⟨U+200B⟩left⟨U+0000⟩⟨U+001B⟩[31m⟨U+D800⟩" in read.text
    assert HOSTILE[0] in read.data["tokens"]["texts"]
    assert not set(json.dumps(read.answers, ensure_ascii=False)) & HIDDEN


def test_a_page_names_no_folder_of_its_maker(tmp_path) -> None:
    """It is made to be shared; what lies where is known by the last part of its path."""
    runs = {label: make_evaluated(tmp_path / label, "easy", {"e0": "1 1"}) for label in ("a", "b")}
    table(runs["a"] / "tokens.parquet", model=str(tmp_path / "models/base"))
    (runs["b"] / "manifest.json").write_text(json.dumps({"command": f"{tmp_path}/__main__.py --out={tmp_path}/b x/y"}))
    read = page_of(tmp_path, runs, settings={"data": str(tmp_path / "rows.jsonl")})
    assert str(tmp_path) not in read.html and read.data["tokens"]["path"] == "base"
    assert read.facts["data"] == "rows.jsonl" and read.facts["command of b"] == "__main__.py --out=b x/y"
    assert read.facts["run a"] == "a; tokens: model base, data.rows 2, template chat"


# ---- what it says where something is missing


def test_what_was_run(tmp_path) -> None:
    cut = {"rows_cut": 3, "tokens_cut": 1204, "rows_lost": 1}
    runs = {
        "A": table(tmp_path / "a.parquet", max_length=64, cut=cut),
        "Same": table(tmp_path / "same.parquet", max_length=64),
        "Other": table(tmp_path / "b.parquet", system_prompt="<b>hello", data={"rows": 2, "sha256": "f" * 64}),
    }
    settings = {"lab": {"rows": 480, "tiers": ["a", "b"], "base": ""}, "command": "trimsft quickstart"}
    read = page_of(tmp_path, runs, settings=settings)
    assert read.facts["lab.rows"] == "480" and read.facts["lab.tiers"] == "a, b" and "lab.base" not in read.facts
    assert read.facts["run A"].endswith("tokens: model m, data.rows 2, template chat, max_length 64")
    assert "system_prompt <b>hello" in read.facts["run Other"]
    assert "A: 3 rows were cut by 1,204 tokens, 1 of them with the whole solution, at max_length." in read.words
    assert "'A' and 'Other' are not about the same tokens" in read.words and "'Same'" not in read.words


# ---- tokens


def test_methods_that_are_shown(tmp_path, three) -> None:
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide" / "config.yaml").write_text("objective: trim\nmargin: 3.0\n")
    sides = page_of(tmp_path, {**three, "wide": tmp_path / "wide"}, objectives=("p-alpha",)).data["tokens"]["sides"]
    assert [side["name"] for side in sides] == ["SFT", "TrimSFT", "wide", "p^alpha"]
    assert [side.get("margin") for side in sides] == [None, 1.5, 3.0, None] and "weights" in sides[3]
    alone = page_of(tmp_path, {"Base": three["Base"] / "tokens.parquet"}).data["tokens"]["sides"]
    assert [side["name"] for side in alone] == ["SFT", "DFT", "TrimSFT", "AutoTrim"]
    with pytest.raises(UsageError, match="nothing"):
        page_of(tmp_path, three, objectives=("nothing",))


def test_steps_that_are_no_story(tmp_path) -> None:
    right = [["2", " + ", "2", " = ", "5"]]
    known = make_table(tmp_path / "known.parquet", right, gap=[-2.0, 3.0, 3.0, 3.0, 30.0])  # it means something else
    assert page_of(tmp_path, {"Base": known}).data["tokens"]["wrong"] == []
    asked = make_table(tmp_path / "asked.parquet", right, gap=[3.0, 3.0, 3.0, 3.0, -9.0])
    assert len(page_of(tmp_path, {"Base": asked}).data["tokens"]["wrong"]) == 1


def test_json_survives_and_cannot_end_its_element() -> None:
    text = json_for_script(data := ["</script><!-- & \u2028", 1.5])
    assert json.loads(text) == data
    assert text.isascii() and not set(text) & set("<>&")
