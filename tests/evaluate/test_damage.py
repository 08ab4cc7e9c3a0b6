"""Records that somebody or something has damaged: the same scores again, or one line; never a traceback."""

import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import TrimSFTError
from trimsft.evaluate import Evaluated

from .scripted import ScriptedEngine
from .test_run import KNOWN, able, benchmark, run_eval

__all__ = ["benchmark", "run_eval"]

VALUES = [None, 0, -7, 1.5, 10**30, "x", "", True, [], {}, ["x"], {"a": 1}, math.nan, "\ud83d", "9" * 50]
FILES = [b"", b"\0" * 100, b"[" * 100_000, b"{}", b"null", b"\xff\xfe"]
JUNK = [b"\n", b"[", b"9" * 5000, b"\xff", b"{" * 3000]
MADE = ("settings.json", "problems.jsonl", "samples.jsonl", "grades.jsonl", "scores.json")


def changed(value: Any, dice: random.Random) -> Any:
    """The value with one thing in it left out or replaced."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        name = dice.choice(list(value))
        less = {key: entry for key, entry in value.items() if key != name}
        return less if dice.random() < 0.2 else {**value, name: changed(value[name], dice)}
    if isinstance(value, list) and value and dice.random() < 0.7:
        at = dice.randrange(len(value))
        return [*value[:at], changed(value[at], dice), *value[at + 1 :]]
    return dice.choice(VALUES)


def damaged(content: bytes, is_lines: bool, dice: random.Random) -> bytes:
    at, how = dice.randrange(len(content)), dice.random()
    if how < 0.6:
        lines = content.split(b"\n")[:-1] if is_lines else [content]
        number = dice.randrange(len(lines))
        lines[number] = json.dumps(changed(json.loads(lines[number]), dice)).encode()
        return b"\n".join(lines) + b"\n"
    if how < 0.7:
        return content[:at]
    if how < 0.8:
        return content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]
    if how < 0.9:
        return dice.choice(FILES)
    return content * 2 if how < 0.95 else content[:at] + dice.choice(JUNK) + content[at:]


@pytest.mark.parametrize("count", [40, pytest.param(1500, marks=pytest.mark.soak)])
def test_a_damaged_record_gives_the_same_scores_or_one_line(
    count: int, run_eval: Callable[..., Evaluated], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine, dice, refused = ScriptedEngine(able, identity=KNOWN), random.Random(1), list[str]()
    good = run_eval(engine, samples=2, limit=3).scores
    for _ in range(count):
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
        shutil.copytree(tmp_path / "run", tmp_path / "damaged")
        path = tmp_path / "damaged/eval/sums" / dice.choice(MADE)
        path.write_bytes(damaged(path.read_bytes(), path.suffix == ".jsonl", dice))
        try:
            assert run_eval(engine, samples=2, limit=3, out=tmp_path / "damaged").scores == good
        except TrimSFTError as error:
            refused.append(str(error))
    assert count / 4 < len(refused) < count
    assert all(len(line.splitlines()) == 1 for line in refused)
