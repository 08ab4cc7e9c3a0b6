"""What is done for one method, in its own run directory and by the public commands: train, evaluate, measure tokens.

Each step looks first whether its result is there: a second start repeats nothing that is finished.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft import lab
from trimsft.runs import RunDirectory
from trimsft.study.quickstart.settings import BASE, Settings, training_words
from trimsft.study.running.steps import StepError, Tell, last_word

HELD_OUT = 1_000_000
"""Added to the seed: no training takes these rows."""


@dataclass(frozen=True)
class Place:
    """Where the parts of a quickstart are."""

    out: Path

    def run(self, name: str) -> Path:
        return self.out / name

    def log(self, name: str) -> Path:
        return self.out / "logs" / f"{name}.log"

    def tokens(self, name: str) -> Path:
        return self.run(name) / "tokens.parquet"

    def telemetry(self, name: str) -> Path:
        """Grows by a line with each update."""
        return RunDirectory(self.run(name)).train_dir / "telemetry.jsonl"

    @property
    def train_data(self) -> Path:
        return self.out / "data" / "train.jsonl"

    @property
    def held_out_data(self) -> Path:
        return self.out / "data" / "held-out.jsonl"


def write_data(place: Place, settings: Settings) -> None:
    """What all methods train on, and held-out rows of the same kind."""
    if not place.train_data.exists():
        lab.write_training(place.train_data, settings.data())
    if not place.held_out_data.exists():
        lab.write_training(place.held_out_data, settings.data(settings.table_rows, HELD_OUT))


def is_done(place: Place, settings: Settings, name: str) -> bool:
    return is_trained(place, name) and is_evaluated(place, settings, name) and place.tokens(name).is_file()


def is_trained(place: Place, name: str) -> bool:
    run = RunDirectory(place.run(name))
    return name == BASE or (run.manifest_path.is_file() and run.is_finished())


def is_evaluated(place: Place, settings: Settings, name: str) -> bool:
    folder = RunDirectory(place.run(name)).eval_dir
    return all((folder / tier / "scores.json").is_file() for tier in settings.tiers)


def do_run(place: Place, settings: Settings, name: str, tell: Tell) -> dict[str, float]:
    """Everything that one run still lacks; returns the seconds of each step that was done."""
    seconds: dict[str, float] = {}
    for step, done, do in (
        ("train", is_trained(place, name), _train),
        ("evaluate", is_evaluated(place, settings, name), _evaluate),
        ("tokens", place.tokens(name).is_file(), _measure_tokens),
    ):
        if not done:
            began = time.monotonic()
            do(place, settings, name, tell)
            seconds[step] = time.monotonic() - began
    return seconds


def _train(place: Place, settings: Settings, name: str, tell: Tell) -> None:
    tell("training", done=0, total=settings.steps)
    from trimsft.train.command import main

    words = training_words(settings, name, data=place.train_data.resolve(), out=place.run(name))
    if code := main(words):
        raise StepError(last_word(place.log(name)) or f"trimsft train ended with exit code {code}")


def _evaluate(place: Place, settings: Settings, name: str, tell: Tell) -> None:
    tell("evaluating", done=0, total=len(settings.tiers) * settings.problems * (settings.samples + 1))
    from trimsft.evaluate.command import EvalSettings, evaluate
    from trimsft.evaluate.engines.base import Sampling

    run = place.run(name)
    asked = EvalSettings(
        model=str(settings.base_model if name == BASE else run),
        out=run,
        benchmarks=settings.tiers,
        limit=settings.problems,
        engine="transformers",
        samples=settings.samples,
        sampling=Sampling(max_tokens=settings.max_tokens),
        seed=settings.seed,
        dtype="float32",
    )
    counts: dict[str, int] = {}

    def show(tier: str, progress: Any) -> None:
        counts[tier] = progress.done
        tell("evaluating", done=sum(counts.values()), total=len(settings.tiers) * progress.total)

    evaluate(asked, on_progress=show)


def _measure_tokens(place: Place, settings: Settings, name: str, tell: Tell) -> None:
    tell("measuring tokens")
    from trimsft.tokens import write_token_table

    rows = [json.loads(line) for line in place.held_out_data.read_text(encoding="utf-8").splitlines()]
    model = settings.base_model if name == BASE else RunDirectory(place.run(name)).model_dir
    pairs = [{"problem": row["problem"], "solution": row["solution"]} for row in rows]
    write_token_table(model, pairs, place.tokens(name))


def updates_done(place: Place, name: str) -> int:
    """How far a training is, by what it has written down."""
    try:
        return place.telemetry(name).read_bytes().count(b"\n")
    except OSError:
        return 0
