"""The command that runs all measurements of a GPU: what is done stays, what got slower is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.gpu import PARTS, Part, main, ratios

WRITES = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('1'); print('said')"
COPIES = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"
PEER = "TRL SFT, Liger"
Slower = dict[tuple[str, str], float]
SPEEDS = {  # thousand tokens a second of 8 rows: the peer, ours
    "padding": {PEER: 33.6, "TrimSFT, Liger": 41.5, "AutoTrim, Liger": 38.9},
    "packing": {PEER: 19.5, "TrimSFT, Liger": 47.8, "AutoTrim, Liger": 45.5},
}


def part(name: str, code: str, *words: str, seconds: int = 60) -> Part:
    return Part(name, ("-c", code, *words), seconds)


def test_a_part_is_done_once(tmp_path) -> None:
    parts = [part("one", WRITES, "{out}"), part("long", WRITES, "{out}", seconds=90)]
    assert main(["--out", str(tmp_path), "--minutes", "1.2"], parts) == 0
    assert (tmp_path / "one.json").read_text() == "1"
    assert (tmp_path / "one.log").read_text() == "said\n"
    (tmp_path / "one.json").write_text("as it was")
    assert main(["--out", str(tmp_path), "--minutes", "1.2"], parts) == 0
    assert (tmp_path / "one.json").read_text() == "as it was"
    assert not (tmp_path / "long.json").exists()


def test_a_failure_stops_nothing_else_and_is_tried_again(tmp_path, capsys) -> None:
    parts = [
        part("fails", "import sys; sys.exit(3)"),
        part("hangs", "import signal; signal.pause()", seconds=1),
        part("works", WRITES, "{out}"),
    ]
    assert main(["--out", str(tmp_path)], parts) == 1
    fails, hangs, works = capsys.readouterr().out.splitlines()
    assert fails.startswith("fails: failed") and fails.endswith("code 3, see fails.log")
    assert hangs.startswith("hangs: failed") and works.startswith("works: done in")
    assert main(["--out", str(tmp_path), "--only", "fail"], parts) == 1
    assert {path.name for path in tmp_path.glob("*.done")} == {"works.done"}


def report(slower: Slower, machine: float = 1.0) -> dict[str, Any]:
    """Return results of steps, some slower by a share, all of them on another machine."""
    return {
        "results": [
            {
                "method": method, "variant": variant, "micro_batch": 8,
                "tokens_per_second": 1000 * speed * machine * (1 - slower.get((variant, method), 0.0)),
            }
            for variant, methods in SPEEDS.items()
            for method, speed in methods.items()
        ]
    }  # fmt: skip


def run_check(folder: Path, first: Slower, second: Slower | None = None) -> int:
    """Check a run that was slower so, and so when measured again, on a machine half as fast."""
    (folder / "kept").mkdir()
    (folder / "kept" / "steps.json").write_text(json.dumps(report({})))
    for name, slower in (("first", first), ("second", first if second is None else second)):
        (folder / f"{name}.json").write_text(json.dumps(report(slower, machine=0.5)))
    words = ("-c", COPIES, str(folder / "second.json"), "{out}")
    steps = Part("steps", words, 60, "steps.json", PEER, is_short=True)
    (folder / "steps.json").write_text((folder / "first.json").read_text())
    (folder / "steps.done").touch()
    return main(["--out", str(folder), "--check", "--short"], [steps, part("head", "1/0")], folder / "kept")


PADDING = ("padding", "TrimSFT, Liger")


@pytest.mark.parametrize(
    ("first", "second", "fell"),
    [
        ({PADDING: 0.1}, None, True),
        ({}, {}, False),  # the machine is slower, the ratios are what they were
        ({PADDING: 0.04}, None, False),
        ({PADDING: 0.1}, {("packing", "TrimSFT, Liger"): 0.1}, False),  # something else in the second
        ({("padding", PEER): 0.1}, None, False),  # the peer is slower
    ],
)
def test_what_slowed_in_two_runs_is_named(first, second, fell, tmp_path, capsys) -> None:
    assert run_check(tmp_path, first, second) == fell
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("FELL") for line in lines) == fell
    assert (lines[-1] == "  padding, 8 rows: TrimSFT, Liger") == fell


@pytest.mark.parametrize("one", PARTS, ids=lambda one: one.name)
def test_every_part_is_a_command_whose_kept_results_can_be_compared(one) -> None:
    assert one.words[:2] == ("-m", "pytest") or ((gpu.ROOT / one.words[0]).is_file() and "{out}" in one.words)
    if one.kept:
        found = ratios(json.loads((gpu.ROOT / "results" / one.kept).read_text()), one.peer)
        assert all(0 < ratio < 10 for ratio in found.values())
        assert found or one.name not in ("steps", "steps_compiled", "steps_packing", "steps_lora", "head", "tokens")


def test_results_are_kept_cell_by_cell(tmp_path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "train_step.json").write_text(json.dumps(report({})))
    new = {"results": [one for one in report({PADDING: 0.1})["results"] if one["variant"] == "padding"]}
    (tmp_path / "steps.json").write_text(json.dumps(new))
    steps = Part("steps", (), 60, "train_step.json", PEER)
    assert main(["--out", str(tmp_path), "--keep"], [steps], kept) == 0
    found = ratios(json.loads((kept / "train_step.json").read_text()), PEER)
    assert len(found) == 4 and found["padding, 8 rows: TrimSFT, Liger"] == pytest.approx(0.9 * 41.5 / 33.6)
