"""Clusters of answers, pass@k and majority@k: hand-worked values, brute force over every subset, and laws."""

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.evaluate.metrics import cluster, majority, majority_at_k, pass_at_k

answers_drawn = st.lists(st.none() | st.sampled_from(["1/2", "0.5", "50%", "2", "2.0", "x", ""]), max_size=12)


def same_value(a: str, b: str) -> bool:
    values = {"1/2": 0.5, "0.5": 0.5, "50%": 0.5, "2": 2.0, "2.0": 2.0}
    return a in values and values[a] == values.get(b)


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


@pytest.mark.parametrize("equivalent", [same_value, crooked])
@given(data=st.data(), answers=answers_drawn)
def test_permuting_the_samples_permutes_the_clusters(equivalent, data, answers):
    order = data.draw(st.permutations(range(len(answers))))
    clusters = cluster(answers, equivalent)
    assert cluster([answers[place] for place in order], equivalent) == [clusters[place] for place in order]


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
