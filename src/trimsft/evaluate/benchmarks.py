"""Benchmarks: where problems come from.

A benchmark of the list is read from the hub, or from `<name>.jsonl` in a folder of your own; those of the lab are made
on the spot; any other file of problems and answers (see `problem_files`) is a benchmark too.

problems = load_benchmark("math500")
problems = load_benchmark("math500", data_dir="data/benchmarks", limit=20)
problems = load_benchmark("my/problems.jsonl")
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.errors import one_line
from trimsft.evaluate.problem_files import (
    SUFFIXES,
    BenchmarkError,
    Problem,
    as_problem,
    benchmark_name,
    read_problems,
    with_distinct_ids,
)
from trimsft.lab import TIERS, benchmark

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "BenchmarkError",
    "Problem",
    "benchmark_name",
    "describe_source",
    "find_file",
    "load_benchmark",
]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One declaration: where the rows are and what their columns mean."""

    name: str
    description: str
    count: int
    """Problems in the published set."""
    hub: str
    revision: str
    """Commit on the hub, so that a score names its data."""
    config: str | None = None
    split: str = "test"
    columns: Mapping[str, str] = field(default_factory=dict)
    """Field of `Problem` -> column on the hub, where the names differ."""
    read_answer: Callable[[Any], str] = str
    """The final answer in what the hub's column holds."""
    tolerance: float | None = None
    """Relative tolerance of its numbers, where a row says nothing."""

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
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="math500",
            description="MATH500: 500 held-out problems of MATH",
            count=500,
            hub="HuggingFaceH4/MATH-500",
            revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            columns={"id": "unique_id"},
        ),
        Benchmark(
            name="olympiadbench",
            description="OlympiadBench: open-ended, text-only English competition mathematics (674 on the hub)",
            count=675,
            hub="Hothan/OlympiadBench",
            revision="91184b52131e7fc9455fef848035173aea8cc01a",
            config="OE_TO_maths_en_COMP",
            split="train",
            columns={"problem": "question", "answer": "final_answer"},
            read_answer=_first_value,
        ),
        Benchmark(
            name="minerva",
            description="Minerva Math: questions of MIT OpenCourseWare, many of them physics",
            count=272,
            hub="math-ai/minervamath",
            revision="ee46ddc498933b1977577953250ca5c66be64f96",
            columns={"problem": "question"},
            tolerance=1e-4,  # of the published harnesses
        ),
        Benchmark(
            name="amc",
            description="AMC 12 of 2022 and 2023, reworded so that the answer is a number",
            count=83,
            hub="AI-MO/aimo-validation-amc",
            split="train",
            revision="69d78a4a2c840e82d69af6bc742bda09005f6316",
            read_answer=_as_integer,
        ),
        Benchmark(
            name="amc23",
            description="AMC 12 of 2023, a part of amc",
            count=40,
            hub="math-ai/amc23",
            revision="80815d37005feb82cd7f8fbc6901d5d3eff43057",
            columns={"problem": "question"},
            read_answer=_as_integer,
        ),
        Benchmark(
            name="aime24",
            description="AIME 2024 I and II",
            count=30,
            hub="HuggingFaceH4/aime_2024",
            split="train",
            revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
            read_answer=_as_integer,
        ),
        Benchmark(
            name="gsm8k",
            description="GSM8K: grade-school word problems",
            count=1319,
            hub="openai/gsm8k",
            config="main",
            revision="740312add88f781978c0658806c59bc2815b9866",
            columns={"problem": "question"},
            read_answer=_after_hashes,
        ),
    )
}
"""Each revision is pinned by several independent public projects."""


def load_benchmark(
    name_or_path: str | Path, data_dir: str | Path | None = None, limit: int | None = None
) -> list[Problem]:
    """The problems of a benchmark of the list, of `<name>.jsonl` in `data_dir`, or of any such file."""
    if limit is not None and limit < 1:
        raise BenchmarkError(f"limit: must be at least 1, got {limit}; leave it out for all problems")
    path, name = find_file(name_or_path, data_dir), str(name_or_path)
    if path is not None:
        problems = read_problems(path)
    elif name in TIERS:
        problems = [Problem(p.id, p.problem, p.answer) for p in benchmark(name)]
    else:
        problems = _load_from_hub(BENCHMARKS[name])
    declared = BENCHMARKS.get(benchmark_name(name))
    if declared is not None and declared.tolerance is not None:
        problems = [replace(p, tolerance=p.tolerance or declared.tolerance) for p in problems]
    return problems[:limit]


def describe_source(name_or_path: str | Path, data_dir: str | Path | None = None) -> str:
    """Where a benchmark is read from, for the record: the file, or dataset and commit on the hub."""
    path, name = find_file(name_or_path, data_dir), str(name_or_path)
    if path is not None:
        return str(path)
    return "the lab" if name in TIERS else BENCHMARKS[name].source


def find_file(name_or_path: str | Path, data_dir: str | Path | None = None) -> Path | None:
    """The local file that a benchmark is read from; None: the hub, or the lab."""
    name, known = str(name_or_path), [*BENCHMARKS, *TIERS]
    if name.lower().endswith(SUFFIXES) or (name not in known and Path(name).expanduser().is_file()):
        path = Path(name).expanduser()
        if not path.is_file():
            raise BenchmarkError(f"benchmark: no such file: {name!r}")
        return path
    if data_dir is not None and name not in TIERS:
        return _find_in_folder(name, Path(data_dir).expanduser())
    if name not in known:
        raise BenchmarkError(_unknown(name, known))
    return None


def _find_in_folder(name: str, folder: Path) -> Path:
    if not folder.is_dir():
        raise BenchmarkError(f"data_dir: no such folder: {str(folder)!r}")
    for suffix in SUFFIXES:
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    there = sorted(benchmark_name(file) for file in folder.iterdir() if file.name.endswith(SUFFIXES))
    if name in BENCHMARKS or not there:
        held = f"it holds {', '.join(there)}" if there else "it holds no .jsonl file"
        raise BenchmarkError(
            f"data_dir: {str(folder)!r} has no {name}.jsonl; {held}. Without data_dir, the hub is asked"
        )
    raise BenchmarkError(_unknown(name, there))


def _unknown(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"benchmark: unknown name {name!r}; {hint}known: {', '.join(names)}, or the path of a .jsonl file"


def _load_from_hub(benchmark: Benchmark) -> list[Problem]:
    import datasets

    try:
        rows = datasets.load_dataset(
            benchmark.hub, benchmark.config, split=benchmark.split, revision=benchmark.revision
        )
    except Exception as error:  # the hub's client raises dozens of kinds
        raise BenchmarkError(
            f"benchmark: cannot load {benchmark.name!r} from the hub, {benchmark.source}: "
            f"{one_line(error).rstrip('.')}. Without the hub, name a folder "
            f"that holds {benchmark.name}.jsonl: --data-dir FOLDER"
        ) from error
    return with_distinct_ids(
        (f"{benchmark.hub}, row {number}", from_hub(benchmark, row, number)) for number, row in enumerate(rows)
    )


def from_hub(benchmark: Benchmark, row: Mapping[str, Any], number: int) -> Problem:
    """A row of the hub as a problem."""
    place = f"{benchmark.hub}, row {number}"
    renamed = dict(row)
    for name, column in benchmark.columns.items():
        renamed[name] = row.get(column)
    try:
        if renamed["answer"] is None:
            raise ValueError("it is null")
        renamed["answer"] = benchmark.read_answer(renamed["answer"])
    except (KeyError, ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise BenchmarkError(f"{place}: no answer in it ({error!r}); has the dataset changed?") from error
    return as_problem(renamed, place, default_id=f"{benchmark.name}-{number}")
