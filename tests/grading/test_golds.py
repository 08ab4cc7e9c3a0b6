"""The golds of the seven benchmarks, where the data folder lies beside the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trimsft.grading import Grader, Rules

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
COUNTS = {"math500": 500, "olympiadbench": 675, "minerva": 272, "amc": 83, "amc23": 40, "aime24": 30, "gsm8k": 1319}
EQUAL_NEIGHBOURS = {("5", "x=5")}
"""Neighbours that are spelled differently and are the same value."""

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/data/benchmarks")


def _rows(benchmark: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{benchmark}.jsonl").read_text("utf-8").splitlines()]


def _box(answer: str) -> str:
    return rf"Therefore $\boxed{{{answer}}}$."


@pytest.mark.parametrize("benchmark", COUNTS)
def test_each_gold_is_itself_and_not_the_next(benchmark: str, grader: Grader) -> None:
    rows = _rows(benchmark)
    assert len(rows) == COUNTS[benchmark]
    rules = [Rules.of_row(row, benchmark) for row in rows]
    golds = [row["answer"] for row in rows]
    following = golds[1:] + golds[:1]
    itself = grader.grade_many([(_box(g), g, rule, False) for g, rule in zip(golds, rules, strict=True)])
    assert [gold for gold, found in zip(golds, itself, strict=True) if not found.correct] == []
    other = grader.grade_many([(_box(n), g, r, False) for g, n, r in zip(golds, following, rules, strict=True)])
    equal = {(g, n) for g, n, found in zip(golds, following, other, strict=True) if found.correct and g != n}
    assert equal <= EQUAL_NEIGHBOURS


@pytest.mark.parametrize("benchmark", COUNTS)
def test_each_gold_is_itself_when_respelled(benchmark: str, grader: Grader) -> None:
    """Every gold goes through the comparison itself, not only through equality of text."""
    golds = [row["answer"] for row in _rows(benchmark)]
    respelled = [
        "{}" + gold.replace(r"\frac", r"\dfrac").replace("(", r"\bigl(").replace(")", r"\bigr)").replace("+", r"\, + ")
        for gold in golds
    ]
    grades = grader.grade_many([(_box(new), old, Rules(), False) for old, new in zip(golds, respelled, strict=True)])
    assert [gold for gold, found in zip(golds, grades, strict=True) if not found.correct] == []
