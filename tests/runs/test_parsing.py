"""JSON and YAML from disk or network: read, or refused in one line."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import RunError
from trimsft.runs.parsing import ParseError, checked, parse_json, parse_yaml, read_json

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
MERGED = "a0: &a0 {x0: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], x{n}: 1}}\n" for n in range(1, 40))


@dataclass(frozen=True)
class Scores:
    problems: int
    accuracy: float


@dataclass(frozen=True)
class Facts:
    seed: int
    name: str = "run"


@pytest.mark.parametrize("text", ["{", b"\xff\xfe{}", "[" * 100_000, "9" * 5000, b"", "\x00"])
def test_json_that_is_none_gives_one_error(text: str | bytes) -> None:
    with pytest.raises(ParseError) as refused:
        parse_json(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        MERGED,
        "a: &a [*a]",
        "&a {b: *a}",
        "[" * 5000,
        "- " * 3000 + "x",
        "a: 2001-99-99",
        "a: " + "9" * 5000,
        "a: !!python/object:os.system x",
        "a: [1",
        "a: 1\n---\nb: 2",
        "? [a]\n: 1",
        "x" * (2**20 + 1),
        "a: \x00",
    ],
    ids=str.strip,
)
def test_yaml_that_cannot_be_settings_gives_one_error(text: str) -> None:
    with pytest.raises(ParseError) as refused:
        parse_yaml(text)
    assert "\n" not in str(refused.value)


def test_yaml_keeps_anchors_and_merges_that_are_of_use() -> None:
    assert parse_yaml("base: &base {a: 1, b: 2}\nrun: {<<: *base, b: 3}") == {
        "base": {"a": 1, "b": 2},
        "run": {"a": 1, "b": 3},
    }
    assert parse_yaml("") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("margin: 1\nmargin: 2", "line 2: 'margin' is there twice"),
        ("models:\n  - {path: a}\n  - path: b\n    path: c", "line 4: 'path' is there twice"),
    ],
)
def test_yaml_with_a_key_twice_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_yaml(text)


def test_yaml_may_name_a_key_once_in_each_object() -> None:
    assert parse_yaml("a: {x: 1}\nb: {x: 2}\n'1': 3\n1: 4") == {"a": {"x": 1}, "b": {"x": 2}, "1": 3, 1: 4}


@given(st.text() | st.binary())
def test_no_text_gives_another_error(text: str | bytes) -> None:
    for parse in (parse_json, parse_yaml):
        if parse is parse_yaml and isinstance(text, bytes):
            continue
        with contextlib.suppress(ParseError):
            parse(text)  # type: ignore[operator]


def test_a_file_of_another_shape_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"problems": "many", "accuracy": 0.5}))
    with pytest.raises(RunError, match=r"scores.json: problems: input should be a valid integer, got 'many'; restore"):
        read_json(path, Scores)
    path.write_text("[" * 100_000)
    with pytest.raises(RunError, match=r"scores.json: invalid JSON"):
        read_json(path, Scores)
    path.write_text(json.dumps({"problems": 3, "accuracy": 0.5, "added later": 1}))
    assert read_json(path, Scores) == Scores(3, 0.5)


def test_a_parsed_value_becomes_its_type() -> None:
    assert checked(Facts, {"seed": 3}, where="manifest.json") == Facts(3)
    with pytest.raises(RunError, match=r"manifest.json: seed: field required"):
        checked(Facts, {"name": "x"}, where="manifest.json")
