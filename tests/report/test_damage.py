"""Damaged records: files of runs with a bit flipped, cut short, or with other values than anybody would write."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.report.page.pages import make_three
from tests.tokens.tiny import make_table
from trimsft.errors import TrimSFTError
from trimsft.report import CompareSettings, ReportSettings, compare, make_report

TEXTS = [["So", " the", " sum", " is", " 4", "2", "."], ["Thus", " x", " =", " 7", "."]]
ODD: list[Any] = [None, True, -1, 0, 1.5, 10**30, float("nan"), float("inf"), "", "x", [], [[]], {}, {"a": {}}]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two runs with scores, samples, settings, configuration, manifest and token table."""
    made = make_three(tmp_path_factory.mktemp("runs"))
    del made["Base"]
    for shift, run in enumerate(made.values()):
        make_table(run / "tokens.parquet", TEXTS, shift=float(shift), prompts=("What is it?", "And x?"))
        (run / "config.yaml").write_text("objective: trim\nmargin: 1.5\n")
        manifest = {"model": {"name": "m"}, "versions": {"torch": "2"}, "command": "c"}
        (run / "manifest.json").write_text(json.dumps(manifest))
    return made


def damaged(content: bytes, name: str, rng: random.Random) -> bytes:
    """Return the content after one misfortune."""
    kind = rng.choice(["flip", "cut", "zero", "value", "value", "value"])
    start = rng.randrange(len(content))
    if kind == "cut":
        return content[:start]
    if kind == "zero":
        return content[:start] + bytes(min(64, len(content) - start)) + content[start + 64 :]
    if kind == "value" and name.endswith((".json", ".jsonl")):
        lines = content.splitlines() if name.endswith(".jsonl") else [content]
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(with_other_value(json.loads(lines[place]), rng)).encode()
        return b"\n".join(lines) + b"\n"
    flipped = bytearray(content)
    flipped[start] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def with_other_value(record: Any, rng: random.Random) -> Any:
    """Replace one value somewhere within, or take it away."""
    inner = list(record) if isinstance(record, dict) else list(range(len(record))) if isinstance(record, list) else []
    if not inner or rng.random() < 0.1:
        return rng.choice(ODD)
    key = rng.choice(inner)
    if rng.random() < 0.2:
        del record[key]
    else:
        record[key] = with_other_value(record[key], rng)
    return record


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_file_is_shown_or_refused_in_one_line(tmp_path, runs, seed) -> None:
    rng = random.Random(seed)
    path = rng.choice(sorted(path for run in runs.values() for path in run.rglob("*") if path.is_file()))
    whole = path.read_bytes()
    path.write_bytes(damaged(whole, path.name, rng))
    named = tuple(f"{label}={run}" for label, run in runs.items())
    refusals: list[TrimSFTError] = []
    try:
        for make in (
            lambda: compare(CompareSettings(runs=tuple(runs.values()))).render("markdown"),
            lambda: make_report(ReportSettings(runs=named, out=tmp_path)),
        ):
            try:
                make()
            except TrimSFTError as error:
                refusals.append(error)
    finally:
        path.write_bytes(whole)
    assert all(error.exit_code == 2 and "\n" not in str(error) for error in refusals)
