"""Damaged records: files of runs with a bit flipped, cut short, or with other values than anybody would write."""

import json
import random
import re
from pathlib import Path

import pytest

from tests.report.page.pages import make_three
from tests.tokens.tiny import make_table
from trimsft.errors import TrimSFTError
from trimsft.report import CompareSettings, ReportSettings, compare, make_report

TEXTS = [["So", " the", " sum", " is", " 4", "2", "."], ["Thus", " x", " =", " 7", "."]]
VALUE = re.compile(rb'(?<=: )("[^"]*"|[\w.+-]+)')
ODD = b'null true -1 0 1.5 1e30 NaN Infinity "" "x" [] [[]] {} {"a":{}}'.split()


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


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the content after one misfortune: of a JSON another value, else a bit flipped, or the end is gone."""
    kind, start = rng.choice(["flip", "cut", "value", "value"]), rng.randrange(len(content))
    if kind == "cut":
        return content[:start]
    if kind == "value" and (values := list(VALUE.finditer(content))):
        value = rng.choice(values)
        return content[: value.start()] + rng.choice(ODD) + content[value.end() :]
    return content[:start] + bytes([content[start] ^ 1 << rng.randrange(8)]) + content[start + 1 :]


@pytest.mark.parametrize("seed", range(12))
def test_damaged_files_end_in_one_line(tmp_path, runs, seed) -> None:
    rng = random.Random(seed)
    path = rng.choice(sorted(path for run in runs.values() for path in run.rglob("*") if path.is_file()))
    whole = path.read_bytes()
    path.write_bytes(damaged(whole, rng))
    named = tuple(f"{label}={run}" for label, run in runs.items())
    refusals = []
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
