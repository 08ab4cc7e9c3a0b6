"""The record of an evaluation against the number of its samples: resuming, scoring, comparing, the page.

Eight samples a problem, texts of about 250 characters, in the order in which a server might answer: sample by sample,
problem by problem within. Grading is left out, a stand-in compares texts: it costs the same for each answer and has
processes of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.growth.measuring import Measured

SAMPLES = 8
BENCHMARK = "made-up"
STEPS = "So we add the two numbers and carry the one, and then we check the sum again. " * 3


class TextGrader:
    """Takes what follows the last `=` for the answer."""

    name, version, uses_rules = "texts", "1", False

    def __init__(self) -> None:
        self.ignored_rules: set[str] = set()

    def grade_many(self, items: Sequence[tuple[Any, ...]]) -> list[Any]:
        answers = [(text.rpartition("= ")[2], gold) for text, gold, *_ in items]
        return [SimpleNamespace(status="correct" if mine == gold else "wrong", answer=mine) for mine, gold in answers]

    def equivalent(self, a: str, b: str, rules: Any = None) -> bool:
        return a == b


def make(samples: int, folder: Path) -> dict[str, float]:
    """Two runs with their scores, where they are not there."""
    from trimsft.evaluate.problems import Problem, fingerprint, write_problems

    if _runs(folder, samples)[0].exists():
        return {}
    problems = [Problem(f"test/{n:06}.json", f"What is {n} + 1?", str(n % 9)) for n in range(samples // SAMPLES)]
    settings = {"benchmark": BENCHMARK, "samples": SAMPLES, "greedy": False, "seed": 0, "engine": {}}
    settings |= {"problems": {"count": len(problems), "sha256": fingerprint(problems)}}
    for seed, run in enumerate(_runs(folder, samples)):
        place, rng = run / "eval" / BENCHMARK, np.random.default_rng(seed)
        place.mkdir(parents=True)
        (place / "settings.json").write_text(json.dumps(settings))
        (place / "problems.jsonl").write_bytes(write_problems(problems))
        with open(place / "samples.jsonl", "w") as file:
            for number in range(SAMPLES):
                for problem, shift in zip(problems, rng.integers(3, size=len(problems)).tolist(), strict=True):
                    text = f"{STEPS}= {(int(problem.answer) + shift) % 9}"
                    line = {"problem": problem.id, "sample": number, "seed": number, "text": text, "tokens": 60}
                    file.write(json.dumps(line | {"finish": "stop", "prompt_sha": "0f"}) + "\n")
        _judge(run)
    return {}


def _runs(folder: Path, samples: int) -> list[Path]:
    return [folder / f"record-{samples}" / name for name in ("one", "other")]


def resume(samples: int, folder: Path) -> dict[str, float]:
    """What `trimsft eval` asks first: which samples are missing."""
    from trimsft.evaluate.samples import SampleRecord

    def work(run: Path) -> None:
        record = SampleRecord(run / "eval" / BENCHMARK)
        assert record.missing(record.wanted()) == []

    return _measured(work, samples, folder)


def score(samples: int, folder: Path) -> dict[str, float]:
    """Grades of all samples, votes, scores and their files."""
    return _measured(_judge, samples, folder)


def _judge(run: Path) -> None:
    from trimsft.evaluate.judge import judge
    from trimsft.evaluate.samples import SampleRecord

    record: Any = SampleRecord(run / "eval" / BENCHMARK)
    for name in ("graded.json", "grades.jsonl", "scores.json"):
        (record.folder / name).unlink(missing_ok=True)
    judge(record, TextGrader())  # type: ignore[arg-type]


def again(samples: int, folder: Path) -> dict[str, float]:
    """A second start where everything is there."""
    from trimsft.evaluate.judge import scores_as_recorded
    from trimsft.evaluate.samples import SampleRecord

    def work(run: Path) -> None:
        assert scores_as_recorded(SampleRecord(run / "eval" / BENCHMARK), "texts", "1") is not None

    return _measured(work, samples, folder)


def compare(samples: int, folder: Path) -> dict[str, float]:
    """`trimsft compare` of two runs."""
    from trimsft.report import CompareSettings
    from trimsft.report import compare as compare_runs

    def work(run: Path) -> None:
        compare_runs(CompareSettings(runs=(run, run.with_name("other"))))

    return _measured(work, samples, folder)


def page(samples: int, folder: Path) -> dict[str, float]:
    """report.html of two runs."""
    from trimsft.report.page.build import write_report

    def work(run: Path) -> None:
        write_report(run / "report.html", {"one": run, "other": run.with_name("other")}, title="t")

    return _measured(work, samples, folder)


def _measured(work: Callable[[Path], object], samples: int, folder: Path) -> dict[str, float]:
    """After the same with few samples, so that imports do not count."""
    few = 10 * SAMPLES
    make(few, folder)
    work(_runs(folder, few)[0])
    with Measured() as cost:
        work(_runs(folder, samples)[0])
    return cost.as_dict()
