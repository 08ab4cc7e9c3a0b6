"""Problems and their answers, in files of JSON Lines:

    {"id": "amc-0", "problem": "$\\frac{m}{n}$ is ...", "answer": "142"}

A row may say what its grading has to know: `is_multiple_answer`, `error` (absolute) and `unit`, as OlympiadBench does,
and `tolerance` (relative). Other fields do not matter.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError, one_line

SUFFIXES = (".jsonl", ".jsonl.gz")


class BenchmarkError(UsageError):
    """A benchmark that cannot be used, said in one line."""


@dataclass(frozen=True)
class Problem:
    """One problem, its answer, and what grading has to know about it."""

    id: str
    problem: str
    answer: str
    multiple: bool = False
    """The answer is a list of values, all of which are asked for."""
    tolerance: float | None = None
    """How far a number may be off, relative to it, where the benchmark says so."""
    absolute: float | None = None
    """The same in absolute terms."""
    unit: str | None = None
    """The unit that the answer is in, where the benchmark says so."""


def read_problems(path: Path) -> list[Problem]:
    """The problems of a JSON Lines file; an error names the line."""
    name = benchmark_name(path)
    places = ((number, row, f"{path}, line {number}") for number, row in _read_rows(path))
    problems = with_distinct_ids((place, as_problem(row, place, f"{name}-{number}")) for number, row, place in places)
    if not problems:
        raise BenchmarkError(f"{path}: holds no problems")
    return problems


def write_problems(problems: Iterable[Problem]) -> bytes:
    """JSON Lines that `read_problems` reads back."""
    names = {"multiple": "is_multiple_answer", "absolute": "error"}
    lines = ({names.get(key, key): value for key, value in asdict(p).items()} for p in problems)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def fingerprint(problems: Iterable[Problem]) -> str:
    """SHA-256 of the problems, answers and grading fields, in order."""
    return hashlib.sha256(write_problems(problems)).hexdigest()


def benchmark_name(name_or_path: str | Path) -> str:
    """What a benchmark is called in a run directory: its name, or the file's without the ending."""
    name = Path(name_or_path).name
    suffix = next((suffix for suffix in reversed(SUFFIXES) if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)] or name


def with_distinct_ids(problems: Iterable[tuple[str, Problem]]) -> list[Problem]:
    """Another problem under a known id gets a number: the AMC set counts each of its two years from 0."""
    known: dict[str, Problem] = {}
    for place, problem in problems:
        identity, times = problem.id, 1
        while identity in known:
            if known[identity].problem == problem.problem:
                raise BenchmarkError(f"{place}: the problem with id {identity!r} occurs twice; remove one of them")
            times += 1
            identity = f"{problem.id}#{times}"
        known[identity] = replace(problem, id=identity)
    return list(known.values())


def as_problem(row: Mapping[str, Any], place: str, default_id: str) -> Problem:
    known = ", ".join(map(repr, row))
    for name in ("problem", "answer"):
        if row.get(name) is None:
            raise BenchmarkError(f"{place}: no field {name!r}; it has {known}")
    problem, answer = row["problem"], row["answer"]
    if not isinstance(problem, str) or not problem.strip():
        raise BenchmarkError(f"{place}: 'problem' must be a text, got {problem!r}")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
        raise BenchmarkError(f"{place}: 'answer' must be a text or a number, got {answer!r}")
    identity = row.get("id")
    if identity is not None and (isinstance(identity, bool) or not isinstance(identity, str | int)):
        raise BenchmarkError(f"{place}: 'id' must be a text or an integer, got {identity!r}")
    return Problem(
        id=default_id if identity is None else str(identity),
        problem=problem,
        answer=str(answer).strip(),
        multiple=_as_flag(row.get("is_multiple_answer"), place),
        tolerance=_as_tolerance(row.get("tolerance"), "tolerance", place),
        absolute=_as_tolerance(row.get("error"), "error", place),
        unit=str(row["unit"]) if row.get("unit") else None,
    )


def _as_flag(value: Any, place: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise BenchmarkError(f"{place}: 'is_multiple_answer' must be true or false, got {value!r}")


def _as_tolerance(value: Any, name: str, place: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        tolerance = float(value)
    except (TypeError, ValueError):
        tolerance = math.nan
    if not 0 < tolerance < 1:
        raise BenchmarkError(f"{place}: {name!r} must be a number between 0 and 1, or absent, got {value!r}")
    return tolerance


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        content = path.read_bytes()
        lines = (gzip.decompress(content) if path.name.lower().endswith(".gz") else content).split(b"\n")
    except (OSError, EOFError) as error:
        raise BenchmarkError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise BenchmarkError(f"{path}, line {number}: not JSON ({one_line(error)})") from error
        if not isinstance(row, dict):
            raise BenchmarkError(
                f"{path}, line {number}: must be an object with named fields, got {type(row).__name__}"
            )
        yield number, row
