"""The fault campaign in seconds: it survives what is right, and loses what is deliberately broken.

A command of a few lines (`counting.py`) stands in for trimsft; a few trials of the cheap kinds try trimsft itself.
"""

import json
import os
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from tools.soak import __main__ as soak
from tools.soak import inputs, kills, signals
from tools.soak.bench import Bench, Made, Reference, wait_until
from tools.soak.campaign import Campaign, Kind, Lost, Skipped, Trial, require_same, require_told
from tools.soak.children import HUNG, Child, Children, Ended
from tools.soak.results import result_of
from trimsft import lab
from trimsft.cli import app


class CountingChildren(Children):
    """Starts the small command where a fork of trimsft is asked for."""

    def fork(self, words, folder, log="log", **more):
        return self.start(words, folder, log, program=["tests.tools.counting"], **more)


class CountingBench(Bench):
    """A bench for the small command, broken in one way; undisturbed, it is right."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder, self.how, self.children = folder, how, CountingChildren()
        self.made = Made(folder / "made")
        whole = folder / "whole"
        whole.mkdir()
        (whole / "counted.csv").write_text("".join(f"{number}\n" for number in range(40)))
        self.whole = Reference(whole, 1.0, 1, result_of(whole))

    def words(self, command: str, out: str = "out") -> list[str]:
        return [self.how, out]

    def reference(self, command: str) -> Reference:
        return self.whole


def half_way(trial: Trial, child: Child, command: str) -> str:
    """In the place of a random moment: when the small command waits to be ended, or is over."""
    counted = trial.folder / "out" / "counted.csv"
    assert wait_until(lambda: counted.exists() or not child.is_running(), 60)
    return "half-way"


def try_counting(folder: Path, how: str, attempt: Any) -> str:
    """What a trial of the small command lost; empty for nothing."""
    kind = Kind("counting", partial(attempt, command="count"))
    campaign = Campaign(CountingBench(folder, how), [kind], seed=1, say=lambda text: None)
    with campaign.bench.children:
        campaign.try_once(kind, 0)
    assert (folder / "trials" / "counting-0").exists() == bool(campaign.results[0].lost)  # kept if it was lost
    return campaign.results[0].lost


@pytest.mark.parametrize(
    ("how", "attempt", "says"),
    [
        ("right", kills.kill_and_continue, ""),
        ("differs", kills.kill_and_continue, "counted.csv differs from an undisturbed run"),
        ("fails", kills.kill_and_continue, "a traceback: ValueError: a bug"),
        ("leaves a child", kills.kill_and_continue, "still running after"),
        ("right", signals.ask_to_end, ""),
        ("leaves a child", signals.ask_to_end, "still running after"),
        ("hangs", signals.ask_to_end, "still running after"),
    ],
)
def test_what_is_right_survives_and_what_is_broken_is_lost(how, attempt, says, tmp_path, monkeypatch) -> None:
    for module in (kills, signals):
        monkeypatch.setattr(module, "wait_for_moment", half_way)
    monkeypatch.setattr("tools.soak.signals.PATIENCE", 0.0 if how == "hangs" else 30.0)
    monkeypatch.setattr("tools.soak.campaign.GONE", 0.0 if how == "leaves a child" else 20.0)
    lost = try_counting(tmp_path, how, attempt)
    assert says in lost and bool(lost) == bool(says)


# ---- trimsft itself, in this process


class Done:
    """A command that has ended."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended

    def wait(self, timeout: float) -> Ended:
        return self._ended


class InProcess(Children):
    """Runs trimsft here, where everything is imported already."""

    def fork(self, words, folder, log="log", **more):
        with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ):  # a recipe may set variables
            patch.chdir(folder)
            result = CliRunner().invoke(app, list(map(str, words)))
        raised = result.exception if not isinstance(result.exception, SystemExit) else None
        err = result.stderr + (f"Traceback (most recent call last)\n{raised!r}" if raised else "")
        return Done(Ended(result.exit_code, result.stdout, err, 0.0))


class SmallBench(Bench):
    def __init__(self, folder: Path) -> None:
        self.folder, self.inputs, self.children = folder, folder / "inputs", InProcess()
        self.made = Made(folder / "made")
        self._make_inputs()
        self.base = lab.base_model_path()


@pytest.mark.parametrize(("attempt", "numbers"), [(inputs.wrong_settings, (9, 12, 14)), (inputs.wrong_data, (0, 2))])
def test_a_few_trials_of_trimsft(attempt, numbers, tmp_path) -> None:
    """Refused before any model is loaded: an alias bomb, lists for text, rows that are no rows."""
    bench = SmallBench(tmp_path)
    for number in numbers:
        (tmp_path / str(number)).mkdir()
        attempt(Trial(number, tmp_path / str(number), bench, random.Random(number)))


# ---- the campaign


def lose(trial: Trial) -> None:
    trial.note("drew " + str(trial.rng.random()))
    raise Lost("a promise")


def skip(trial: Trial) -> None:
    raise Skipped("it takes root")


def test_the_result_of_a_campaign(tmp_path, monkeypatch, capsys) -> None:
    def small_bench(folder: Path, root: Path) -> CountingBench:
        return CountingBench(folder, "right")

    kinds = [Kind("keeps", lambda trial: None), Kind("breaks", lose), Kind("cannot", skip)]
    monkeypatch.setattr(soak, "all_kinds", lambda: kinds)
    monkeypatch.setattr(soak, "Bench", small_bench)
    words = ["--seed", "7", "--out", str(tmp_path)]
    assert soak.main([*words, "--trial", "3"]) == 1
    said = capsys.readouterr().out
    assert "LOST breaks: a promise" in said and "python -m tools.soak --only breaks --trial 3 --seed 7" in said
    assert "| keeps  |     1 |        1 |    0 |" in said and "not tried: it takes root" in said
    record = tmp_path / "record.json"
    assert soak.main([*words, "--only", "breaks", "--trial", "3", "--json", str(record)]) == 1
    (trial,) = json.loads(record.read_text())["trials"]
    assert trial["did"][0] in said and trial["lost"] == "a promise"  # the same trial draws the same
    assert soak.main([*words, "--only", "keeps", "--trial", "0"]) == 0
    assert soak.main([*words, "--only", "nothing"]) == 2


def test_time_is_shared_out_by_weight(tmp_path) -> None:
    kinds = [Kind("a", skip, 3, expected=1), Kind("b", skip, expected=1)]
    campaign = Campaign(CountingBench(tmp_path, "right"), kinds, 0, lambda text: None)
    chosen = [campaign._choose(float("inf")) for _ in range(8)]
    assert [kind.name for kind, _ in chosen if kind].count("a") == 6
    assert campaign._choose(0.0) is None


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        (Ended(0, "", "", 1.0), ""),
        (Ended(2, "", "warning\ntrimsft: margin: must be above 0\n", 1.0), ""),
        (Ended(1, "", "Traceback (most recent call last)\nValueError: x\n", 1.0), "a traceback: ValueError: x"),
        (Ended(1, "", "", 1.0), "without a word of ours"),
        (Ended(-signal.SIGSEGV, "", "", 1.0), "killed by signal 11"),
        (Ended(HUNG, "", "", 60.0), "still running after 60 s"),
        (Ended(3, "", "trimsft: x", 1.0), "exit code 3"),
    ],
)
def test_how_a_command_may_end(ended, says) -> None:
    if not says:
        require_told(ended, "eval")
        return
    with pytest.raises(Lost, match=says):
        require_told(ended, "eval")


def test_results_are_compared_part_by_part(tmp_path) -> None:
    (tmp_path / "samples.jsonl").write_text('{"problem": "b", "sample": 0}\n{"problem": "a", "sample": 1}\n')
    (tmp_path / "telemetry.jsonl").write_text('{"step": 1, "time": "now"}\n')
    result = result_of(tmp_path)
    assert result["samples.jsonl"][0]["problem"] == "a" and result["telemetry.jsonl"] == [{"step": 1}]
    require_same(result, result, "eval")
    with pytest.raises(Lost, match=r"samples.jsonl is missing"):
        require_same({"telemetry.jsonl": [{"step": 1}]}, result, "eval")
    with pytest.raises(Lost, match=r"telemetry.jsonl differs .* 2.* instead of .* 1"):
        require_same(result | {"telemetry.jsonl": [{"step": 2}]}, result, "eval")
