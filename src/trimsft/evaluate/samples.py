"""The record of an evaluation: what was asked under which settings, and every text that came back.

runs/trim/eval/math500/
  settings.json    model, prompt, sampling, ...; of these another evaluation may not be mixed in
  problems.jsonl   problems and answers, as they were asked last
  samples.jsonl    one `Sample` a line, append-only; sample -1 is the greedy one, temperature that of a further one

A text depends on prompt, sampling, engine and its own seed alone. So samples, temperatures, the greedy answer and
problems may be added at any time, or be asked for in part: what is recorded is never generated again.
"""

import contextlib
import json
import reprlib
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trimsft.errors import FAILED, RunError
from trimsft.evaluate.benchmarks import Problem, write_problems
from trimsft.evaluate.metrics import GREEDY
from trimsft.runs import JsonLines, RunDirectory, by_dotted_name, refuse_links, write_whole
from trimsft.runs.parsing import checked, parse_json, read_json

_BINDING = ("prompt", "sampling", "seed", "engine")  # what a text depends on, by the beginning of its name


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


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The settings that the samples of a benchmark depend on, as settings.json has it; of `details` they do not."""

    benchmark: str
    problems: dict[str, Any]  # their number and fingerprint
    prompt: dict[str, Any]
    sampling: dict[str, Any]
    samples: int
    temperatures: list[float]
    temperature_samples: int
    seed: int
    engine: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def keys(self, problems: Sequence[Problem]) -> dict[Key, None]:
        """Return the keys of all samples, greedy first, in the order of the problems."""
        each: list[tuple[int, float | None]] = [(number, None) for number in range(GREEDY, self.samples)]
        each += [(number, at) for at in self.temperatures for number in range(self.temperature_samples)]
        return dict.fromkeys(Key(problem.id, *one) for problem in problems for one in each)


class SampleRecord:
    """The folder of one benchmark in a run directory; nothing is created before something is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.settings_path = self.folder / "settings.json"
        self.samples_path = self.folder / "samples.jsonl"
        self.last_error: str | None = None  # of a request that failed in this process
        self._samples = JsonLines(self.samples_path)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out of this benchmark, and of no other."""
        # of a run from elsewhere; what lies beside the record is not written
        refuse_links(*(folder for folder in (self.folder.parent, self.folder) if folder.is_symlink()))
        with RunDirectory(self.folder).lock(), contextlib.closing(self._samples):
            yield

    def settle(self, protocol: Protocol, problems: Sequence[Problem]) -> None:
        """Write down what is asked from now on; refuse what the recorded samples do not go with."""
        if self.refuse_other(protocol):
            (self.folder / "scores.json").unlink(missing_ok=True)
        write_whole(self.folder / "problems.jsonl", write_problems(problems))
        write_whole(self.settings_path, (json.dumps(asdict(protocol), indent=1) + "\n").encode())

    def refuse_other(self, protocol: Protocol) -> bool:
        """Refuse an evaluation whose texts would be others, and write nothing; return whether more or less is asked.

        What a protocol leaves out is not compared; before the first sample is recorded, nothing binds.
        """
        if next(iter(self._samples), None) is None:
            return True
        was, now = (dict(by_dotted_name(parse_json(json.dumps(asdict(one))))) for one in (self.protocol(), protocol))
        names = [name for name in now if not name.startswith("details") and now[name] != {}]
        changed = [name for name in names if was.get(name, "not set") != now[name]]
        if refused := [name for name in changed if name.startswith(_BINDING)]:
            both = ((name, reprlib.repr(was.get(name, "not set")), reprlib.repr(now[name])) for name in refused)
            shown = "; ".join(f"{name}: was {before}, now {after}" for name, before, after in both)
            hint = "give it the same settings to continue it, or choose another output directory"
            raise RunError(f"{self.folder} holds an evaluation with other settings: {shown}", hint=hint)
        return bool(changed)

    def protocol(self) -> Protocol:
        """Return what the samples were made with."""
        return read_json(self.settings_path, Protocol, hint="restore it, or choose another output directory")

    def __iter__(self) -> Iterator[Sample]:
        """Yield all recorded samples, in the order in which they came, one at a time."""
        seen = set[Key]()
        for number, line in enumerate(self._samples, start=1):
            place, hint = f"{self.samples_path}, line {number}", "restore or remove this line"
            sample = checked(Sample, line, where=place, hint=hint)
            if sample.key in seen:
                raise RunError(f"{place}: sample {sample.sample} of {sample.problem!r} occurs twice", hint=hint)
            seen.add(sample.key)
            yield sample

    def require_complete(self, wanted: Collection[Key]) -> None:
        """Refuse to score where samples are missing."""
        if missing := self.missing(wanted):
            why = f" (last error: {self.last_error})" if self.last_error else ""
            problem = f"{len(missing):,} of {len(wanted):,} samples are missing, so there is no score{why}"
            raise IncompleteEvaluation(f"{self.folder}: {problem}", hint="rerun the command to resume")

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Return those that are not recorded yet, in the order given."""
        recorded = {sample.key for sample in self}
        return [key for key in keys if key not in recorded]

    def append(self, sample: Sample) -> None:
        """Record one sample that is missing; from then on it outlives the process."""
        self._samples.append(asdict(sample))
