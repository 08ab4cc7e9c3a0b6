"""Published generations, graded and scored here: do their figures come out? Writes JSON.

    git clone https://github.com/microsoft/ToRA            # and the three below
    python benchmarks/published.py --source ToRA=ToRA --source grade-school-math=grade-school-math \
        --source rho=rho --source Qwen2.5-Math=Qwen2.5-Math --out results/published.json

A source that is not given is left out. Each dump becomes a record as `trimsft eval` writes it (settings.json,
problems.jsonl, samples.jsonl), and from there on everything is the package's own: `grade_record` grades and scores. The
strict grader reads boxes alone; where a dump states answers otherwise ("A: 18"), the record it gets has the stated
text appended in a box, and a response that states none stays without. The qwen grader gets the text as published.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.evaluate.grades import grade_record
from trimsft.evaluate.problems import Problem, fingerprint
from trimsft.evaluate.samples import Sample, SampleRecord
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.grading import GRADER_VERSION, Grader

SHOWN = 12
"""Differences of a kind that go into the JSON."""
LONGEST = 120


@dataclass(frozen=True)
class Answered:
    """One problem of a dump: its samples as published, and their grades as recorded there."""

    problem: str
    gold: str
    texts: tuple[str, ...]
    recorded: tuple[bool, ...]
    extracted: tuple[str, ...] | None = None
    """The answers that the dump's authors found in the texts."""


@dataclass(frozen=True)
class Dump:
    """One file of published generations."""

    name: str
    source: str
    benchmark: str
    read: Callable[[Path], Iterator[Answered]]
    published: float | None = None
    """What the authors' README says, in %; None where it says nothing."""
    metrics: Callable[[Path], float] | None = None
    """What a file beside the dump says, in %."""
    stated: re.Pattern[str] | None = None
    """Where the answer stands in responses that have no box."""


def _json_lines(text: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in text.splitlines() if line.strip())


def _tora(model: str) -> dict[str, Any]:
    path = f"src/outputs/llm-agents/{model}/gsm8k/test_tora_-1_seed0_t0.0_s0_e1319"

    def read(clone: Path) -> Iterator[Answered]:
        for row in _json_lines((clone / f"{path}.jsonl").read_text("utf-8")):
            # only the mean is recorded; their rule for numbers, on their extracted answers, gives that mean
            recorded = tuple(_as_numbers(pred, row["gt"]) for pred in row["pred"])
            yield Answered(row["question"], row["gt"], tuple(row["code"]), recorded, tuple(row["pred"]))

    def metrics(clone: Path) -> float:
        found = re.search(r"Mean score: \[([\d.]+)\]", (clone / f"{path}.metrics").read_text())
        assert found is not None
        return float(found[1])

    return {"source": "ToRA", "benchmark": "gsm8k", "read": read, "metrics": metrics}


def _as_numbers(answer: str, gold: str) -> bool:
    try:
        value, right = (float(text.replace(",", "")) for text in (answer, gold))
    except ValueError:
        return False
    return any(math.isclose(value, right * by, rel_tol=1e-4) for by in (0.01, 1.0, 100.0))


def _rho(model: str, folder: str, prompt: str) -> dict[str, Any]:
    path = f"outputs/{model}/{folder}/test_{prompt}_-1_seed0_t0.0_s0_e-1"

    def content(clone: Path, name: str) -> str:
        with zipfile.ZipFile(clone / "rho-1" / "outputs.zip") as archive:
            return archive.read(name).decode()

    def read(clone: Path) -> Iterator[Answered]:
        for row in _json_lines(content(clone, f"{path}.jsonl")):
            gold = row["gt"] if folder == "gsm8k" else row["answer"]
            texts, recorded, extracted = (tuple(row[field]) for field in ("code", "score", "pred"))
            yield Answered(row["question"], gold, texts, recorded, extracted)

    def metrics(clone: Path) -> float:
        return float(json.loads(content(clone, f"{path}_{prompt}_metrics.json"))["acc"])

    # the folder minerva_math holds MATH500, asked with Minerva's prompt
    benchmark = {"gsm8k": "gsm8k", "minerva_math": "math500"}[folder]
    found: dict[str, Any] = {"source": "rho", "benchmark": benchmark, "read": read, "metrics": metrics}
    if prompt == "cot":
        found["stated"] = _ANSWER_IS if folder == "gsm8k" else _FINAL_ANSWER
    return found


def _grade_school(model: str) -> dict[str, Any]:
    def read(clone: Path) -> Iterator[Answered]:
        path = clone / "grade_school_math" / "data" / "example_model_solutions.jsonl"
        for row in _json_lines(path.read_text("utf-8")):
            gold = row["ground_truth"].rpartition("A: ")[2]
            solution = row[model]
            yield Answered(row["question"], gold, (solution["solution"],), (solution["is_correct"],))

    return {"source": "grade-school-math", "benchmark": "gsm8k", "read": read, "stated": _LAST_LINE}


def _qwen(clone: Path) -> Iterator[Answered]:
    path = clone / "evaluation" / "data" / "eval_rm_maj_example" / "math_cot_100.jsonl"
    for row in _json_lines(path.read_text("utf-8")):
        yield Answered(row["question"], row["answer"], tuple(row["code"]), tuple(row["score"]), tuple(row["pred"]))


_LAST_LINE = re.compile(r"\nA: ([^\n]+)\s*\Z")
_ANSWER_IS = re.compile(r"[Tt]he answer is ([^\n]+?)\.?\s*\Z")
_FINAL_ANSWER = re.compile(r"[Tt]he final answer is ([^\n]+?)\.?\s*(?:I hope[^\n]*)?\Z")

DUMPS = (
    Dump("ToRA-70B", published=84.3, **_tora("tora-70b-v1.0")),
    Dump("ToRA-Code-34B", published=80.7, **_tora("tora-code-34b-v1.0")),
    Dump("Rho-Math-1B", published=36.2, **_rho("rho-math-1b-v0.1", "gsm8k", "cot")),
    Dump("Rho-Math-1B", published=15.6, **_rho("rho-math-1b-v0.1", "minerva_math", "cot")),
    Dump("Rho-Math-7B", published=66.9, **_rho("rho-math-7b-v0.1", "gsm8k", "cot")),
    Dump("Rho-Math-7B", published=31.0, **_rho("rho-math-7b-v0.1", "minerva_math", "cot")),
    Dump("Rho-Math-1B-Interpreter", published=59.4, **_rho("rho-math-1b-interpreter-v0.1", "gsm8k", "tora")),
    Dump("Rho-Math-1B-Interpreter", published=40.6, **_rho("rho-math-1b-interpreter-v0.1", "minerva_math", "tora")),
    Dump("Rho-Math-7B-Interpreter", published=81.3, **_rho("rho-math-7b-interpreter-v0.1", "gsm8k", "tora")),
    Dump("Rho-Math-7B-Interpreter", published=51.8, **_rho("rho-math-7b-interpreter-v0.1", "minerva_math", "tora")),
    *(
        Dump(f"GSM8K paper, {model}", **_grade_school(model))
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    ),
    Dump("Qwen2.5-Math example", source="Qwen2.5-Math", benchmark="math-100", read=_qwen),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", action="append", default=[], metavar="NAME=FOLDER", help="a clone")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="keep the records here (default: a temporary folder)")
    options = parser.parse_args()
    clones = sources(options.source)
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        strict, lenient = Grader(), Grader(kind="qwen")
        results = [check(dump, clones[dump.source], strict, lenient, root) for dump in DUMPS if dump.source in clones]
    report = {"grader_version": GRADER_VERSION, "results": results}
    if options.out:
        options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")


def sources(pairs: list[str]) -> dict[str, Path]:
    """The clones that were given, by name."""
    known = sorted({dump.source for dump in DUMPS})
    clones = {}
    for pair in pairs:
        name, _, folder = pair.partition("=")
        if name not in known or not Path(folder).is_dir():
            raise SystemExit(f"source: {pair!r}; expected NAME=FOLDER, a clone of one of {', '.join(known)}")
        clones[name] = Path(folder)
    return clones


def check(dump: Dump, clone: Path, strict: Grader, lenient: Grader, root: Path) -> dict[str, Any]:
    """One line of the report."""
    rows = list(dump.read(clone))
    name = re.sub(r"\W+", "-", f"{dump.name}-{dump.benchmark}".lower())
    found: dict[str, Any] = {
        "dump": dump.name,
        "benchmark": dump.benchmark,
        "problems": len(rows),
        "samples": len(rows[0].texts),
        "published": dump.published,
        "recorded": dump.metrics(clone) if dump.metrics else _mean(rows),
    }
    if len(rows[0].texts) > 1:
        found["recorded_majority"] = _majority(rows)
    for grader, boxed in ((strict, dump.stated), (lenient, None)):
        record = write_record(root / f"{name}-{grader.kind}", dump, rows, boxed)
        scores = grade_record(record, grader)
        grades = list(_json_lines((record.folder / "grades.jsonl").read_text("utf-8")))
        found[grader.kind] = {**_figures(scores), **_differences(rows, grades)}
    print({key: value for key, value in found.items() if not isinstance(value, dict)})
    for kind in ("strict", "qwen"):
        print("  ", kind, {key: value for key, value in found[kind].items() if not isinstance(value, list)})
    return found


def write_record(folder: Path, dump: Dump, rows: list[Answered], stated: re.Pattern[str] | None) -> SampleRecord:
    """The dump as `trimsft eval` would have recorded it; what is not known of it is 0 or empty."""
    record = SampleRecord(folder)
    problems = [Problem(f"{n:05}", row.problem, row.gold) for n, row in enumerate(rows)]
    settings = {
        "benchmark": dump.benchmark,
        "problems": {"count": len(problems), "sha256": fingerprint(problems)},
        "samples": len(rows[0].texts),
        "greedy": False,
        "engine": {"name": "published", "model": dump.name},
    }
    record.settle(settings, problems)
    lines = (
        json.dumps(Sample(p.id, n, 0, boxed_text(text, stated), 0, "stop", "").__dict__) + "\n"
        for p, row in zip(problems, rows, strict=True)
        for n, text in enumerate(row.texts)
    )
    (folder / "samples.jsonl").write_text("".join(lines), "utf-8")
    return record


def boxed_text(text: str, stated: re.Pattern[str] | None) -> str:
    """The text with the answer that it states appended in a box, where there is a way to state one."""
    found = stated.search(text) if stated else None
    return f"{text}\n\\boxed{{{found[1]}}}" if found else text


def _figures(scores: BenchmarkScore) -> dict[str, Any]:
    average = {name: round(100 * value, 2) for name, value in scores.average.as_dict().items()}
    found: dict[str, Any] = {"average": average, "statuses": scores.statuses}
    if scores.samples > 1:
        found["majority"] = round(100 * scores.interval(f"majority@{scores.samples}").value, 2)
    return found


def _differences(rows: list[Answered], grades: list[dict[str, Any]]) -> dict[str, Any]:
    """Samples that the dump's authors graded otherwise."""
    stricter, looser = [], []
    for grade in grades:
        row = rows[int(grade["problem"])]
        theirs, ours = row.recorded[grade["sample"]], grade["status"] == "correct"
        if theirs != ours:
            extracted = row.extracted[grade["sample"]] if row.extracted else None
            shown = {"problem": grade["problem"], "gold": row.gold, "status": grade["status"]}
            shown |= {"ours": _short(grade["answer"]), "theirs": _short(extracted)}
            (stricter if theirs else looser).append(shown)
    return {
        "only_theirs_correct": len(stricter),
        "only_ours_correct": len(looser),
        "such_as": stricter[:SHOWN] + looser[:SHOWN],
    }


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else text[:LONGEST] + "..."


def _mean(rows: list[Answered]) -> float:
    grades = [grade for row in rows for grade in row.recorded]
    return round(100 * sum(grades) / len(grades), 2)


def _majority(rows: list[Answered]) -> float:
    """The vote as their script counts it: by the text of the extracted answers, the first of equals."""
    right = 0
    for row in rows:
        assert row.extracted is not None
        winner = Counter(row.extracted).most_common(1)[0][0]
        right += row.recorded[row.extracted.index(winner)]
    return 100 * right / len(rows)


if __name__ == "__main__":
    main()
