"""What trainings have logged so far: each look reads only the lines that are new.

    watched = Watched(Path("runs/trim"))
    watched.look()
    # Snapshot(version="1a2b", runs=(Training(label="TrimSFT", state="running", said="running, step 34, 68 %", ...),))

A training is running while lines arrive or its lock is held. The lock of a quiet one is asked once, not at every look:
for the moment of asking it would keep a training that starts from its own folder.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from trimsft.errors import RunError, TrimSFTError
from trimsft.objectives import display_name
from trimsft.report.course import Logged, band_of, counts_from, with_counts
from trimsft.runs import RunDirectory
from trimsft.runs.lock import holder_of
from trimsft.runs.parsing import ParseError, checked, parse_json

MOST_RUNS = 12  # of a folder of many, those that wrote last
FINEST = 600  # points of a line; of longer ones every second, third, ... is sent, and always the last
DEEPEST = 4  # folders between a study and its runs
AT_WORK = 15.0  # seconds; a training that wrote so recently is running
SILENT = 600.0  # seconds without a line, of a training that has no lock to ask
WAITING, RUNNING, FINISHED, INTERRUPTED, SILENCE = "waiting", "running", "finished", "interrupted", "silent"
TIME = "%Y-%m-%dT%H:%M:%S%z"  # of telemetry
BANDED = ("trim", "trim-e", "trim-h")


@dataclass(frozen=True)
class _Line(Logged):
    """A line of telemetry.jsonl, as far as it is watched."""

    epoch: float | None = None
    time: str | None = None
    eval_nll: float | None = None
    train_runtime: float | None = None

    @property
    def moment(self) -> datetime | None:
        """When it was written, where it says so."""
        try:
            return datetime.strptime(self.time or "", TIME)
        except ValueError:
            return None


@dataclass(frozen=True)
class _Named:
    name: str | None = None


@dataclass(frozen=True)
class _Manifest:
    objective: _Named | None = None


@dataclass(frozen=True)
class Training:
    """One training as it stands."""

    label: str
    objective: str | None
    state: str
    said: str  # the state in words
    course: Sequence[Logged] = ()
    evaluations: Sequence[tuple[int, float]] = ()  # step and nll
    band: tuple[float, float] | None = None  # margin - bandwidth, margin + bandwidth, where they are fixed


@dataclass(frozen=True)
class Snapshot:
    """All trainings at one look; `version` is another one whenever something has changed."""

    version: str
    runs: tuple[Training, ...]
    left_out: int = 0  # trainings that are not among `runs`

    @property
    def is_over(self) -> bool:
        return bool(self.runs) and all(run.state == FINISHED for run in self.runs)


@dataclass
class _Telemetry:
    """The lines of one telemetry.jsonl; a file that was cut or replaced is read again."""

    path: Path
    lines: list[_Line] = field(default_factory=list)
    _read: int = 0
    _inode: int = 0

    def read_new(self) -> float | None:
        """Read what was appended since; returns when the file was last written, None where there is none."""
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_ino != self._inode or about.st_size < self._read:
                    self.lines, self._read, self._inode = [], 0, about.st_ino
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")  # the last line may be half written
        except FileNotFoundError:
            self.lines, self._read, self._inode = [], 0, 0
            return None
        if whole:
            self.lines += [self._parse(line) for line in whole.split(b"\n")]
            self._read += len(whole) + 1
        return about.st_mtime

    def _parse(self, line: bytes) -> _Line:
        try:
            return checked(_Line, parse_json(line), where=str(self.path))
        except ParseError as error:
            raise RunError(f"{self.path}: a line is not JSON ({error})", hint="restore or remove it") from error


class _Followed:
    """One run directory, or the folder of a trainer that writes telemetry.jsonl itself."""

    def __init__(self, telemetry: Path, watched: Path, clock: Callable[[], float]) -> None:
        self.folder = telemetry.parent.parent if telemetry.parent.name == "train" else telemetry.parent
        is_below = self.folder.is_relative_to(watched) and self.folder != watched
        self.label = str(self.folder.relative_to(watched)) if is_below else self.folder.name
        self._clock = clock
        self._directory = RunDirectory(self.folder)
        self._lock = self.folder / ".lock"
        self._telemetry = _Telemetry(telemetry)
        self._asked: tuple[object, bool] | None = None  # what the files were when the lock was asked, and its answer
        self._config: Mapping[str, Any] = {}

    def look(self) -> Training:
        written = self._telemetry.read_new()
        if not self._config:
            self._config = self._directory.read_config() or {}
        objective, where = self._objective(), str(self._directory.config_path)
        fixed = counts_from(objective, self._config, where=where)
        lines = self._telemetry.lines
        state = self._state(written)
        low, high = _band(self._config, where) if objective in BANDED else (math.nan, math.nan)
        return Training(
            label=self.label,
            objective=objective,
            state=state,
            said=self._said(state, written),
            course=[with_counts(line, fixed) for line in thinned([line for line in lines if line.nll is not None])],
            evaluations=[(line.step, line.eval_nll) for line in lines if line.eval_nll is not None],
            band=(low, high) if math.isfinite(low) and math.isfinite(high) else None,
        )

    def _objective(self) -> str | None:
        """What it is trained with: as its settings say, or its manifest, which knows the default, too."""
        if self._config.get("objective") is not None:
            return str(self._config["objective"])
        recorded = checked(_Manifest, self._directory.read_manifest(), where=str(self._directory.manifest_path))
        return recorded.objective.name if recorded.objective else None

    def _state(self, written: float | None) -> str:
        lines = self._telemetry.lines
        if lines and lines[-1].train_runtime is not None:
            return FINISHED
        if written is not None and self._clock() - written < AT_WORK:
            return RUNNING
        if self._is_held(written):
            return RUNNING if lines else WAITING
        if not lines:
            return WAITING
        if self._directory.is_finished():
            return FINISHED
        if self._lock.exists():
            return INTERRUPTED
        return SILENCE if self._clock() - (written or 0.0) > SILENT else RUNNING

    def _is_held(self, written: float | None) -> bool:
        """Whether a process works here; a free lock is not asked again before something is written."""
        try:
            files = (written, self._lock.stat().st_mtime_ns)
        except OSError:
            return False
        if self._asked is None or self._asked[0] != files or self._asked[1]:
            try:
                self._asked = files, holder_of(self._lock) is not None
            except OSError:  # the lock of somebody else
                self._asked = files, self._lock.stat().st_size > 0
        return self._asked[1]

    def _said(self, state: str, written: float | None) -> str:
        """The state in words."""
        lines = [line for line in self._telemetry.lines if line.nll is not None]
        if state == WAITING:
            begun = self._is_held(written)
            return "has begun; nothing is logged yet" if begun else f"waits for a training in {self.folder}"
        at = f"step {lines[-1].step}" if lines else "step 0"
        if state == FINISHED:
            seconds = self._telemetry.lines[-1].train_runtime
            return f"finished at {at}" + ("" if seconds is None else f", after {clock_text(seconds)}")
        if state == INTERRUPTED:
            return f"interrupted at {at}; rerun its command to resume"
        if state == SILENCE:
            return f"at {at}; no line for {clock_text(self._clock() - (written or 0.0))}"
        return f"running, {at}{self._progress(lines)}"

    def _progress(self, lines: Sequence[_Line]) -> str:
        """How far it is, and how long it will take, where config.yaml says how long it is."""
        done = [share for line in lines if (share := self._share(line)) is not None]
        if not done or not 0 < done[-1] <= 1:
            return ""
        text = f", {100 * done[-1]:.0f} %"
        first, last = lines[0].moment, lines[-1].moment
        if first and last and done[-1] > done[0]:
            seconds = (last - first).total_seconds() * (1 - done[-1]) / (done[-1] - done[0])
            text += f", about {clock_text(seconds)} left"
        return text

    def _share(self, line: _Line) -> float | None:
        steps, epochs = (self._config.get(name) for name in ("max_steps", "num_train_epochs"))
        if isinstance(steps, int) and steps > 0:
            return line.step / steps
        if isinstance(epochs, int | float) and epochs > 0 and line.epoch is not None:
            return line.epoch / epochs
        return None


class Watched:
    """A run, or the runs in a folder; each look finds those that have begun since."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = Path(path).expanduser(), clock
        self._followed: dict[Path, _Followed] = {}

    def look(self) -> Snapshot:
        """How the trainings stand now."""
        places = telemetries(self.path)
        for telemetry in places:
            if telemetry not in self._followed:
                self._followed[telemetry] = _Followed(telemetry, self.path, self._clock)
        shown = sorted(places, key=_last_written, reverse=True)[:MOST_RUNS]
        runs = _named([self._followed[telemetry].look() for telemetry in places if telemetry in shown])
        facts = [(run.label, run.said, len(run.course), run.course[-1:], list(run.evaluations)) for run in runs]
        return Snapshot(_digest(facts), tuple(runs), len(places) - len(shown))

    def look_kindly(self) -> Snapshot:
        """The same for a server that goes on: a file that cannot be read is said in place of a curve."""
        try:
            return self.look()
        except (TrimSFTError, OSError) as error:
            said = str(error) if isinstance(error, TrimSFTError) else f"cannot read {error.filename}: {error.strerror}"
            return Snapshot(_digest(said), (Training(self.path.name, None, SILENCE, said),))


def telemetries(path: Path) -> list[Path]:
    """Where the telemetry of a run is or will be; of a folder of runs, all that are there."""
    if path.is_file():
        return [path]
    if (path / "telemetry.jsonl").is_file():  # of a trainer in Python, which has no run directory
        return [path / "telemetry.jsonl"]
    own = RunDirectory(path).telemetry_path
    if own.is_file() or RunDirectory(path).is_run():
        return [own]
    below = (path.glob("/".join(["*"] * depth + ["train", "telemetry.jsonl"])) for depth in range(1, DEEPEST + 1))
    return sorted(place for places in below for place in places) or [own]


def thinned(lines: Sequence[Any]) -> list[Any]:
    """As many lines as are drawn, the last among them."""
    every = -(-len(lines) // FINEST) or 1
    return list(lines[::-1][::every][::-1])


def clock_text(seconds: float) -> str:
    """
    >>> clock_text(34.2), clock_text(3700)
    ('0:00:34', '1:01:40')
    """
    whole = int(seconds) if math.isfinite(seconds) and seconds > 0 else 0
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _band(config: Mapping[str, Any], where: str) -> tuple[float, float]:
    band = band_of(config, where=where)
    return band["margin"] - band["bandwidth"], band["margin"] + band["bandwidth"]


def _digest(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _last_written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _named(runs: Sequence[Training]) -> list[Training]:
    """Runs by the names of their methods, or by their folders where two have one method."""
    methods = Counter(run.objective for run in runs)
    return [
        replace(run, label=display_name(run.objective)) if run.objective and methods[run.objective] == 1 else run
        for run in runs
    ]
