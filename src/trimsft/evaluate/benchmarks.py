"""Benchmarks: where problems come from.

A benchmark of the list is read from the hub, or from `<name>.jsonl` in a folder of your own; those of the lab are made
on the spot; any other file of JSON Lines is a benchmark too:

    {"id": "amc-0", "problem": "$\\frac{m}{n}$ is ...", "answer": "142"}

What else a row may say: see `trimsft.evaluate.problems`.

problems = load_benchmark("math500")
problems = load_benchmark("math500", data_dir="data/benchmarks", limit=20)
problems = load_benchmark("my/problems.jsonl")
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.errors import DataError, UsageError, one_line
from trimsft.evaluate.problems import SUFFIXES, Problem, as_problem, benchmark_name, read_problems, with_distinct_ids
from trimsft.grading import Grading
from trimsft.lab.task import ALL_TIERS, benchmark
from trimsft.models import asking_hub
from trimsft.options import unknown_name


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
