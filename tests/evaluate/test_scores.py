"""Scores of a benchmark: worked out by hand, independent of order, complete or refused, and what they add up to."""

import dataclasses
import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import RunError, UsageError
from trimsft.evaluate.compare import compare_runs
from trimsft.evaluate.metrics import cluster, majority, majority_at_k, pass_at_k
from trimsft.evaluate.scores import (
    BenchmarkScore,
    best_temperature,
    load_run,
    macro,
    over_runs,
    read_scores,
    temperatures_of,
    write_scores,
)

from .graded import random_counts, same, samples_of, score, score_of

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
    assert found.average is None and found.greedy.value == 0.5 == macro([found], "greedy", resamples=50).value
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
    with pytest.raises(ValueError, match="benchmarks: must be the same for both runs"):
        over_runs([[one], [one, score_of("c", [1])]])
    with pytest.raises(ValueError, match=r"must be one or more, each once, got \['b', 'b'\]"):
        macro([one, other])


# ---- scores.json


def test_scores_come_back_by_name_and_from_one_grader_only(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}: holds no scores; make or finish")):
        load_run(tmp_path)
    scores = {name: score_of(name, [1, 8], resamples=10) for name in ("b", "a")}
    for name, one in scores.items():
        write_scores(tmp_path / "eval" / name, one)
    assert load_run(tmp_path) == [scores["a"], scores["b"]]
    with pytest.raises(RunError, match="gsm8k: holds no scores; finish it with trimsft eval"):
        load_run(tmp_path, ["gsm8k"])
    write_scores(tmp_path / "eval/b", dataclasses.replace(scores["b"], grader="qwen 3"))
    with pytest.raises(RunError, match="was graded by qwen 3 and strict 3; grade it again with one of them"):
        load_run(tmp_path)


def test_damaged_scores_are_refused(tmp_path: Path) -> None:
    write_scores(tmp_path / "eval/a", score_of("a", [1, 8], resamples=10))
    path = tmp_path / "eval/a/scores.json"
    whole = json.loads(path.read_text())
    for message, damage in {"invalid JSON": "{", "scores of 'b'": json.dumps(whole | {"benchmark": "b"})}.items():
        path.write_text(damage)
        with pytest.raises(RunError, match=message):
            load_run(tmp_path)


# ---- clusters of answers, pass@k and majority@k: by hand, and by brute force over every subset

answers_drawn = st.lists(st.none() | st.sampled_from(["1/2", "0.5", "50%", "2", "2.0", "x", ""]), max_size=12)


def crooked(a: str, b: str) -> bool:
    """Neither symmetric nor transitive, as real graders are."""
    return (a, b) in {("1/2", "0.5"), ("0.5", "1/2"), ("0.5", "50%"), ("50%", "0.5"), ("2", "x")}


@pytest.mark.parametrize(
    ("answers", "clusters"),
    [
        ([], []),
        ([None, None], [None, None]),
        (["x", "2"], [1, 0]),  # one direction is not enough
        # "50%" agrees with "0.5" alone: with "0.5" in front all three agree, with "1/2" in front "50%" stays apart
        (["0.5", "0.5", "1/2", "50%"], [0, 0, 0, 0]),
        (["0.5", "1/2", "1/2", "50%"], [0, 0, 0, 1]),
    ],
)
def test_the_most_frequent_text_opens_the_cluster(answers, clusters):
    assert cluster(answers, crooked) == clusters


@given(data=st.data(), answers=answers_drawn)
def test_permuting_the_samples_permutes_the_clusters(data, answers):
    order = data.draw(st.permutations(range(len(answers))))
    clusters = cluster(answers, crooked)
    assert cluster([answers[place] for place in order], crooked) == [clusters[place] for place in order]


@st.composite
def votes(draw, most=9):
    clusters = draw(st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=most))
    return clusters, draw(st.fixed_dictionaries({number: st.booleans() for number in range(5)}))


def by_every_subset(clusters, k, correct) -> float:
    scores = []
    for subset in itertools.combinations(clusters, k):
        counts = Counter(vote for vote in subset if vote is not None)
        tied = [vote for vote, count in counts.items() if count == max(counts.values())]
        scores.append(sum(correct[vote] for vote in tied) / len(tied) if tied else 0.0)
    return math.fsum(scores) / len(scores)


@pytest.mark.parametrize(
    ("n", "correct", "k", "expected"),
    [
        *((8, 1, 4, 0.5), (8, 0, 8, 0.0), (8, 8, 1, 1.0), (4, 2, 2, 5 / 6), (5, 1, 5, 1.0), (10, 3, 1, 0.3)),
        *((10**5, 1, 3, 3 / 10**5), (20_000, 10_000, 10_000, 1.0)),  # digits are kept for many samples
    ],
)
def test_pass_at_k_by_hand(n, correct, k, expected):
    assert pass_at_k(n, correct, k) == expected


@given(votes(), st.data())
def test_majority_is_the_average_over_every_subset(ballot, data):
    clusters, correct = ballot
    k = data.draw(st.integers(1, len(clusters)))
    expected = by_every_subset(clusters, k, correct)
    assert majority_at_k(clusters, k, correct=correct) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    sizes = Counter(vote for vote in clusters if vote is not None)
    right, wrong = ([size for vote, size in sizes.items() if correct[vote] is which] for which in (True, False))
    assert majority(right, wrong) == pytest.approx(by_every_subset(clusters, len(clusters), correct))


# ---- over the temperature


def at(temperature: float, problem: str, answers: str) -> list[Any]:
    drawn = samples_of(problem, answers)
    return [dataclasses.replace(sample, temperature=temperature) for sample in drawn]


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
