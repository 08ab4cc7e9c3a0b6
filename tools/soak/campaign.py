"""The campaign: trials of each kind in turn, for as long as there is time, and what came of them.

A kind is a function that does one trial and raises `Lost` where a promise was broken. Everything random in a trial
comes from the seed of the campaign, its kind and its number, so that it can be repeated alone.
"""

import dataclasses
import json
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.soak.bench import Bench
from tools.soak.children import HUNG, Child, Ended

TIMEOUT = 120.0
"""Seconds after which a command that the campaign does not disturb has hung."""


class Lost(Exception):
    """A promise that a trial saw broken, in one line."""


class Skipped(Exception):
    """Why this machine cannot do a kind of trial."""


@dataclass
class Trial:
    """One trial: where it works, what it may draw from, and what it did."""

    number: int
    folder: Path
    bench: Bench
    rng: random.Random
    did: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.did.append(text)

    def start(self, words: Sequence[str], *, real: bool = False, **more: Any) -> Child:
        """Start a command in the folder of the trial: a fork, or a process of its own."""
        begin = self.bench.children.start if real else self.bench.children.fork
        return begin(words, self.folder, f"{len(self.did)}-{words[0]}", **more)

    def run(self, words: Sequence[str], *, timeout: float = TIMEOUT, **more: Any) -> Ended:
        """A command from beginning to end."""
        ended = self.start(words, **more).wait(timeout)
        self.note(f"{words[0]}: exit code {ended.code}")
        return ended


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    attempt: Callable[[Trial], None]
    weight: float = 1.0  # its share of the time
    how: str = "forks"  # or processes: what its commands are
    expected: float = 20.0  # seconds of the first trial, which may have to make what all share


@dataclass(frozen=True)
class Result:
    """A trial as data."""

    kind: str
    number: int
    seed: int
    did: list[str]
    lost: str  # empty where every promise was kept
    seconds: float
    folder: str

    @property
    def repeat(self) -> str:
        return f"python -m tools.soak --only {self.kind} --trial {self.number} --seed {self.seed}"


class Campaign:
    """Shares the time out among kinds: the next trial is of the kind that has had the least of its share."""

    def __init__(self, bench: Bench, kinds: Sequence[Kind], seed: int, say: Callable[[str], None]) -> None:
        self.bench, self.seed, self._say = bench, seed, say
        self.kinds = {kind.name: kind for kind in kinds}
        self.results: list[Result] = []
        self.skipped: dict[str, str] = {}
        self._running: Counter[str] = Counter()
        self._next: Counter[str] = Counter()
        self._is_broken = False
        self._lock = threading.Lock()

    def run(self, seconds: float, lanes: int) -> None:
        """Trials side by side until the time is over; none begins that would not end in time."""
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(lanes) as pool:
            try:
                for lane in [pool.submit(self._lane, end) for _ in range(lanes)]:
                    lane.result()
            except BaseException:
                self._is_broken = True
                self.bench.children.end_all()  # whoever waits for one of them goes on, and stops
                raise

    def _lane(self, end: float) -> None:
        try:
            while not self._is_broken and (chosen := self._choose(end)) is not None:
                self.try_once(*chosen)
        except BaseException:  # of the campaign, not of what it tries
            self._is_broken = True
            raise

    def _choose(self, end: float) -> tuple[Kind, int] | None:
        with self._lock:
            left = end - time.monotonic()
            fitting = [k for k in self.kinds.values() if k.name not in self.skipped and self._longest(k) < left]
            if not fitting:
                return None
            kind = min(fitting, key=self._share_had)
            self._running[kind.name] += 1
            self._next[kind.name] += 1
            return kind, self._next[kind.name] - 1

    def _longest(self, kind: Kind) -> float:
        return max((result.seconds for result in self.results if result.kind == kind.name), default=kind.expected)

    def _share_had(self, kind: Kind) -> float:
        """The time that trials of a kind have taken, or may take that are on their way, against its share."""
        spent = sum(result.seconds for result in self.results if result.kind == kind.name)
        return (spent + self._running[kind.name] * self._longest(kind)) / kind.weight

    def try_once(self, kind: Kind, number: int) -> None:
        """One trial, whatever happens in it; the folder of a lost one is kept."""
        folder = self.bench.folder / "trials" / f"{kind.name}-{number}"
        folder.mkdir(parents=True)
        trial = Trial(number, folder, self.bench, random.Random(f"{self.seed}/{kind.name}/{number}"))
        began, lost = time.monotonic() - self.bench.made.seconds_waited(), ""
        try:
            kind.attempt(trial)
        except Skipped as reason:
            with self._lock:
                self.skipped[kind.name] = str(reason)
            return
        except Lost as loss:
            lost = str(loss)
        finally:
            self.bench.children.end(folder)
        seconds = time.monotonic() - self.bench.made.seconds_waited() - began  # what is shared costs no kind its share
        result = Result(kind.name, number, self.seed, trial.did, lost, seconds, str(folder))
        with self._lock:
            self.results.append(result)
            self._running[kind.name] -= 1
        if lost:
            self._say(
                f"LOST {kind.name}: {lost}\n     did: {'; '.join(trial.did)}\n     {result.repeat}\n     {folder}"
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def table(self) -> str:
        """Tried, survived, lost and the longest of each kind."""
        rows = [("kind", "tried", "survived", "lost", "longest, s", "how")]
        for name, kind in self.kinds.items():
            mine = [result for result in self.results if result.kind == name]
            lost = sum(bool(result.lost) for result in mine)
            longest = f"{max((result.seconds for result in mine), default=0.0):.0f}"
            how = f"not tried: {self.skipped[name]}" if name in self.skipped else kind.how
            rows.append((name, str(len(mine)), str(len(mine) - lost), str(lost), longest, how))
        counts = [sum(int(row[column]) for row in rows[1:]) for column in (1, 2, 3)]
        longest = max((result.seconds for result in self.results), default=0.0)
        rows.append(("all", *map(str, counts), f"{longest:.0f}", ""))
        return _markdown(rows)

    def as_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "skipped": self.skipped,
            "trials": [dataclasses.asdict(result) for result in self.results],
        }


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(w) if not n or n == len(row) - 1 else cell.rjust(w)
                          for n, (cell, w) in enumerate(zip(row, widths, strict=True))) + " |"
        for row in rows
    ]  # fmt: skip
    rule = ["-" * w if not n or n == len(widths) - 1 else "-" * (w - 1) + ":" for n, w in enumerate(widths)]
    return "\n".join([lines[0], "| " + " | ".join(rule) + " |", *lines[1:]])


# ---- promises ------------------------------------------------------------------------------------------------------


def require_told(ended: Ended, what: str) -> None:
    """A command ends, and in peace: with exit code 0, or with 1 or 2 and one line; never a traceback."""
    if ended.code == HUNG:
        raise Lost(f"{what}: still running after {ended.seconds:.0f} s")
    if "Traceback (most recent call last)" in ended.err + ended.out:
        raise Lost(f"{what}: a traceback: {ended.last_line[:300]}")
    if ended.code < 0:
        raise Lost(f"{what}: killed by signal {-ended.code}: {ended.last_line[:300]}")
    if ended.code not in (0, 1, 2):
        raise Lost(f"{what}: exit code {ended.code}: {ended.last_line[:300]}")
    if ended.code and not ended.last_line.startswith(("trimsft: ", "Error: ")):
        raise Lost(f"{what}: exit code {ended.code} without a word of ours: {ended.last_line[:300]!r}")


def require_refused(ended: Ended, what: str) -> None:
    """As `require_told`, and it did not call it done."""
    require_told(ended, what)
    if ended.code == 0:
        raise Lost(f"{what}: exit code 0")


def require_done(ended: Ended, what: str) -> None:
    require_told(ended, what)
    if ended.code:
        raise Lost(f"{what}: exit code {ended.code}: {ended.last_line[:300]}")


def require_same(got: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """The results of two runs, part by part."""
    for part in sorted({*got, *expected}):
        if part not in got:
            raise Lost(f"{what}: {part} is missing")
        if part not in expected:
            raise Lost(f"{what}: {part} is there, but not in an undisturbed run")
        if got[part] != expected[part]:
            raise Lost(f"{what}: {part} differs from an undisturbed run: {_difference(got[part], expected[part])}")


def _difference(one: Any, other: Any) -> str:
    texts = [
        value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str) for value in (one, other)
    ]
    at = next((n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    return " instead of ".join(repr(text[max(0, at - 30) : at + 50]) for text in texts)


GONE = 30.0
"""Seconds in which what a command has started ends after it."""


def require_gone(trial: Trial, what: str, patience: float | None = None) -> None:
    """Nothing of a command is left running."""
    patience = GONE if patience is None else patience
    left = trial.bench.children.running(trial.folder, patience)
    if left:
        names = [
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace") for pid in left
        ]
        raise Lost(f"{what}: still running after {patience:.0f} s: {'; '.join(names)[:300]}")
