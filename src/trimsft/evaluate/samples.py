"""The record of an evaluation: what was asked under which settings, and every text that came back.

runs/trim/eval/math500/
  settings.json    model, prompt, sampling, ...; another evaluation may not be mixed in, but this one may grow
  problems.jsonl   problems and answers, as they were asked
  samples.jsonl    one line a sample, append-only; sample -1 is the greedy one, temperature that of a further one:
                     {"problem": "test/algebra/1.json", "sample": 0, "temperature": null, "seed": 1193046471,
                      "text": "...", "tokens": 312, "finish": "stop", "prompt_sha": "0f3c..."}
  errors.jsonl     requests that failed, each time they did

record = SampleRecord(Path("runs/trim/eval/math500"))
with record.lock():
    record.settle(settings, problems)
    missing = record.missing(keys)
    record.append(Sample(...))
"""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trimsft.errors import FAILED, RunError
from trimsft.evaluate.metrics import MOST_SAMPLES
from trimsft.evaluate.problems import Problem, fingerprint, read_problems, write_problems
from trimsft.runs import JsonLines, RunDirectory, RunLock, by_dotted_name, refuse_links, write_whole
from trimsft.runs.parsing import checked, parse_json, read_json

GREEDY = -1  # the number of the greedy sample
OF_SAMPLES = ("seed", "sampling.temperature", "sampling.top_p", "sampling.top_k")
"""Settings that say nothing about a greedy answer."""
_RESTORE = "restore it, or choose another output directory"


class IncompleteEvaluation(RunError):
    """Samples are missing, so there is no score."""

    exit_code = FAILED


class Key(NamedTuple):
    """Which sample of which problem."""

    problem: str
    sample: int
    temperature: float | None = None
    """One of the further temperatures; None for the samples that all metrics are of, and for the greedy one."""


@dataclass(frozen=True)
class Sample:
    """One recorded text."""

    problem: str
    sample: int
    seed: int
    text: str
    tokens: int
    finish: Literal["stop", "length"]
    prompt_sha: str
    temperature: float | None = None

    @property
    def key(self) -> Key:
        return Key(sys.intern(self.problem), self.sample, self.temperature)

    @property
    def truncated(self) -> bool:
        """Return whether it ended only because it might grow no longer."""
        return self.finish == "length"

    @property
    def greedy(self) -> bool:
        return self.sample == GREEDY


@dataclass(frozen=True)
class _Problems:
    count: int
    sha256: str


@dataclass(frozen=True)
class _Settings:
    """What has to be known of settings.json to read the rest."""

    problems: _Problems
    samples: int
    greedy: bool
    benchmark: str
    temperatures: list[float]
    temperature_samples: int
    sampling: dict[str, Any]
    engine: dict[str, Any] = field(default_factory=dict)


class SampleRecord:
    """The folder of one benchmark in a run directory; nothing is created before something is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.settings_path = self.folder / "settings.json"
        self.problems_path = self.folder / "problems.jsonl"
        self.samples_path = self.folder / "samples.jsonl"
        self._samples = JsonLines(self.samples_path)
        self._errors = JsonLines(self.folder / "errors.jsonl")
        self._known: set[Key] | None = None

    def lock(self) -> RunLock:
        """Keep other processes out of this benchmark; another benchmark of the run may be evaluated meanwhile."""
        refuse_links(self.folder)
        if self.folder.parent.is_symlink():  # eval/ itself; what else is in it is not written
            refuse_links(self.folder.parent)
        lock = RunDirectory(self.folder).lock()
        self._known = None  # until now another process may have written
        return lock

    def settle(self, settings: Mapping[str, Any], problems: Sequence[Problem]) -> None:
        """Write settings and problems the first time; later let them grow, and refuse whatever else differs."""
        changed = self.refuse_other(settings, problems)
        if changed:
            # killed before the last of these three, the smaller evaluation is whole, but for scores that the same
            # command makes again
            (self.folder / "scores.json").unlink(missing_ok=True)
            write_whole(self.problems_path, write_problems(problems))
        content = (json.dumps(settings, indent=1) + "\n").encode()
        if changed or content != self.settings_path.read_bytes():
            write_whole(self.settings_path, content)

    def refuse_other(self, settings: Mapping[str, Any], problems: Sequence[Problem]) -> bool:
        """Refuse an evaluation that may not go on in this record, and write nothing; return whether it is another.

        Settings that are left out are not compared, so that most can be refused before a model is loaded. Before the
        first sample is recorded, settings do not bind.
        """
        is_empty = next(iter(self._samples), None) is None
        if not self.settings_path.exists() and not is_empty:
            problem = f"{self.folder}: holds samples but no settings.json, so it is not known how they were made"
            raise RunError(problem, hint=_RESTORE)
        if is_empty:
            return True
        was, now = self.settings(), parse_json(json.dumps(settings))
        changed = _changes(was, now)
        recorded = self.problems() if any(name.startswith("problems.") for name in changed) else []
        if refused := _refusals(changed, was, now, recorded, problems):
            raise RunError(
                f"{self.folder} holds an evaluation with other settings: {'; '.join(refused)}",
                hint="give it the same settings to continue it, or choose another output directory",
            )
        return bool(changed)

    def settings(self) -> dict[str, Any]:
        """Return what the samples were made with."""
        try:
            settings = read_json(self.settings_path, dict[str, Any], hint=_RESTORE)
        except FileNotFoundError:
            raise RunError(f"{self.folder}: holds no evaluation (settings.json is missing)") from None
        known = checked(_Settings, settings, where=str(self.settings_path), hint=_RESTORE)
        counts = (known.samples, known.temperature_samples)
        if not (0 <= min(counts) <= max(counts) <= MOST_SAMPLES and known.problems.count > 0):
            raise RunError(f"{self.settings_path}: samples or problems.count is impossible", hint=_RESTORE)
        return settings

    def problems(self) -> list[Problem]:
        """Return as many problems as the settings say, whatever a killed process wrote after them."""
        recorded = self.settings()["problems"]
        problems = read_problems(self.problems_path)[: recorded["count"]]
        if len(problems) < recorded["count"] or fingerprint(problems) != recorded["sha256"]:
            raise RunError(
                f"{self.problems_path}: holds other problems than those that were asked (settings.json has their "
                "fingerprint)",
                hint=_RESTORE,
            )
        return problems

    def is_graded_as(self, problems: Sequence[Problem]) -> bool:
        """Return whether the recorded problems are graded as these say."""
        return [problem.grading for problem in self.problems()] == [problem.grading for problem in problems]

    def change_grading(self, problems: Sequence[Problem]) -> None:
        """Write down that the same problems are graded as these say; what was asked stays as it is."""
        if problems and not self.is_graded_as(problems):
            write_whole(self.problems_path, write_problems(problems))

    def __iter__(self) -> Iterator[Sample]:
        """Yield all recorded samples, in the order in which they came, one at a time."""
        seen = set[Key]()
        for number, line in enumerate(self._samples, start=1):
            place, hint = f"{self._samples.path}, line {number}", "restore or remove this line"
            sample = checked(Sample, line, where=place, hint=hint)
            if not GREEDY <= sample.sample < MOST_SAMPLES or not 0 <= sample.tokens < 2**31:
                raise RunError(f"{place}: this is no sample", hint=hint)
            if sample.key in seen:
                raise RunError(f"{place}: sample {sample.sample} of {sample.problem!r} occurs twice", hint=hint)
            seen.add(sample.key)
            yield sample

    def wanted(self) -> dict[Key, None]:
        """Return every sample that the settings ask for, in the order of the problems."""
        settings = self.settings()
        return wanted_keys(settings, [problem.id for problem in self.problems()])

    def require_complete(self, wanted: Collection[Key]) -> None:
        """Refuse to score where samples are missing."""
        if missing := self.missing(wanted):
            errors = [str(line.get("error")) for line in self._errors]
            why = f" (last error: {errors[-1]})" if errors else ""
            raise IncompleteEvaluation(
                f"{self.folder}: {len(missing):,} of {len(wanted):,} samples are missing, so there is no score{why}",
                hint="rerun the command to resume",
            )

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Return those that are not recorded yet, in the order given."""
        known = self._recorded()
        return [key for key in keys if key not in known]

    def append(self, sample: Sample) -> None:
        """Record one sample; from then on it outlives the process."""
        known = self._recorded()
        if sample.key in known:
            raise RunError(f"{self.folder}: sample {sample.sample} of {sample.problem!r} is recorded already")
        self._samples.append(asdict(sample))
        known.add(sample.key)

    def append_error(self, key: Key, error: str) -> None:
        """Record that a request failed."""
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        self._errors.append({**key._asdict(), "error": error, "when": when})

    def errors(self) -> list[dict[str, Any]]:
        """Return every failure, in order; most were made good later."""
        return self._errors.read()

    def close(self) -> None:
        """Close the files; the next `append` opens them again."""
        self._samples.close()
        self._errors.close()

    def _recorded(self) -> set[Key]:
        if self._known is None:
            self._known = {sample.key for sample in self}
        return self._known


def wanted_keys(settings: Mapping[str, Any], problems: Iterable[str]) -> dict[Key, None]:
    """Return the keys of all samples, greedy first, in the order of the problems."""
    each = [(number, None) for number in range(GREEDY if settings["greedy"] else 0, settings["samples"])]
    each += [(number, at) for at in settings["temperatures"] for number in range(settings["temperature_samples"])]
    return dict.fromkeys(Key(problem, *one) for problem in problems for one in each)


# ---- a record may grow under new settings, and nothing else


def _refusals(
    changed: Mapping[str, str],
    was: Mapping[str, Any],
    now: Mapping[str, Any],
    recorded: Sequence[Problem],
    problems: Sequence[Problem],
) -> list[str]:
    """Return what stands in the way, each in words; nothing where the evaluation is the same or has grown.

    More samples, temperatures, the greedy answer and more problems after the same first ones leave every recorded
    sample as it would have come out: its seed depends on the seed, the problem, its number and temperature alone.
    """
    refused: list[str] = []
    if any(name.startswith("problems.") for name in changed):
        pairs = enumerate(zip(recorded, problems, strict=False), start=1)
        other = next((at for at, (before, after) in pairs if before != after), None)
        why = "a record never shrinks" if len(problems) < len(recorded) else None
        if other is not None:
            ids = f"recorded {recorded[other - 1].id!r}, now {problems[other - 1].id!r}"
            why = f"number {other} has another id, text or answer: {ids}"
        refused += [f"problems: was {len(recorded)}, now {len(problems)} ({why})"] if why else []
    for name, text in changed.items():
        if name == "temperatures":
            if not set(was[name]) <= set(now[name]):
                refused.append(f"{text} (a record never shrinks)")
        elif name in ("samples", "greedy", "temperature_samples"):
            if was[name] > now[name]:
                instead = f": ask for {was[name]} and read pass@{now[name]}" if name == "samples" else ""
                refused.append(f"{text} (a record never shrinks{instead})")
        elif not name.startswith("problems.") and not (name in OF_SAMPLES and was["samples"] == 0):
            refused.append(text)
    return refused


def _changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Return what differs, by name and in words, but for what is left out now, and the details."""
    old, new, changed = dict(by_dotted_name(was)), dict(by_dotted_name(now)), {}
    for name in new:
        if name.startswith("details") or (name in old and old[name] == new[name]):
            continue
        before, after = (repr(side[name]) if name in side else "not set" for side in (old, new))
        is_short = len(before) + len(after) < 200
        changed[name] = f"{name}: was {before}, now {after}" if is_short else f"{name}: is another text"
    return changed
