r"""Benchmarks: where problems come from.

A benchmark of the list is read from the hub, or from `<name>.jsonl` in a folder of your own; those of the lab are made
on the spot; any other file of JSON Lines is a benchmark too:

    {"id": "amc-0", "problem": "$\\frac{m}{n}$ is ...", "answer": "142"}
    {"problem": "A root of $x^2-5x+6$?", "answer": ["2", "3"]}      any of several is right

A row may say what its grading has to know: `is_multiple_answer`, `error` (absolute) and `unit`, as OlympiadBench does,
and `tolerance` (relative). What is no boxed mathematics says so in `grading`, and then these fields are read too:

    {"problem": "Capital of France?", "answer": "Paris", "grading": "exact", "ignore_case": true}
    {"problem": "2+2?", "choices": ["3", "4"], "answer": "B", "grading": "choice"}
    {"problem": "2+2?", "answer": "4", "grading": "regex", "pattern": "#### (\\d+)", "compare": "exact"}

Other fields do not matter. No field of a file names code.

problems = load_benchmark("math500")
problems = load_benchmark("math500", data_dir="data/benchmarks", limit=20)
problems = load_benchmark("my/problems.jsonl")
"""

import hashlib
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.data.files import is_text, read_records
from trimsft.errors import DataError, UsageError, one_line
from trimsft.grading import Grading, Rules
from trimsft.grading.rules import LETTERS
from trimsft.lab.task import ALL_TIERS, benchmark
from trimsft.models import asking_hub
from trimsft.options import unknown_name

SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True)
class Problem:
    """One problem, its answer, and what grading has to know about it (see `trimsft.grading.Rules`)."""

    id: str
    problem: str
    answer: str | tuple[str, ...]  # a tuple: several, any of which is right
    multiple: bool = False
    tolerance: float | None = None
    absolute: float | None = None
    unit: str | None = None
    grading: Grading = field(default=Grading(), compare=False)  # no part of what was asked
    choices: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        """Return the problem with its choices under it."""
        choices = zip(LETTERS, self.choices, strict=False)
        return "\n".join([self.problem, *(f"{letter}. {text}" for letter, text in choices)])

    @property
    def rules(self) -> Rules:
        return Rules(self.multiple, self.tolerance, self.absolute, self.unit, self.grading, self.choices)


def benchmark_name(name_or_path: str | Path) -> str:
    """Return what a benchmark is called in a run directory: its name, or the file's without the ending."""
    whole = Path(name_or_path).name
    suffix = next((suffix for suffix in reversed(SUFFIXES) if whole.lower().endswith(suffix)), "")
    name = whole[: len(whole) - len(suffix)] or whole
    if not name.strip("."):  # a folder's name for itself, or for the one above it
        hint = "rename the file"
        raise DataError("leaves no name to record it under", field="benchmarks", value=str(name_or_path), hint=hint)
    return name


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

    @property
    def source(self) -> str:
        return f"{self.hub}{f'/{self.config}' if self.config else ''} ({self.split}) at {self.revision}"


def _as_integer(value: Any) -> str:
    """Return 142.0 and 073 as 142 and 73."""
    number = float(value)
    if not number.is_integer():
        raise ValueError(f"{value!r} is no whole number")
    return str(int(number))


def _after_hashes(solution: Any) -> str:
    """Return the number that ends a solution of GSM8K: `... #### 1,000`."""
    _, hashes, answer = str(solution).rpartition("####")
    if not hashes:
        raise ValueError("nothing behind ####")
    return answer.strip().replace(",", "")


def _first_value(values: Any) -> str:
    """Return the answer of OlympiadBench, which is in a list of one text, in dollars."""
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
    # AIME 2025 I and II; as two public projects pin it, never fetched here
    "aime25": Benchmark(
        count=30, hub="math-ai/aime25", revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
    ),
    # grade-school word problems
    "gsm8k": Benchmark(
        count=1319, hub="openai/gsm8k", revision="740312add88f781978c0658806c59bc2815b9866",
        config="main", columns={"problem": "question"}, read_answer=_after_hashes,
    ),
}  # fmt: skip


def load_benchmark(
    name_or_path: str | Path,
    data_dir: str | Path | None = None,
    limit: int | None = None,
    grading: Grading | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Load the problems of a benchmark of the list, of `<name>.jsonl` in `data_dir`, or of any such file.

    `grading` is that of rows that say nothing of it; `columns` are what a file calls `problem` and `answer`.
    """
    path, name = find_file(name_or_path, data_dir), str(name_or_path)
    if columns and path is None:
        one, column = next(iter(columns.items()))
        problem = f"has no effect on {name}, whose columns are known"
        raise UsageError(problem, field=f"{one}_column", value=column, hint="remove it")
    if path is not None:
        problems = read_problems(path, grading, columns)
    elif name in ALL_TIERS:
        problems = [Problem(p.id, p.problem, p.answer, grading=grading or Grading()) for p in benchmark(name)]
    else:
        problems = _load_from_hub(name, grading)
    published = BENCHMARKS.get(benchmark_name(name))
    if published is not None and published.tolerance is not None:
        problems = [
            replace(p, tolerance=p.tolerance or published.tolerance) if p.grading.is_mathematics else p
            for p in problems
        ]
    return problems[:limit]


def describe_source(name_or_path: str | Path, data_dir: str | Path | None = None) -> str:
    """Describe where a benchmark is read from, for the record: the file, or dataset and commit on the hub."""
    path, name = find_file(name_or_path, data_dir), str(name_or_path)
    if path is not None:
        return str(path)
    return "the lab" if name in ALL_TIERS else BENCHMARKS[name].source


def find_file(name_or_path: str | Path, data_dir: str | Path | None = None) -> Path | None:
    """Return the local file that a benchmark is read from; None: the hub, or the lab."""
    name = str(name_or_path)
    path, is_known = Path(name).expanduser(), name in BENCHMARKS or name in ALL_TIERS
    if name.lower().endswith(SUFFIXES) or (not is_known and path.is_file()):
        if not path.is_file():
            raise DataError(f"no such file: {name!r}", field="benchmarks")
        return path
    if data_dir is not None and name not in ALL_TIERS:
        folder = Path(data_dir).expanduser()
        for suffix in SUFFIXES:
            if (folder / f"{name}{suffix}").is_file():
                return folder / f"{name}{suffix}"
        there = sorted(benchmark_name(file) for file in folder.glob("*.jsonl*"))
        hint = f"it holds {', '.join(there) or 'no .jsonl file'}; without it, the hub is asked"
        raise DataError(f"{str(folder)!r} has no {name}.jsonl", field="data_dir", hint=hint)
    if not is_known:
        raise unknown_name("benchmarks", name, [*BENCHMARKS, *ALL_TIERS, "the path of a .jsonl file"])
    return None


# ---- the hub


def _load_from_hub(name: str, grading: Grading | None) -> list[Problem]:
    import datasets

    source = BENCHMARKS[name]
    try:
        with asking_hub(source.hub):
            rows = datasets.load_dataset(source.hub, source.config, split=source.split, revision=source.revision)
    except Exception as error:  # the hub's client raises dozens of kinds
        raise DataError(
            f"cannot load {name!r} from the hub, {source.source}: {one_line(error).rstrip('.')}",
            field="benchmarks",
            hint=f"without the hub, name a folder that holds {name}.jsonl",
            remedy=("data_dir", "FOLDER"),
        ) from error
    return with_distinct_ids(from_hub(name, row, number, grading) for number, row in enumerate(rows))


def from_hub(name: str, row: Mapping[str, Any], number: int, grading: Grading | None = None) -> Problem:
    """Return a row of a published benchmark as a problem."""
    published = BENCHMARKS[name]
    place = f"{published.hub}, row {number}"
    renamed = {**row, **{field: row.get(column) for field, column in published.columns.items()}}
    try:
        if renamed.get("answer") is not None:
            renamed["answer"] = published.read_answer(renamed["answer"])
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise DataError(f"{place}: no answer in it ({error!r}); has the dataset changed?") from error
    return as_problem(renamed, place, f"{name}-{number}", grading)


# ---- files of problems


def read_problems(
    path: Path, grading: Grading | None = None, columns: Mapping[str, str] | None = None
) -> list[Problem]:
    """Read the problems of a file, mostly of JSON Lines; an error names the line.

    `grading` is that of rows that say nothing of it; `columns` are what the file calls `problem` and `answer`.
    """
    name, problems = benchmark_name(path), []
    for number, row in read_records(path):
        place = f"{path}, line {number}"
        for field_name, column in (columns or {}).items():
            if column not in row:
                problem = f"{place}: there is no column {column!r}; it has {_names_of(row)}"
                raise DataError(problem, field=f"{field_name}_column")
        row |= {field_name: row[column] for field_name, column in (columns or {}).items()}
        problems.append(as_problem(row, place, f"{name}-{number}", grading))
    return with_distinct_ids(problems)


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


def write_problems(problems: Iterable[Problem], *, with_grading: bool = True) -> bytes:
    """Return JSON Lines that `read_problems` reads back; without gradings, only what is asked."""
    lines = []
    for problem in problems:
        row = {
            "id": problem.id,
            "problem": problem.problem,
            "answer": problem.answer,
            "is_multiple_answer": problem.multiple or None,
            "tolerance": problem.tolerance,
            "error": problem.absolute,
            "unit": problem.unit,
            "choices": list(problem.choices) or None,
        }
        grading = problem.grading
        if with_grading and (grading != Grading() or problem.choices):
            row |= {"grading": grading.kind, "pattern": grading.pattern, "ignore_case": grading.ignore_case or None}
            row |= {"compare": grading.compare} if grading.kind == "regex" else {}
        lines.append(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n")
    return "".join(lines).encode()


def fingerprint(problems: Iterable[Problem], *, with_grading: bool = False) -> str:
    """Return the SHA-256 of what is asked, in order: problems, answers, what belongs to them, and their gradings."""
    return hashlib.sha256(write_problems(problems, with_grading=with_grading)).hexdigest()


def describe_gradings(problems: Iterable[Problem]) -> str:
    """Describe how answers are graded; empty where all are boxed mathematics."""
    texts = sorted({str(problem.grading) for problem in problems})
    return "" if texts == ["math"] else " and ".join(texts)


# ---- rows


def _is_answer(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else type(value) is int or is_text(value)


def _is_share(value: Any) -> bool:
    try:
        return 0 < float(value) < 1  # OlympiadBench writes it as a text
    except (TypeError, ValueError, OverflowError):
        return False


def _are_answers(value: Any, least: int = 1, most: int = 10**6) -> bool:
    return isinstance(value, list) and least <= len(value) <= most and all(map(_is_answer, value))


_TEXT, _FLAG, _SHARE = ("a text", is_text), ("true or false", lambda value: isinstance(value, bool)), "between 0 and 1"
_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "problem": _TEXT,
    "answer": ("a text or a number, or a list of such", lambda value: _is_answer(value) or _are_answers(value)),
    "id": ("a text or an integer", lambda value: is_text(value) or type(value) is int),
    "is_multiple_answer": _FLAG,
    **dict.fromkeys(("tolerance", "error"), (f"a number {_SHARE}, or absent", _is_share)),
    "unit": _TEXT,
    "choices": (f"a list of 2 to {len(LETTERS)} texts", lambda value: _are_answers(value, 2, len(LETTERS))),
    **dict.fromkeys(("grading", "pattern", "compare"), _TEXT),
    "ignore_case": _FLAG,
}
_OF_GRADING = ("choices", "grading", "pattern", "compare", "ignore_case")
"""Fields that count where something says how a row is graded; elsewhere a column of such a name is somebody else's."""


def as_problem(row: Mapping[str, Any], place: str, default_id: str, grading: Grading | None = None) -> Problem:
    """Return a row as a problem; `grading` is how it is graded where it does not say so itself."""
    values = {name: value for name, value in row.items() if name in _FIELDS and value is not None and value != ""}
    for name in ("problem", "answer"):
        if name not in values:
            lacking = f"{place}: no field {name!r}; it has {_names_of(row)}"
            raise DataError(lacking, remedy=(f"{name}_column", "NAME"))
    if "grading" not in values and grading is None:
        values = {name: value for name, value in values.items() if name not in _OF_GRADING}
    for name, value in values.items():
        what, is_right = _FIELDS[name]
        if not is_right(value):
            raise DataError(f"{place}: {name!r} must be {what}, got {reprlib.repr(value)}")
    if "grading" in values:
        how = {name: values[name] for name in ("pattern", "compare", "ignore_case") if name in values}
        try:
            grading = Grading(values["grading"], **how)
        except UsageError as error:
            raise DataError(f"{place}: {error}") from error
    grading = grading or Grading()
    for name in ("is_multiple_answer", "tolerance", "error", "unit"):
        if values.get(name) and not grading.is_mathematics:
            raise DataError(f"{place}: {name!r} has no effect on grading {grading.kind!r}; remove it")
    answers = values["answer"] if isinstance(values["answer"], list) else [values["answer"]]
    choices = tuple(str(choice).strip() for choice in values.get("choices", ()))
    if grading.kind == "choice":
        answers = [_letter(answer, choices, place) for answer in answers]
    texts = tuple(str(answer).strip() for answer in answers)
    return Problem(
        id=str(values.get("id", default_id)),
        problem=values["problem"],
        answer=texts[0] if len(texts) == 1 else texts,
        multiple=values.get("is_multiple_answer", False),
        tolerance=float(values["tolerance"]) if "tolerance" in values else None,
        absolute=float(values["error"]) if "error" in values else None,
        unit=values.get("unit"),
        grading=grading,
        choices=choices,
    )


def _letter(answer: Any, choices: Sequence[str], place: str) -> str:
    """Return the letter of the right choice; MMLU gives its number, from 0 on."""
    letters = LETTERS[: len(choices)] if choices else LETTERS
    is_number = isinstance(answer, int) and 0 <= answer < len(choices)
    letter = letters[answer] if is_number else str(answer).strip().upper()
    if len(letter) != 1 or letter not in letters:
        right = f"a letter from A to {letters[-1]}, or the number of a choice from 0 on"
        raise DataError(f"{place}: 'answer' must be {right}, got {reprlib.repr(answer)}")
    return letter


def _names_of(row: Mapping[str, Any]) -> str:
    return ", ".join(map(reprlib.repr, list(row)[:20]))
