r"""Problems, and the files of JSON Lines that hold them:

    {"id": "amc-0", "problem": "$\\frac{m}{n}$ is ...", "answer": "142"}
    {"problem": "A root of $x^2-5x+6$?", "answer": ["2", "3"]}      any of several is right

A row may say what its grading has to know: `is_multiple_answer`, `error` (absolute) and `unit`, as OlympiadBench does,
and `tolerance` (relative). What is no boxed mathematics says so in `grading`, and then these fields are read too:

    {"problem": "Capital of France?", "answer": "Paris", "grading": "exact", "ignore_case": true}
    {"problem": "2+2?", "choices": ["3", "4"], "answer": "B", "grading": "choice", "instruction": "Name the letter."}
    {"problem": "2+2?", "answer": "4", "grading": "regex", "pattern": "#### (\\d+)", "compare": "exact"}

Other fields do not matter. No field of a file names code.
"""

import hashlib
import json
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.data.load import is_text
from trimsft.errors import DataError, UsageError, one_line
from trimsft.grading import Grading, Rules
from trimsft.grading.rules import LETTERS
from trimsft.runs.files import read_unpacked
from trimsft.runs.parsing import parse_json

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
    instruction: str | None = None
    """What stands in place of the template's request for a boxed answer; all problems of a file have the same."""

    @property
    def asked(self) -> str:
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
    """Read the problems of a JSON Lines file; an error names the line.

    Args:
        grading: that of rows that say nothing of it.
        columns: what the file calls `problem` and `answer`, where it calls them otherwise.
    """
    name = benchmark_name(path)
    problems = []
    for number, row in read_rows(path):
        place = f"{path}, line {number}"
        for field_name, column in (columns or {}).items():
            if column not in row:
                problem = f"{place}: there is no column {column!r}; it has {_columns_of(row)}"
                raise DataError(problem, field=f"{field_name}_column")
        renamed = row | {field_name: row[column] for field_name, column in (columns or {}).items()}
        problems.append(as_problem(renamed, place, f"{name}-{number}", grading))
    if not problems:
        raise DataError(f"{path}: holds no problems")
    if len({problem.instruction for problem in problems}) > 1:
        raise DataError(f"{path}: 'instruction' must be the same in all rows")
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


def _columns_of(row: Mapping[str, Any]) -> str:
    return ", ".join(map(reprlib.repr, list(row)[:20]))


def write_problems(problems: Iterable[Problem]) -> bytes:
    """Return JSON Lines that `read_problems` reads back."""
    return b"".join(_line(_row(problem) | _grading_fields(problem)) for problem in problems)


def fingerprint(problems: Iterable[Problem]) -> str:
    """Return the SHA-256 of what is asked, in order: problems, answers, and what belongs to them."""
    return hashlib.sha256(b"".join(_line(_row(problem)) for problem in problems)).hexdigest()


def grading_fingerprint(problems: Iterable[Problem]) -> str:
    """Return the SHA-256 of the same, and of how the answers are graded."""
    return hashlib.sha256(write_problems(problems)).hexdigest()


def describe_gradings(problems: Iterable[Problem]) -> str:
    """Describe how answers are graded: empty where all are boxed mathematics, by a hash where it is long."""
    texts = sorted({str(problem.grading) for problem in problems})
    if len(texts) > 4:
        return f"{len(texts)} gradings ({hashlib.sha256(' '.join(texts).encode()).hexdigest()[:12]})"
    return "" if texts == ["math"] else " and ".join(texts)


def _line(row: Mapping[str, Any]) -> bytes:
    return (json.dumps(row) + "\n").encode()


def _row(problem: Problem) -> dict[str, Any]:
    """Return what is asked; fingerprints are of these names in this order."""
    row = {
        "id": problem.id,
        "problem": problem.problem,
        "answer": problem.answer,
        "is_multiple_answer": problem.multiple or None,
        "tolerance": problem.tolerance,
        "error": problem.absolute,
        "unit": problem.unit,
        "choices": list(problem.choices) or None,
        "instruction": problem.instruction,
    }
    return {name: value for name, value in row.items() if value is not None}


def _grading_fields(problem: Problem) -> dict[str, Any]:
    """Return how it is graded, in the fields of a row; none for what a row says nothing of."""
    grading = problem.grading
    if grading == Grading() and not problem.choices and problem.instruction is None:
        return {}
    fields: dict[str, Any] = {"grading": grading.kind}
    if grading.pattern is not None:
        fields |= {"pattern": grading.pattern, "compare": grading.compare}
    return fields | ({"ignore_case": True} if grading.ignore_case else {})


def as_problem(row: Mapping[str, Any], place: str, default_id: str, grading: Grading | None = None) -> Problem:
    """Return a row as a problem; `grading` is how it is graded where it does not say so itself."""
    for name in ("problem", "answer"):
        if row.get(name) is None:
            lacking = f"{place}: no field {name!r}; it has {_columns_of(row)}"
            raise DataError(lacking, remedy=(f"{name}_column", "NAME"))
    problem, answer, identity, several = (row.get(name) for name in ("problem", "answer", "id", "is_multiple_answer"))
    answers = answer if isinstance(answer, list) else [answer]
    for name, what, holds in (
        ("problem", "a text", is_text(problem)),
        ("answer", "a text or a number, or a list of such", answers and all(map(_is_answer, answers))),
        ("id", "a text or an integer", identity is None or _is_label(identity)),
        ("is_multiple_answer", "true or false", several is None or isinstance(several, bool)),
        ("unit", "a text", not row.get("unit") or is_text(row["unit"])),
    ):
        if not holds:
            raise DataError(f"{place}: {name!r} must be {what}, got {reprlib.repr(row[name])}")
    read = Problem(
        id=default_id if identity is None else str(identity),
        problem=str(problem),
        answer=_one_or_several([str(one).strip() for one in answers]),
        multiple=bool(several),
        tolerance=_as_tolerance(row.get("tolerance"), "tolerance", place),
        absolute=_as_tolerance(row.get("error"), "error", place),
        unit=row.get("unit") or None,
    )
    says_how = row.get("grading") is not None or grading is not None
    return _with_grading(read, row, place, grading) if says_how else read


def _with_grading(problem: Problem, row: Mapping[str, Any], place: str, default: Grading | None) -> Problem:
    """Return the problem with what its row says of grading and choices, or with this default."""
    choices, instruction = row.get("choices"), row.get("instruction")
    is_list = isinstance(choices, list) and 2 <= len(choices) <= len(LETTERS)
    if choices is not None and not (is_list and all(_is_label(one) or isinstance(one, float) for one in choices)):
        raise DataError(f"{place}: 'choices' must be a list of 2 to {len(LETTERS)} texts, got {reprlib.repr(choices)}")
    if instruction not in (None, "") and not is_text(instruction):
        raise DataError(f"{place}: 'instruction' must be a text, got {reprlib.repr(instruction)}")
    grading = default or Grading()
    if row.get("grading") is not None:
        grading = _read_grading(row, place)
    texts = tuple(str(choice).strip() for choice in choices or ())
    read = replace(problem, grading=grading, choices=texts, instruction=instruction)
    for name in ("is_multiple_answer", "tolerance", "error", "unit"):
        if row.get(name) and not grading.is_mathematics:
            raise DataError(f"{place}: {name!r} has no effect on grading {grading.kind!r}; remove it")
    if grading.kind != "choice":
        return read
    answers = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
    return replace(read, answer=_one_or_several([_letter(answer, texts, place) for answer in answers]))


def _read_grading(row: Mapping[str, Any], place: str) -> Grading:
    given = {name: row[name] for name in ("pattern", "compare", "ignore_case") if row.get(name) is not None}
    for name, value in {"grading": row["grading"], **given}.items():
        kind, what = (bool, "true or false") if name == "ignore_case" else (str, "a text")
        if not isinstance(value, kind) or (kind is str and not is_text(value)):
            raise DataError(f"{place}: {name!r} must be {what}, got {reprlib.repr(value)}")
    try:
        return Grading(row["grading"], **given)
    except UsageError as error:
        raise DataError(f"{place}: {error}") from error


def _letter(answer: Any, choices: Sequence[str], place: str) -> str:
    """Return the letter of the right choice; MMLU gives its number, from 0 on."""
    letters = LETTERS[: len(choices)] if choices else LETTERS
    is_number = isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(choices)
    letter = letters[answer] if is_number else str(answer).strip().upper()
    if len(letter) != 1 or letter not in letters:
        right = f"a letter from A to {letters[-1]}, or the number of a choice from 0 on"
        raise DataError(f"{place}: 'answer' must be {right}, got {reprlib.repr(answer)}")
    return letter


def _is_label(value: Any) -> bool:
    return is_text(value) or (isinstance(value, int) and not isinstance(value, bool))


def _is_answer(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return _is_label(value)


def _one_or_several(answers: Sequence[str]) -> str | tuple[str, ...]:
    return answers[0] if len(answers) == 1 else tuple(answers)


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
    """Yield the objects of a JSON Lines file, packed or not, each with the number of its line."""
    for number, line in enumerate(read_unpacked(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line.decode("utf-8-sig"))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON ({one_line(error)})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: must be an object with named fields, got {type(row).__name__}")
        yield number, row
