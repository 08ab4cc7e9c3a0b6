"""The fault campaign in seconds: what is right survives, and what is deliberately broken is lost.

A command of a few lines (`counting.py`) stands in for trimsft; a few trials of the cheap kinds try trimsft itself.
"""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from tools.soak import __main__ as soak
from tools.soak import faults, trials
from tools.soak.trials import Bench, Command, Reference, Trial, result_of


class CountingBench(Bench):
    """A bench for the small command, broken in one way; undisturbed, it is right."""

    def __init__(self, folder: Path, how: str = "right") -> None:
        self.folder, self.how = folder, how
        whole = folder / "whole"
        whole.mkdir()
        (whole / "counted.csv").write_text("".join(f"{number}\n" for number in range(40)))
        self.whole = Reference(whole, 1.0, result_of(whole))

    def words(self, command: str, out: str = "out", model: str | None = None) -> list[str]:
        return [self.how, out]

    def reference(self, command: str) -> Reference:
        return self.whole


def half_way(trial: Trial, started: Command, command: str) -> str:
    """In the place of a random moment: when the small command waits to be ended, or is over."""
    while started.is_running(0.01) and not (trial.out / "counted.csv").exists():
        pass
    return "half-way"


@pytest.fixture
def counting(monkeypatch) -> None:
    monkeypatch.setattr(Command, "program", (sys.executable, "-m", "tests.tools.counting"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(Trial, "wait_for_moment", half_way)


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize(
    ("how", "attempt", "says"),
    [
        ("right", faults.kill, ""),
        ("differs", faults.kill, "counted.csv differs from an undisturbed run"),
        ("fails", faults.kill, "a traceback: ValueError: a bug"),
        ("leaves a child", faults.kill, "still running after"),
        ("right", faults.ask_to_end, ""),
        ("hangs", faults.ask_to_end, "still running after"),
    ],
)
def test_what_is_broken_is_lost(how, attempt, says, tmp_path, monkeypatch) -> None:
    for module in (trials, faults):
        monkeypatch.setattr(module, "GONE", 1.0 if how in ("hangs", "leaves a child") else 30.0)
    monkeypatch.setitem(soak.KINDS, "counting", (1, partial(attempt, command="count")))
    record = tmp_path / "trials.jsonl"
    soak.attempt("counting", 0, 1, CountingBench(tmp_path, how), record)
    (line,) = record.read_text().splitlines()
    lost = json.loads(line)["lost"]
    assert says in lost and bool(lost) == bool(says)
    assert (tmp_path / "counting-0").exists() == bool(lost)  # kept if it was lost
