"""Answer clusters: which answers vote together, whatever the order, and how often equivalence is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.scoring.metrics import cluster, representatives

answers_drawn = st.lists(st.none() | st.sampled_from(["1/2", "0.5", "50%", "2", "2.0", "x", ""]), max_size=12)


def same_value(a: str, b: str) -> bool:
    values = {"1/2": 0.5, "0.5": 0.5, "50%": 0.5, "2": 2.0, "2.0": 2.0}
    return a in values and values[a] == values.get(b)


def crooked(a: str, b: str) -> bool:
    """Neither symmetric nor transitive, as real graders are."""
    return (a, b) in {("1/2", "0.5"), ("0.5", "1/2"), ("0.5", "50%"), ("50%", "0.5"), ("2", "x")}


def test_equivalent_answers_share_a_cluster_and_the_rest_have_their_own():
    assert cluster(["2", "1/2", "0.5", None, "7", "2.0", "2"], same_value) == [0, 1, 1, None, 2, 0, 0]


def test_nothing_and_only_abstentions():
    assert cluster([], same_value) == []
    assert cluster([None, None], same_value) == [None, None]


def test_one_direction_is_not_enough():
    assert cluster(["2", "x"], crooked) == [0, 1]
    assert cluster(["x", "2"], crooked) == [1, 0]


def test_the_most_frequent_text_opens_the_cluster():
    # "50%" agrees with "0.5" alone: with "0.5" in front all three agree, with "1/2" in front "50%" stays apart
    assert cluster(["0.5", "0.5", "1/2", "50%"], crooked) == [0, 0, 0, 0]
    assert cluster(["0.5", "1/2", "1/2", "50%"], crooked) == [0, 0, 0, 1]


def test_representative_is_the_most_frequent_text_then_the_first():
    answers = ["2.0", "2", "2.0", "1/2", "0.5", None]
    assert representatives(answers, cluster(answers, same_value)) == ["2.0", "0.5"]


def test_representatives_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="one for each of the 2 answers, got 1"):
        representatives(["1", "2"], [0])
    with pytest.raises(ValueError, match="'1' has none"):
        representatives(["1"], [None])


@pytest.mark.parametrize("equivalent", [same_value, crooked])
@given(data=st.data(), answers=answers_drawn)
def test_permuting_the_samples_permutes_the_clusters(equivalent, data, answers):
    order = data.draw(st.permutations(range(len(answers))))
    clusters = cluster(answers, equivalent)
    assert cluster([answers[place] for place in order], equivalent) == [clusters[place] for place in order]


@given(answers=answers_drawn)
def test_an_abstention_changes_nothing_else(answers):
    assert cluster([*answers, None], crooked) == [*cluster(answers, crooked), None]


@given(answers=answers_drawn)
def test_only_distinct_answers_are_compared_and_no_pair_twice(answers):
    asked = []

    def equivalent(a: str, b: str) -> bool:
        asked.append((a, b))
        return crooked(a, b)

    clusters = cluster(answers * 3, equivalent)
    assert len(asked) == len(set(asked)) and all(a != b for a, b in asked)
    distinct, opened = len({*answers} - {None}), len({*clusters} - {None})
    assert len(asked) <= 2 * distinct * opened
