"""Scores of a benchmark: worked out by hand, independent of order, complete or refused, and what they add up to."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from trimsft.errors import RunError
from trimsft.evaluate.scores import BenchmarkScore, load_run, macro, over_runs, read_scores, write_scores

from .graded import STRICT, random_counts, same, samples_of, score, score_of

TWO_PROBLEMS = [*samples_of("a", "1 1 2 -", greedy="1"), *samples_of("b", "2 2 1 /", greedy="2")]


@pytest.fixture(scope="module")
def found() -> BenchmarkScore:
    return score("toy", TWO_PROBLEMS, same, resamples=200)


def test_by_hand(found):
    assert (found.benchmark, found.problems, found.samples) == ("toy", 2, 4)
    assert found.average.value == 3 / 8
    wanted = {"pass@1": (2 / 4 + 1 / 4) / 2, "pass@2": (5 / 6 + 3 / 6) / 2, "pass@3": (1 + 3 / 4) / 2, "pass@4": 1.0}
    wanted |= {"majority@4": 0.5}
    wanted |= {"greedy": 0.5, "no_answer": 2 / 8, "truncated": 1 / 8, "tokens": (6 * 10 + 2 * 100) / 8}
    assert {metric: found.interval(metric).value for metric in wanted} == pytest.approx(wanted)
    assert found.statuses == {"correct": 3, "no_answer": 1, "truncated": 1, "wrong": 3}


def test_the_representative_decides_where_grades_disagree():
    """1 and 1' vote together, and only the plain text is graded correct."""
    found = score("toy", samples_of("a", "1 1 1' 2 2"), same, resamples=50)
    assert found.per_problem[0].right == (3,)
    assert found.metrics["majority@5"].value == 1 and found.average.value == 2 / 5
    found = score("toy", samples_of("a", "1 1' 1' 2 2"), same, resamples=50)
    assert found.per_problem[0].wrong == (2, 3) and found.metrics["majority@5"].value == 0
    samples = samples_of("a", "1 1 2")
    samples[0] = dataclasses.replace(samples[0], status="timeout")  # makes no correct text wrong
    found = score("toy", samples, same, resamples=50)
    assert found.per_problem[0].right == (2,)


def test_greedy_decoding_alone_is_scored(tmp_path):
    samples = [*samples_of("a", "", greedy="1"), *samples_of("b", "", greedy="2")]
    found = score("toy", samples, same, resamples=50)
    assert (found.problems, found.samples, list(found.metrics)) == (2, 0, ["greedy"])
    assert found.greedy is not None and found.greedy.value == 0.5 == found.interval("greedy").value
    assert found.average is None
    assert macro([found], "greedy", resamples=50).value == 0.5
    write_scores(tmp_path / "toy", found)
    assert read_scores(tmp_path / "toy") == found
    with pytest.raises(ValueError, match=r"no 'average' with 0 samples a problem; known: greedy$"):
        found.interval("average")


def test_macro_is_the_mean_over_benchmarks():
    big, small = score_of("big", random_counts(200, seed=0)), score_of("small", random_counts(20, seed=1))
    found = macro([big, small], resamples=500)
    assert found.value == pytest.approx((big.average.value + small.average.value) / 2)
    assert found == macro([small, big], resamples=500)
    widths = [interval.high - interval.low for interval in (big.average, small.average)]
    assert found.high - found.low == pytest.approx(np.hypot(*widths) / 2, rel=0.15)


def test_runs_are_averaged_problem_by_problem():
    runs = [[score_of("b", random_counts(60, seed=0, shift=shift))] for shift in (0.0, 0.5, -0.5)]
    found = over_runs(runs, resamples=500)
    assert found.value == pytest.approx(np.mean([run[0].average.value for run in runs]))
    alike = over_runs([runs[0]] * 3, resamples=500)
    # run means 8 points apart: t(2) = 4.3 times 8 / sqrt(3) on either side, where problems alone leave 9
    assert found.high - found.low > 1.8 * (alike.high - alike.low)


def test_what_cannot_be_averaged_is_refused():
    one, other = score_of("b", [1, 2, 3]), score_of("b", [1, 2])
    with pytest.raises(ValueError, match="different problems of 'b': 1, such as 'p002'"):
        over_runs([[one], [other]])
    with pytest.raises(ValueError, match=r"benchmarks: must be the same for both runs, got \['b'\] and \['b', 'c'\]"):
        over_runs([[one], [one, score_of("c", [1])]])
    with pytest.raises(ValueError, match=r"must be one or more, each once, got \['b', 'b'\]"):
        macro([one, other])


# ---- scores.json


def test_scores_come_back_by_name_and_from_one_grader_only(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}: holds no evaluation; make one with trimsft eval")):
        load_run(tmp_path)
    scores = {name: score_of(name, [1, 8], resamples=10) for name in ("b", "a")}
    for name, one in scores.items():
        write_scores(tmp_path / "eval" / name, one)
    assert load_run(tmp_path) == [scores["a"], scores["b"]]
    with pytest.raises(RunError, match="holds no scores of 'gsm8k'; it has a, b"):
        load_run(tmp_path, ["gsm8k"])
    qwen = dataclasses.replace(STRICT, kind="qwen")
    write_scores(tmp_path / "eval/b", dataclasses.replace(scores["b"], grader=qwen))
    with pytest.raises(RunError, match="was graded by qwen 3 and strict 3; grade it again with one of them"):
        load_run(tmp_path)


def test_damaged_scores_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "eval/a"
    folder.mkdir(parents=True)
    with pytest.raises(RunError, match="holds no scores; finish its evaluation with trimsft eval"):
        load_run(tmp_path)
    write_scores(folder, score_of("a", [1, 8], resamples=10))
    whole = json.loads((folder / "scores.json").read_text())
    damages = {"invalid JSON": "{", "should be an object": [], "these are scores of 'b'": whole | {"benchmark": "b"}}
    for message, damage in damages.items():
        (folder / "scores.json").write_text("{" if damage == "{" else json.dumps(damage))
        with pytest.raises(RunError, match=message):
            load_run(tmp_path)
