"""Killed at any moment and started again by the same command, a run ends with the same bytes.

16 steps over one and a half epochs of shuffled rows, each accumulated from two micro-batches, with dropout, warm-up and
cosine decay; a checkpoint every other step.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from tests.train.processes import TIMEOUT, Child, Finished, command, free_port, rank_environments
from tests.train.tiny_run import make_settings

STEPS = 16


CLOCK = ("time", "tokens_per_second", "train_runtime", "train_samples_per_second", "train_steps_per_second")


@dataclass(frozen=True)
class Run:
    """One run directory, and the command that makes it."""

    path: Path
    words: list[str]

    def start(self, *more: str, **environment: str) -> Child:
        log = self.path.with_name(f"{self.path.name}-{time.monotonic_ns()}")
        return command(["train", *self.words, "--output_dir", str(self.path), *more], log, **environment)

    def finish(self, *more: str) -> Finished:
        done = self.start(*more).wait()
        assert done.code == 0, done.err[-4000:]
        return done

    def kill_at(self, reached: Callable[["Run"], bool], *, by: int = signal.SIGKILL) -> Finished:
        """Start it, and end it as soon as `reached`."""
        child = self.start()
        self.wait_until(reached, child)
        child.send(by)
        return child.wait()

    def wait_until(self, reached: Callable[["Run"], bool], *children: Child) -> None:
        since = time.monotonic()
        while not reached(self):
            assert all(child.is_running for child in children), children[0].wait().err[-4000:]
            assert time.monotonic() - since < TIMEOUT
            time.sleep(0.002)

    @property
    def model(self) -> bytes:
        return (self.path / "model" / "model.safetensors").read_bytes()

    @property
    def telemetry(self) -> list[dict[str, Any]]:
        path = self.path / "train" / "telemetry.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # the last may be half written
        return [json.loads(line) for line in lines]

    @property
    def checkpoints(self) -> list[str]:
        names = (path.name for path in (self.path / "train").glob("checkpoint-*"))
        return sorted(names, key=lambda name: int(name.partition("-")[2]))


def at_step(step: int) -> Callable[[Run], bool]:
    return lambda run: any(record["step"] >= step for record in run.telemetry)


def has(name: str) -> Callable[[Run], bool]:
    return lambda run: (run.path / name).exists()


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_settings(tmp_path_factory.mktemp("inputs"), max_steps=STEPS, save_steps=2)


@pytest.fixture(scope="module")
def whole(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Never interrupted."""
    run = Run(tmp_path_factory.mktemp("whole") / "run", words)
    run.finish()
    return run


@pytest.fixture
def run(words: list[str], tmp_path: Path) -> Run:
    return Run(tmp_path / "run", words)


def first_step(done: Finished) -> int:
    found = re.search(rf"^step (\d+)/{STEPS}", done.out, re.MULTILINE)
    assert found, done.out
    return int(found[1])


def assert_as_if_never_interrupted(run: Run, whole: Run) -> None:
    assert run.model == whole.model
    records, expected = (
        [{name: record[name] for name in record if name not in CLOCK} for record in each.telemetry if "loss" in record]
        for each in (run, whole)
    )
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    assert records == expected


def test_two_uninterrupted_runs_are_equal_and_the_seed_matters(whole: Run, run: Run) -> None:
    """Without this, the other tests would say nothing."""
    run.finish()
    assert_as_if_never_interrupted(run, whole)
    other = Run(run.path.with_name("other"), [*run.words, "--seed", "7"])
    other.finish()
    assert other.model != whole.model


def test_killed_at_several_moments(whole: Run, run: Run) -> None:
    moments = [
        at_step(1),  # before the first checkpoint
        at_step(5),
        lambda run: at_step(7)(run) and has("train/_saving")(run),
        at_step(11),  # in the second epoch
    ]
    for moment in moments:
        assert run.kill_at(moment).code == -signal.SIGKILL
        assert not has("model")(run)
    assert first_step(run.finish()) > 10  # there is a checkpoint 10
    assert_as_if_never_interrupted(run, whole)
    assert sorted(path.name for path in run.path.iterdir()) == sorted(path.name for path in whole.path.iterdir())
    assert run.checkpoints == whole.checkpoints


def test_killed_while_the_final_model_is_written(whole: Run, run: Run) -> None:
    run.kill_at(lambda run: has(".model")(run) or has("model")(run))  # it lasts milliseconds
    run.finish()
    assert_as_if_never_interrupted(run, whole)
    assert not has(".model")(run)


def test_killed_after_the_model_was_written_but_not_noted(whole: Run, run: Run) -> None:
    run.finish()
    manifest = run.path / "manifest.json"
    facts = json.loads(manifest.read_text())
    del facts["finished"]
    manifest.write_text(json.dumps(facts))
    run.finish()
    assert json.loads(manifest.read_text())["finished"]
    assert_as_if_never_interrupted(run, whole)


def test_a_torn_checkpoint_is_skipped_with_a_warning(whole: Run, run: Run) -> None:
    run.kill_at(lambda run: "checkpoint-6" in run.checkpoints)
    newest, before = run.checkpoints[-1], run.checkpoints[-2]
    os.truncate(run.path / "train" / newest / "optimizer.pt", 100)
    done = run.finish()
    assert f"{newest} is skipped: optimizer.pt has 100 bytes" in done.err
    assert f"continuing from {run.path / 'train' / before}" in done.err
    assert f"checkpoint-{first_step(done) - 1}" == before
    assert_as_if_never_interrupted(run, whole)


def test_a_second_process_is_refused_and_the_first_not_disturbed(whole: Run, run: Run) -> None:
    first = run.start()
    run.wait_until(at_step(2), first)
    first.send(signal.SIGSTOP)
    refused = run.start().wait()
    assert refused.code == 2 and "Traceback" not in refused.err and not refused.out
    assert refused.err.rstrip().splitlines()[-1].startswith(f"trimsft: {run.path}: in use by process {first.pid} on ")
    first.send(signal.SIGCONT)
    assert first.wait().code == 0
    assert_as_if_never_interrupted(run, whole)


def test_interrupted_by_hand_it_says_how_to_go_on(whole: Run, run: Run) -> None:
    done = run.kill_at(at_step(5), by=signal.SIGINT)
    assert done.code == 130 and "Traceback" not in done.err
    assert "interrupted; the same command continues" in done.err.rstrip().splitlines()[-1]
    done = run.finish("--save_steps", "5")  # what does not touch the weights may change
    assert first_step(done) > 4
    assert_as_if_never_interrupted(run, whole)


# two ranks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_ranks() -> Iterator[Callable[[Run], list[Child]]]:
    started: list[Child] = []

    def start(run: Run) -> list[Child]:
        children = [run.start(**environment) for environment in rank_environments(2, free_port())]
        started.extend(children)
        return children

    yield start
    for child in started:
        child.send(signal.SIGKILL)


def test_two_ranks_are_killed_and_go_on(run: Run, tmp_path: Path, two_ranks: Callable[[Run], list[Child]]) -> None:
    whole = Run(tmp_path / "whole", run.words)
    for child in two_ranks(whole):
        assert child.wait().code == 0
    children = two_ranks(run)
    run.wait_until(at_step(5), *children)
    for child in children:
        child.send(signal.SIGKILL)
    for child in children:
        child.wait()
    for child in two_ranks(run):
        done = child.wait()
        assert done.code == 0, done.err[-4000:]
    assert_as_if_never_interrupted(run, whole)
