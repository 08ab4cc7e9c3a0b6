r"""Benchmarks: where problems come from.

A published one is read from the hub by its name; any file of JSON Lines is one, too:

    {"id": "amc-0", "problem": "$\\frac{m}{n}$ is ...", "answer": "142"}
    {"problem": "A root of $x^2-5x+6$?", "answer": ["2", "3"]}      any of several is right

A row may have `is_multiple_answer`, `error` (absolute), `tolerance` (relative) and `unit`, which are for its grading.
Where answers are letters, `choices` are asked under the problem:

    {"problem": "2+2?", "choices": ["3", "4"], "answer": "B"}

Other fields do not matter. No field of a file names code.
"""

import hashlib
import json
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from trimsft.data.files import read_records
from trimsft.errors import DataError, RunError, one_line
from trimsft.grading import Rules
from trimsft.grading.kinds import LETTERS
from trimsft.lab.task import ALL_TIERS, benchmark
from trimsft.options import unknown_name
from trimsft.runs.parsing import checked

SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Problem:
    """One problem, its answer, and what grading has to know about it (see `trimsft.grading.Rules`)."""

    id: str
    problem: str
    answer: str | tuple[str, ...]  # a tuple: several, any of which is right
    is_multiple_answer: bool = False
    tolerance: float | None = None
    error: float | None = None
    unit: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        """Return the problem with its choices under it."""
        choices = zip(LETTERS, self.choices, strict=False)
        return "\n".join([self.problem, *(f"{letter}. {text}" for letter, text in choices)])

    @property
    def rules(self) -> Rules:
        """Return them for boxed mathematics."""
        return Rules(self.is_multiple_answer, self.tolerance, self.error, self.unit, choices=self.choices)


def benchmark_name(name_or_path: str | Path) -> str:
    """Return what a benchmark is called in a run directory: its name, or the file's without the ending."""
    return re.sub(r"(.)\.jsonl(\.gz)?$", r"\1", Path(name_or_path).name, flags=re.IGNORECASE)


# ---- the list


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


def _as_integer(value: Any) -> str:
    """Return 142.0 and 073 as 142 and 73."""
    return str(int(float(value)))


def _after_hashes(solution: Any) -> str:
    """Return the number that ends a solution of GSM8K: `... #### 1,000`."""
    return str(solution).rpartition("####")[2].strip().replace(",", "")


def _first_value(values: Any) -> str:
    """Return the answer of OlympiadBench, which is in a list of one text, in dollars."""
    text = str(values[0] if isinstance(values, list) else values).strip()
    is_wrapped = len(text) > 1 and text[0] == text[-1] == "$" and "$" not in text[1:-1]
    return text[1:-1].strip() if is_wrapped else text


BENCHMARKS: dict[str, Benchmark] = {
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
    "aime24": Benchmark(
        count=30, hub="HuggingFaceH4/aime_2024", revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        split="train", read_answer=_as_integer,
    ),
    # AIME 2025 I and II; as two public projects pin it, never fetched here
    "aime25": Benchmark(
        count=30, hub="math-ai/aime25", revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
    ),
    "gsm8k": Benchmark(
        count=1319, hub="openai/gsm8k", revision="740312add88f781978c0658806c59bc2815b9866",
        config="main", columns={"problem": "question"}, read_answer=_after_hashes,
    ),
}  # fmt: skip


def load_benchmark(name_or_path: str | Path, limit: int | None = None, *, letters: bool = False) -> list[Problem]:
    """Load the problems of a benchmark of the list, or of a file.

    `letters`: answers are letters, and choices are asked; elsewhere a column of that name is somebody else's.
    """
    path, name = find_file(name_or_path), str(name_or_path)
    if path is not None:
        problems = read_problems(path, letters=letters)
    elif name in ALL_TIERS:
        problems = [Problem(p.id, p.problem, p.answer) for p in benchmark(name)]
    else:
        problems = _load_from_hub(name)
    published = BENCHMARKS.get(benchmark_name(name))
    tolerance = None if published is None else published.tolerance
    asked = [one if letters else replace(one, choices=()) for one in problems[:limit]]
    return [replace(one, tolerance=one.tolerance or tolerance) for one in asked]


def find_file(name_or_path: str | Path) -> Path | None:
    """Return the local file that a benchmark is read from; None: the hub, or the lab."""
    name, path = str(name_or_path), Path(name_or_path).expanduser()
    if name in BENCHMARKS or name in ALL_TIERS:
        return None
    if not name.lower().endswith(SUFFIXES):
        raise unknown_name("benchmarks", name, [*BENCHMARKS, *ALL_TIERS, "the path of a .jsonl file"])
    if not path.is_file():
        raise DataError(f"no such file: {str(path)!r}", field="benchmarks")
    return path


# ---- the hub


def _load_from_hub(name: str) -> list[Problem]:
    import datasets

    source = BENCHMARKS[name]
    try:
        rows = datasets.load_dataset(source.hub, source.config, split=source.split, revision=source.revision)
    except Exception as error:  # the hub's client raises dozens of kinds
        problem = f"cannot load {name!r} from the hub, {source.hub}: {one_line(error)}"
        raise DataError(problem, field="benchmarks", hint=f"or name a file FOLDER/{name}.jsonl") from error
    problems = []
    for number, row in enumerate(rows):
        renamed = {**row, **{field: row[column] for field, column in source.columns.items()}}
        renamed["answer"] = source.read_answer(renamed["answer"])
        problems.append(as_problem(renamed, f"{source.hub}, row {number}", f"{name}-{number}"))
    return with_distinct_ids(problems)


# ---- files of problems


def read_problems(path: Path, *, letters: bool = False) -> list[Problem]:
    """Read the problems of a file of JSON Lines."""
    name, rows = benchmark_name(path), read_records(path)
    return with_distinct_ids(as_problem(row, f"{path}, line {at}", f"{name}-{at}", letters) for at, row in rows)


def with_distinct_ids(problems: Iterable[Problem]) -> list[Problem]:
    """Give another problem under a known id a number: the AMC set counts each of its two years from 0."""
    known: dict[str, Problem] = {}
    for problem in problems:
        identity, times = problem.id, 1
        while identity in known:
            times += 1
            identity = f"{problem.id}#{times}"
        known[identity] = replace(problem, id=identity)
    return list(known.values())


def write_problems(problems: Iterable[Problem]) -> bytes:
    """Return JSON Lines that `read_problems` reads back."""
    return "".join(json.dumps(asdict(problem)) + "\n" for problem in problems).encode()


def fingerprint(problems: Iterable[Problem]) -> str:
    """Return the SHA-256 of what is asked, in order: problems, answers, and what belongs to them."""
    return hashlib.sha256(write_problems(problems)).hexdigest()


# ---- rows

_Text = str | int | float


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A line of a file of problems."""

    __pydantic_config__: ClassVar = {"allow_inf_nan": False}

    problem: str
    answer: _Text | list[_Text]
    id: str | int | None = None
    is_multiple_answer: bool = False
    tolerance: float | None = None
    error: float | str | None = None  # OlympiadBench writes it as a text
    unit: str | None = None
    choices: Any = None


def as_problem(row: Mapping[str, Any], place: str, default_id: str, letters: bool = False) -> Problem:
    """Return a row as a problem; `letters` says that its answers are letters of choices."""
    values = {one.name: row.get(one.name) for one in fields(_Row)}
    known = {name: value for name, value in values.items() if value not in (None, []) and str(value).strip()}
    try:
        read = checked(_Row, json.dumps(known), where=place, is_json=True)  # which takes no number for a text
        choices = tuple(str(one).strip() for one in read.choices) if isinstance(read.choices, list) else ()
        if letters and choices and not 2 <= len(choices) <= len(LETTERS):
            raise ValueError(f"'choices' must be 2 to {len(LETTERS)}, got {len(choices)}")
        answers = read.answer if isinstance(read.answer, list) else [read.answer]
        texts = tuple(_letter(answer, choices) if letters else str(answer).strip() for answer in answers)
        if not all(texts):
            raise ValueError("an answer is blank")
        problem = Problem(
            id=str(default_id if read.id is None else read.id),
            problem=read.problem,
            answer=texts[0] if len(texts) == 1 else texts,
            is_multiple_answer=read.is_multiple_answer,
            tolerance=read.tolerance,
            error=None if read.error is None else float(read.error),
            unit=read.unit,
            choices=choices,
        )
        _ = problem.rules  # refuses tolerances that are none
    except RunError as error:
        raise DataError(f"{error.problem}; the row has {', '.join(map(reprlib.repr, list(row)[:20]))}") from error
    except ValueError as error:
        raise DataError(f"{place}: {error}") from error
    return problem


def _letter(answer: _Text, choices: Sequence[str]) -> str:
    """Return the letter of the right choice; MMLU gives its number, from 0 on."""
    letters = LETTERS[: len(choices)] if choices else LETTERS
    is_number = isinstance(answer, int) and 0 <= answer < len(choices)
    letter = letters[int(answer)] if is_number else str(answer).strip().upper()
    if len(letter) != 1 or letter not in letters:
        right = f"a letter from A to {letters[-1]}, or the number of a choice from 0 on"
        raise ValueError(f"'answer' must be {right}, got {reprlib.repr(answer)}")
    return letter
