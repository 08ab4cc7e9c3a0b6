"""Benchmarks: where problems come from, and files of problems and answers.

A benchmark of the list is read from the hub, or from `<name>.jsonl` in a folder of your own; those of the lab are made
on the spot; any other file of JSON Lines is a benchmark too:

    {"id": "amc-0", "problem": "$\\frac{m}{n}$ is ...", "answer": "142"}

A row may say what its grading has to know: `is_multiple_answer`, `error` (absolute) and `unit`, as OlympiadBench does,
and `tolerance` (relative). By `subject` and `level` scores are told apart. Other fields do not matter.

problems = load_benchmark("math500")
problems = load_benchmark("math500", data_dir="data/benchmarks", limit=20)
problems = load_benchmark("my/problems.jsonl")
"""

import gzip
import hashlib
import json
import math
import reprlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.errors import DataError, UsageError, one_line
from trimsft.lab import TIERS, benchmark
from trimsft.options import unknown_name
from trimsft.runs.parsing import parse_json

SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Problem:
    """One problem, its answer, and what grading has to know about it (see `trimsft.grading.Rules`)."""

    id: str
    problem: str
    answer: str
    multiple: bool = False
    tolerance: float | None = None
    absolute: float | None = None
    unit: str | None = None
    # what problems may be told apart by in scores; no part of what was asked
    subject: str | None = field(default=None, compare=False)
    level: str | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A published benchmark: where its rows are and what their columns mean."""

    count: int  # problems in the published set
    hub: str
    revision: str
    """Commit on the hub, so that a score names its data; several independent public projects pin the same."""
    config: str | None = None
    split: str = "test"
    columns: Mapping[str, str] = field(default_factory=dict)
    """Field of `Problem` -> column on the hub, where the names differ."""
    read_answer: Callable[[Any], str] = str  # the final answer in what the hub's column holds
    tolerance: float | None = None  # relative tolerance of its numbers, where a row says nothing

    @property
    def source(self) -> str:
        """Where it comes from, in words."""
        config = f"/{self.config}" if self.config else ""
        return f"{self.hub}{config} ({self.split}) at {self.revision}"


def _as_integer(value: Any) -> str:
    """142.0 and 073 as 142 and 73."""
    number = float(value)
    if not number.is_integer():
        raise ValueError(f"{value!r} is no whole number")
    return str(int(number))


def _after_hashes(solution: Any) -> str:
    """The number that ends a solution of GSM8K: `... #### 1,000`."""
    _, hashes, answer = str(solution).rpartition("####")
    if not hashes:
        raise ValueError("nothing behind ####")
    return answer.strip().replace(",", "")


def _first_value(values: Any) -> str:
    """OlympiadBench gives a list of one text, in dollars."""
    text = str(values[0] if isinstance(values, list) else values).strip()
    is_wrapped = len(text) > 1 and text[0] == text[-1] == "$" and "$" not in text[1:-1]
    return text[1:-1].strip() if is_wrapped else text


BENCHMARKS: dict[str, Benchmark] = {
    # 500 held-out problems of MATH
    "math500": Benchmark(
        count=500, hub="HuggingFaceH4/MATH-500", revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        columns={"id": "unique_id"},
    ),
    # open-ended, text-only English competition mathematics; the hub has 674 of the 675 problems
    "olympiadbench": Benchmark(
        count=675, hub="Hothan/OlympiadBench", revision="91184b52131e7fc9455fef848035173aea8cc01a",
        config="OE_TO_maths_en_COMP", split="train", columns={"problem": "question", "answer": "final_answer"},
        read_answer=_first_value,
    ),
    # questions of MIT OpenCourseWare, many of them physics; the published harnesses allow this tolerance
    "minerva": Benchmark(
        count=272, hub="math-ai/minervamath", revision="ee46ddc498933b1977577953250ca5c66be64f96",
        columns={"problem": "question"}, tolerance=1e-4,
    ),
    # AMC 12 of 2022 and 2023, reworded so that the answer is a number
    "amc": Benchmark(
        count=83, hub="AI-MO/aimo-validation-amc", revision="69d78a4a2c840e82d69af6bc742bda09005f6316",
        split="train", read_answer=_as_integer,
    ),
    # AMC 12 of 2023, a part of amc
    "amc23": Benchmark(
        count=40, hub="math-ai/amc23", revision="80815d37005feb82cd7f8fbc6901d5d3eff43057",
        columns={"problem": "question"}, read_answer=_as_integer,
    ),
    # AIME 2024 I and II
    "aime24": Benchmark(
        count=30, hub="HuggingFaceH4/aime_2024", revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        split="train", read_answer=_as_integer,
    ),
    # grade-school word problems
    "gsm8k": Benchmark(
        count=1319, hub="openai/gsm8k", revision="740312add88f781978c0658806c59bc2815b9866",
        config="main", columns={"problem": "question"}, read_answer=_after_hashes,
    ),
}  # fmt: skip


def load_benchmark(
    name_or_path: str | Path, data_dir: str | Path | None = None, limit: int | None = None
) -> list[Problem]:
    """The problems of a benchmark of the list, of `<name>.jsonl` in `data_dir`, or of any such file."""
    if limit is not None and limit < 1:
        raise UsageError("must be at least 1", field="limit", value=limit, hint="leave it out for all problems")
    path, name = find_file(name_or_path, data_dir), str(name_or_path)
    if path is not None:
        problems = read_problems(path)
    elif name in TIERS:
        problems = [Problem(p.id, p.problem, p.answer) for p in benchmark(name)]
    else:
        problems = _load_from_hub(name)
    published = BENCHMARKS.get(benchmark_name(name))
    if published is not None and published.tolerance is not None:
        problems = [replace(p, tolerance=p.tolerance or published.tolerance) for p in problems]
    return problems[:limit]


def describe_source(name_or_path: str | Path, data_dir: str | Path | None = None) -> str:
    """Where a benchmark is read from, for the record: the file, or dataset and commit on the hub."""
    path, name = find_file(name_or_path, data_dir), str(name_or_path)
    if path is not None:
        return str(path)
    return "the lab" if name in TIERS else BENCHMARKS[name].source


def benchmark_name(name_or_path: str | Path) -> str:
    """What a benchmark is called in a run directory: its name, or the file's without the ending."""
    whole = Path(name_or_path).name
    suffix = next((suffix for suffix in reversed(SUFFIXES) if whole.lower().endswith(suffix)), "")
    name = whole[: len(whole) - len(suffix)] or whole
    if not name.strip("."):  # a folder's name for itself, or for the one above it
        hint = "rename the file"
        raise DataError("leaves no name to record it under", field="benchmarks", value=str(name_or_path), hint=hint)
    return name


# ---- where it is


def find_file(name_or_path: str | Path, data_dir: str | Path | None = None) -> Path | None:
    """The local file that a benchmark is read from; None: the hub, or the lab."""
    name = str(name_or_path)
    if _is_path(name):
        path = Path(name).expanduser()
        if not path.is_file():
            raise DataError(f"no such file: {name!r}", field="benchmarks")
        return path
    if data_dir is not None and name not in TIERS:
        return _find_in_folder(name, Path(data_dir).expanduser())
    if name not in BENCHMARKS and name not in TIERS:
        raise unknown_name("benchmarks", name, [*BENCHMARKS, *TIERS, "the path of a .jsonl file"])
    return None


def refuse_unused_folder(benchmarks: Sequence[str], data_dir: str | Path | None) -> None:
    """Refuse a folder of benchmarks from which none of these would be read."""
    if data_dir is not None and all(name in TIERS or _is_path(name) for name in benchmarks):
        raise UsageError(
            "has no effect: files are read where they are, and the lab makes its benchmarks itself",
            field="data_dir",
            value=str(data_dir),
            hint="remove it",
        )


def _is_path(name: str) -> bool:
    is_known = name in BENCHMARKS or name in TIERS
    return name.lower().endswith(SUFFIXES) or (not is_known and Path(name).expanduser().is_file())


def _find_in_folder(name: str, folder: Path) -> Path:
    if not folder.is_dir():
        raise DataError("no such folder", field="data_dir", value=str(folder))
    for suffix in SUFFIXES:
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    there = sorted(benchmark_name(file) for file in folder.iterdir() if file.name.endswith(SUFFIXES))
    if name in BENCHMARKS or not there:
        held = f"it holds {', '.join(there)}" if there else "it holds no .jsonl file"
        raise DataError(
            f"{str(folder)!r} has no {name}.jsonl", field="data_dir", hint=f"{held}; without it, the hub is asked"
        )
    raise unknown_name("benchmarks", name, there)


# ---- the hub


def _load_from_hub(name: str) -> list[Problem]:
    import datasets

    source = BENCHMARKS[name]
    try:
        rows = datasets.load_dataset(source.hub, source.config, split=source.split, revision=source.revision)
    except Exception as error:  # the hub's client raises dozens of kinds
        raise DataError(
            f"cannot load {name!r} from the hub, {source.source}: {one_line(error).rstrip('.')}",
            field="benchmarks",
            hint=f"without the hub, name a folder that holds {name}.jsonl",
            remedy=("data_dir", "FOLDER"),
        ) from error
    problems = (from_hub(name, row, number) for number, row in enumerate(rows))
    return _with_distinct_ids((f"{source.hub}, row {number}", problem) for number, problem in enumerate(problems))


def from_hub(name: str, row: Mapping[str, Any], number: int) -> Problem:
    """A row of a published benchmark as a problem."""
    published = BENCHMARKS[name]
    place = f"{published.hub}, row {number}"
    renamed = {**row, **{field: row.get(column) for field, column in published.columns.items()}}
    try:
        if renamed["answer"] is None:
            raise ValueError("it is null")
        renamed["answer"] = published.read_answer(renamed["answer"])
    except (KeyError, ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise DataError(f"{place}: no answer in it ({error!r}); has the dataset changed?") from error
    return _as_problem(renamed, place, default_id=f"{name}-{number}")


# ---- files of problems


def read_problems(path: Path) -> list[Problem]:
    """The problems of a JSON Lines file; an error names the line."""
    name = benchmark_name(path)
    places = ((number, row, f"{path}, line {number}") for number, row in read_rows(path))
    problems = _with_distinct_ids((place, _as_problem(row, place, f"{name}-{number}")) for number, row, place in places)
    if not problems:
        raise DataError(f"{path}: holds no problems")
    return problems


def write_problems(problems: Iterable[Problem]) -> bytes:
    """JSON Lines that `read_problems` reads back."""
    return b"".join(_line(asdict(problem)) for problem in problems)


def fingerprint(problems: Iterable[Problem]) -> str:
    """SHA-256 of the problems, answers and grading fields, in order."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(_line(asdict(replace(problem, subject=None, level=None))))
    return digest.hexdigest()


def _line(fields: Mapping[str, Any]) -> bytes:
    names = {"multiple": "is_multiple_answer", "absolute": "error"}
    left_out = [name for name in ("subject", "level") if fields[name] is None]
    row = {names.get(name, name): value for name, value in fields.items() if name not in left_out}
    return (json.dumps(row) + "\n").encode()


def _with_distinct_ids(problems: Iterable[tuple[str, Problem]]) -> list[Problem]:
    """Another problem under a known id gets a number: the AMC set counts each of its two years from 0."""
    known: dict[str, Problem] = {}
    for place, problem in problems:
        identity, times = problem.id, 1
        while identity in known:
            if known[identity].problem == problem.problem:
                raise DataError(f"{place}: the problem with id {identity!r} occurs twice; remove one of them")
            times += 1
            identity = f"{problem.id}#{times}"
        known[identity] = replace(problem, id=identity)
    return list(known.values())


def _as_problem(row: Mapping[str, Any], place: str, default_id: str) -> Problem:
    for name in ("problem", "answer"):
        if row.get(name) is None:
            raise DataError(f"{place}: no field {name!r}; it has {', '.join(map(reprlib.repr, list(row)[:20]))}")
    problem, answer, identity, several = (row.get(name) for name in ("problem", "answer", "id", "is_multiple_answer"))
    is_number = isinstance(answer, float) and math.isfinite(answer)
    for name, what, holds in (
        ("problem", "a text", _is_text(problem) and str(problem).strip()),
        ("answer", "a text or a number", is_number or (_is_label(answer) and str(answer).strip())),
        ("id", "a text or an integer", identity is None or _is_label(identity)),
        ("is_multiple_answer", "true or false", several is None or isinstance(several, bool)),
        ("unit", "a text", not row.get("unit") or _is_text(row["unit"])),
    ):
        if not holds:
            raise DataError(f"{place}: {name!r} must be {what}, got {reprlib.repr(row[name])}")
    subject, level = (str(row[name]) if _is_label(row.get(name)) else None for name in ("subject", "level"))
    return Problem(
        id=default_id if identity is None else str(identity),
        problem=str(problem),
        answer=str(answer).strip(),
        multiple=bool(several),
        tolerance=_as_tolerance(row.get("tolerance"), "tolerance", place),
        absolute=_as_tolerance(row.get("error"), "error", place),
        unit=row.get("unit") or None,
        subject=subject,
        level=level,
    )


def _is_text(value: Any) -> bool:
    """Whether it is text that can be written and tokenised: JSON may hold halves of characters."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_label(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, int) and not isinstance(value, bool))


def _as_tolerance(value: Any, name: str, place: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        tolerance = float(value)
    except (TypeError, ValueError, OverflowError):
        tolerance = math.nan
    if not 0 < tolerance < 1:
        got = reprlib.repr(value)
        raise DataError(f"{place}: {name!r} must be a number between 0 and 1, or absent, got {got}")
    return tolerance


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON Lines file, packed or not, each with the number of its line."""
    try:
        content = path.read_bytes()
        lines = (gzip.decompress(content) if path.name.lower().endswith(".gz") else content).split(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line.decode("utf-8-sig"))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON ({one_line(error)})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: must be an object with named fields, got {type(row).__name__}")
        yield number, row
