"""Accuracy over temperature: what is sampled and recorded, how it may grow, and where a reference is at its best."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import UsageError
from trimsft.evaluate import Evaluated
from trimsft.evaluate.compare import compare_runs
from trimsft.evaluate.engines import Request
from trimsft.evaluate.scores import BenchmarkScore, best_temperature, load_run, temperatures_of
from trimsft.report import CompareSettings, compare

from .graded import same, samples_of, score
from .test_run import benchmark, run_eval
from .test_run import samples_of as samples_of_run

__all__ = ["benchmark", "run_eval"]


def at(temperature: float, problem: str, answers: str) -> list[Any]:
    drawn = samples_of(problem, answers)
    return [replace(sample, temperature=temperature) for sample in drawn]


def curve(name: str, hot: str, cool: str, greedy: str) -> BenchmarkScore:
    """Two problems: of the first so many answers at temperatures 1 and 0.6 and one greedily; the second all right."""
    samples = [*samples_of("a", hot, greedy=greedy), *at(0.6, "a", cool)]
    right = [*samples_of("b", "1 1 1 1", greedy="1"), *at(0.6, "b", "1 1")]
    return score(name, [*samples, *right], same, resamples=100)


def test_scores_by_temperature() -> None:
    found = curve("toy", "1 2 2 2", "1 2", "2")
    assert (found.average.value, found.at_temperature[0.6].value, found.greedy.value) == (5 / 8, 0.75, 0.5)
    assert found.interval("all_right").value == 0.5
    assert found.interval("T=1") == found.average and found.interval("T=0") == found.greedy
    assert found.interval("T=0.6") == found.at_temperature[0.6] and "T=0.6" in found.metrics
    assert found.temperature_samples == 2 and [p.correct_at for p in found.per_problem] == [{0.6: 1}, {0.6: 2}]
    assert found.statuses == {"correct": 5, "wrong": 3}  # of the samples at 1 alone
    with pytest.raises(UsageError, match=r"no 'T=0.3' with 4 samples .*greedy, T=0.6, no_answer"):
        found.interval("T=0.3")


def test_the_best_temperature_is_that_of_the_mean_over_benchmarks() -> None:
    cool, hot = curve("x", "1 2 2 2", "1 1", "2"), curve("y", "1 1 1 1", "1 2", "1")
    assert temperatures_of([cool, hot]) == [0.0, 0.6, 1.0]
    assert best_temperature([cool]) == 0.6 and best_temperature([hot]) == 0.0  # of equals the lowest
    assert best_temperature([cool, curve("y", "1 1 1 1", "2 2", "2")]) == 1.0
    (difference,) = compare_runs([cool], {"hot": [curve("x", "1 1 1 1", "1 2", "1")]}, ["T=0.6"])
    assert (difference.before, difference.after, difference.problems) == (1.0, 0.75, 2)


# ---- an evaluation


def cools(request: Request) -> str:
    """Right more often the lower the temperature is, and wrong when greedy."""
    known = request.sampling.temperature < 0.5 or request.seed % 3 == 0
    right = known and not request.sampling.is_greedy
    return f"\\boxed{{{2 * int(request.prompt.split('What is ')[1].split('+')[0]) + (not right)}}}"


@pytest.fixture
def run_at(run_eval: Callable[..., Evaluated], tmp_path: Path) -> Callable[..., Evaluated]:
    return lambda name, **options: run_eval(cools, **{"samples": 3, "out": tmp_path / name} | options)


def test_a_record_grows_by_temperatures(run_at: Callable[..., Evaluated], tmp_path: Path) -> None:
    run_at("grown")
    before = samples_of_run(tmp_path / "grown")
    run_at("grown", temperatures=(0.6,), temperature_samples=2)
    (grown,) = run_at("grown", temperatures=(0.6, 0.3)).scores
    samples = samples_of_run(tmp_path / "grown")
    assert samples[: len(before)] == before and len(samples) == 6 * (3 + 1 + 2 * 4)
    (whole,) = run_at("whole", temperatures=[0.3, 0.6]).scores  # the same from nothing, in whatever order
    assert whole == grown == load_run(tmp_path / "grown")[0]
    assert sorted(samples_of_run(tmp_path / "whole"), key=str) == sorted(samples, key=str)
    assert len({(line["seed"]) for line in samples}) == len(samples)
    assert grown.at_temperature[0.3].value == 1.0 and grown.greedy.value == 0.0
    assert best_temperature([grown]) == 0.3
    graded = [json.loads(line) for line in (tmp_path / "grown/eval/sums/grades.jsonl").read_text().splitlines()]
    assert len(graded) == len(samples) and {line["cluster"] for line in graded if line["temperature"]} == {None}


# ---- a comparison


def test_runs_are_compared_where_the_reference_is_best(run_at: Callable[..., Evaluated], tmp_path: Path) -> None:
    run_at("sft", temperatures=(0.6, 0.3))
    run_at("trim", temperatures=(0.3,), seed=1)
    run_at("old")
    paths = {name: tmp_path / name for name in ("sft", "trim", "old")}
    compared = compare(CompareSettings(runs=(paths["sft"], paths["trim"])))
    assert [one.metric for one in compared.comparisons] == ["average", "greedy", "T=0.3"]
    assert compared.comparisons[-1].before == compared.comparisons[-1].after == 1.0
    text = compared.render("markdown")
    assert "sft is right most often at T=0.3." in text and "Correct over the temperature" in text
    assert "T=0.6" in text
    lacking = compare(CompareSettings(runs=(paths["sft"], paths["old"])))
    assert [one.metric for one in lacking.comparisons] == ["average", "greedy"]
    assert "sft is right most often at T=0.3, where old has no answers." in lacking.render("markdown")
