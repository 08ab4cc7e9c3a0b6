r"""Problems, and the files of JSON Lines that hold them:

    {"id": "amc-0", "problem": "$\\frac{m}{n}$ is ...", "answer": "142"}
    {"problem": "A root of $x^2-5x+6$?", "answer": ["2", "3"]}      any of several is right

A row may say what its grading has to know: `is_multiple_answer`, `error` (absolute) and `unit`, as OlympiadBench does,
and `tolerance` (relative). What is no boxed mathematics says so in `grading`, and then these fields are read too:

    {"problem": "Capital of France?", "answer": "Paris", "grading": "exact", "ignore_case": true}
    {"problem": "2+2?", "choices": ["3", "4"], "answer": "B", "grading": "choice"}
    {"problem": "2+2?", "answer": "4", "grading": "regex", "pattern": "#### (\\d+)", "compare": "exact"}

Other fields do not matter. No field of a file names code.
"""

import hashlib
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.data.load import is_text, read_records
from trimsft.errors import DataError, UsageError
from trimsft.grading import Grading, Rules
from trimsft.grading.rules import LETTERS

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
