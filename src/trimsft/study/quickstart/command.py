"""The quickstart from beginning to end: data, runs side by side, table, report; the same call continues.

outcome = run(Path("runs/quickstart"), Settings(), console)
outcome.results.score("trim", "average").value
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import one_line
from trimsft.runs import RunDirectory, write_whole
from trimsft.study.quickstart.settings import LABELS, Settings
from trimsft.study.quickstart.steps import Place, is_done, updates_done, write_data
from trimsft.study.quickstart.workers import Done, Failed, Team, Told, how_many

if TYPE_CHECKING:
    from rich.console import Console

    from trimsft.study.quickstart.results import Results


@dataclass(frozen=True)
class Outcome:
    """What a quickstart came to."""

    settings: Settings
    results: Results | None
    """None where no run could be scored."""
    failures: dict[str, str]
    """What went wrong, by run, or under "report"."""
    seconds: dict[str, dict[str, float]]
    """Of this start: run, step, seconds; nothing for what was there already."""
    total_seconds: float
    report: Path | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "settings": self.settings.as_dict(),
            "labels": {name: LABELS[name] for name in self.settings.runs},
            "scores": {} if self.results is None else self.results.as_dict(),
            "failures": self.failures,
            "seconds": {**self.seconds, "total": self.total_seconds},
            "report": None if self.report is None else str(self.report),
        }


def run(out: Path, settings: Settings, console: Console, *, workers: int | None = None) -> Outcome:
    """Do what is missing; raises `RunError` where `out` holds another quickstart.

    Args:
        console: where progress is shown.
        workers: processes side by side; by default as many as there are cores.
    """
    began = time.monotonic()
    place, directory = Place(out), RunDirectory(out)
    with directory.lock():
        directory.settle_config(settings.as_dict())
        write_data(place, settings)
        seconds, failures = _do_runs(place, settings, console, workers)
        results = _read(place, settings, failures)
        report = _report(place, settings, results, failures)
        outcome = Outcome(settings, results, failures, seconds, time.monotonic() - began, report)
        write_whole(out / "quickstart.json", (json.dumps(outcome.as_dict(), indent=1) + "\n").encode())
    return outcome


def _do_runs(
    place: Place, settings: Settings, console: Console, workers: int | None
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    from trimsft.study.quickstart.progress import Progress

    seconds: dict[str, dict[str, float]] = {}
    failures: dict[str, str] = {}
    missing = [name for name in settings.runs if not is_done(place, settings, name)]
    in_training: set[str] = set()
    team = Team(place, settings, workers or how_many(len(missing)))
    with Progress(console, settings.runs) as progress, team:
        for name in settings.runs:
            if name not in missing:
                progress.show(name, "done", note=f"before; {_headline(place, settings, name)}")
        for message in team.work(missing):
            for name in in_training:
                progress.show(name, "training", updates_done(place, name), settings.steps)
            if message is None:
                continue
            in_training.discard(message.name)
            if isinstance(message, Told):
                if message.stage == "training":
                    in_training.add(message.name)
                progress.show(message.name, message.stage, message.done, message.total)
            elif isinstance(message, Done):
                seconds[message.name] = message.seconds
                progress.show(message.name, "done", note=_headline(place, settings, message.name))
            elif isinstance(message, Failed):
                failures[message.name] = message.error
                progress.show(message.name, "failed", note=message.error)
    return seconds, failures


def _headline(place: Place, settings: Settings, name: str) -> str:
    """One number for the line of a run that is done."""
    from trimsft.scoring.records import load_run

    values = [score.interval("average").value for score in load_run(place.run(name), settings.tiers)]
    return f"average@{settings.samples} {100 * sum(values) / len(values):.1f}"


def _read(place: Place, settings: Settings, failures: dict[str, str]) -> Results | None:
    from trimsft.scoring.records import load_run
    from trimsft.study.quickstart.results import Results

    done = [name for name in settings.runs if name not in failures]
    return Results({name: load_run(place.run(name), settings.tiers) for name in done}) if done else None


def _report(place: Place, settings: Settings, results: Results | None, failures: dict[str, str]) -> Path | None:
    if results is None:
        return None
    runs = {LABELS[name]: place.run(name) for name in results.scores}
    try:
        from trimsft.report import write_report

        return write_report(
            place.out / "report.html",
            runs,
            title="TrimSFT quickstart: six objectives on the lab",
            settings={"command": _command_line(place.out, settings), **settings.as_dict()},
        )
    except Exception as error:  # the table is worth showing without its page
        failures["report"] = one_line(error)
        return None


def _command_line(out: Path, settings: Settings) -> str:
    fast = " --fast" if settings == Settings.fast(settings.seed) else ""
    return f"trimsft quickstart{fast} --seed {settings.seed} --out {out}"


def show(outcome: Outcome, out: Path, console: Console) -> None:
    """The table, what it says, where the rest is, and how to go on."""
    from trimsft.study.quickstart import tables, words

    results = outcome.results
    if results is not None:
        console.print(tables.main_table(results))
        console.print(tables.other_table(results))
        console.print(tables.legend(results) + "\n")
        console.print(words.describe(results) + "\n")
    for line in _where(outcome, out):
        console.print(line, soft_wrap=True)
    console.print("\n" + words.next_commands(out, outcome.settings.methods), soft_wrap=True)


def describe_failure(out: Path, name: str, error: str) -> str:
    """Which run failed, why, and where to read more."""
    if name == "report":
        return f"report.html: {error}; the run directories in {out} are whole"
    return f"{LABELS[name]}: {error}; see {Place(out).log(name)}; the same command tries it again"


def _where(outcome: Outcome, out: Path) -> Sequence[str]:
    lines = [f"Every score, token and gap: {outcome.report}"] if outcome.report else []
    minutes, seconds = divmod(round(outcome.total_seconds), 60)
    return [*lines, f"Run directories: {out} ({minutes} min {seconds} s)"]
