"""JSON and YAML from disk or network: read, or refused in one line; secrets by their names."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from trimsft.errors import RunError
from trimsft.runs.parsing import checked, parse_json, parse_yaml, read_json
from trimsft.runs.secrets import hide_secrets, without_secrets


@dataclass(frozen=True)
class Scores:
    problems: int
    accuracy: float = 0.5


@pytest.mark.parametrize("text", ["{", b"\xff\xfe{}", "[" * 100_000, "9" * 5000])
def test_json_that_is_none_gives_one_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        parse_json(text)


@pytest.mark.parametrize("text", ["[" * 5000, "a: 2001-99-99", "a: !!python/object:os.system x", "? [a]\n: 1"])
def test_yaml_that_cannot_be_settings_gives_one_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z"):
        parse_yaml(text)


def test_yaml_with_a_key_twice_is_refused() -> None:
    assert parse_yaml("a: {x: 1}\nb: {x: 2}\n'1': 3\n1: 4") == {"a": {"x": 1}, "b": {"x": 2}, "1": 3, 1: 4}
    with pytest.raises(ValueError, match="line 4: 'path' is there twice"):
        parse_yaml("models:\n  - {path: a}\n  - path: b\n    path: c")


def test_a_file_of_another_shape_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"problems": "many"}))
    with pytest.raises(RunError, match=r"scores.json: problems: .*, got 'many'; restore"):
        read_json(path, Scores)
    assert checked(Scores, {"problems": 3, "added later": 1}, where="x") == Scores(3)


@pytest.mark.parametrize(
    "name", ["token", "hub_token", "hf-token", "apiToken", "API-KEY", "passwd", "db_password", "client_secret"]
)
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert hide_secrets([f"--{name}", "x1", f"{name}=x1", f"--{name}=x1", f'{{"{name}": "x1"}}']) == [
        f"--{name}", "***", f"{name}=***", f"--{name}=***", "***",
    ]  # fmt: skip
    assert without_secrets({name: "x1", "inner": [{name: "x1", "rank": 8}]}) == {"inner": [{"rank": 8}]}
