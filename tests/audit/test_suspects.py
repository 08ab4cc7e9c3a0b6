"""Scores and spans, by numbers worked out by hand."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest

from tests.tokens.tiny import make_tokenizer
from trimsft.audit.crossfit import Gaps, deal
from trimsft.audit.suspects import find_suspects, novelty, token_scores, token_spans, whole_word
from trimsft.data.templates import Rendering


def gaps_of(*rows: list[float], after=None, entropies=None, category=None, competitor: int = 0) -> Gaps:
    before = np.array(list(chain(*rows)), dtype=np.float32)
    nothing = np.zeros(len(before), dtype=np.float32)
    entropy = [nothing, nothing] if entropies is None else [np.array(one, dtype=np.float32) for one in entropies]
    return Gaps(
        example=np.repeat(np.arange(len(rows), dtype=np.int32), [len(row) for row in rows]),
        position=np.concatenate([np.arange(len(row), dtype=np.int32) for row in rows]),
        before=before,
        after=None if after is None else np.array(list(chain(*after)), dtype=np.float32),
        entropy_before=entropy[0],
        entropy_after=None if after is None else entropy[1],
        competitor=np.full(len(before), competitor, dtype=np.int32),
        category=np.zeros(len(before), dtype=np.int8) if category is None else np.array(category, dtype=np.int8),
    )


def suspects_of(solutions: Sequence[str], gaps: Gaps, threshold: float, only: str | None = None) -> Any:
    """The scores and suspects of the rows 10, 11, ... of a file."""
    rows = [{"problem": "?", "solution": solution} for solution in solutions]
    numbers = [10 + row for row in range(len(rows))]
    places = [f"x.jsonl, line {number}" for number in numbers]
    return find_suspects(
        rows, gaps, threshold, make_tokenizer(), Rendering(), only=only, numbers=numbers, places=places
    )


@pytest.mark.parametrize(
    ("text", "span", "whole"),
    [
        ("7 + 5 = 137.", (9, 10), (8, 11)),
        ("so we get", (2, 5), (3, 5)),
        ("a.\n b", (1, 4), (1, 2)),
        ("a  b", (1, 3), (1, 3)),  # nothing but spaces: they are what is odd
        ("12", (2, 2), (2, 2)),  # eos
        ("数え上げ", (1, 2), (1, 2)),
    ],
)
def test_whole_words(text, span, whole) -> None:
    assert whole_word(text, *span) == whole


def test_rows_are_dealt_once_and_alike() -> None:
    parts = deal(11, 3, seed=4)
    assert sorted(chain(*parts)) == list(range(11)) and {len(part) for part in parts} == {3, 4}
    assert parts == deal(11, 3, seed=4) != deal(11, 3, seed=5)
    assert all(part == sorted(part) for part in parts)


def test_the_score_weighs_both_models_by_novelty() -> None:
    # nothing is new: both count alike; -8 at entropy 1 is 4, -6 at entropy 0.5 is 4
    known = gaps_of(
        [-8.0] + [9.0] * 39, after=[[-6.0] + [9.0] * 39], entropies=[[1.0] + [0.0] * 39, [0.5] + [0.0] * 39]
    )
    assert novelty(known.before) == 0 and token_scores(known)[:2].tolist() == [4.0, -9.0]
    other = gaps_of([-8.0] + [9.0] * 39, after=[[-2.0] + [9.0] * 39])
    assert token_scores(other)[0] == 5.0
    # everything is: only what the training leaves low counts
    new = gaps_of([-8.0, -9.0], [-10.0], after=[[-6.0, 3.0], [-1.0]], entropies=[[0.0] * 3, [0.5, 0.0, 1.0]])
    assert novelty(new.before) == 1 and token_scores(new).tolist() == [4.0, -3.0, 0.5]
    assert token_scores(gaps_of([-8.0, 2.0], entropies=[[1.0, 0.0], []])).tolist() == [4.0, -2.0]


def test_other_categories_are_not_judged() -> None:
    tokenizer, text = make_tokenizer(), "is 12"
    size = len(token_spans(text, tokenizer)) + 1
    gaps = gaps_of([-9.0] * size, [-5.0] * size, category=[3] * (size - 1) + [0] + [3] * size)
    scores, suspects = suspects_of([text, text], gaps, 1.0, only="numeric")
    assert [(one.row, one.start) for one in suspects] == [(10, 5)] and scores == {10: 9.0}


def test_suspects_are_ranked_and_shown_in_place() -> None:
    tokenizer = make_tokenizer()
    solutions = ("is 12, is 9", "is 7")
    sizes = [len(token_spans(text, tokenizer)) for text in solutions]
    rows = [[8.0] * (size + 1) for size in sizes]
    at = [next(i for i, (a, b) in enumerate(token_spans(solutions[0], tokenizer)) if solutions[0][a:b].strip() == "2")]
    rows[0][at[0]] = -12.0
    rows[1][-1] = -9.0  # eos
    competitor = tokenizer("3", add_special_tokens=False)["input_ids"][0]
    scores, (first, second) = suspects_of(solutions, gaps_of(*rows, competitor=competitor), 5.0)
    assert (first.row, first.start, first.end, first.text, first.expected) == (10, 3, 5, "12", "13")
    assert (first.left, first.right, first.place) == ("is ", ", is 9", "x.jsonl, line 10")
    assert (first.gap_before, first.gap_after, first.score) == (-12.0, None, 12.0)
    assert (second.row, second.start, second.end, second.text) == (11, 4, 4, "")
    assert scores == {10: 12.0, 11: 9.0}
    assert suspects_of(solutions, gaps_of(*rows), 20.0)[1] == []


def test_a_number_of_several_tokens_is_one_suspect() -> None:
    tokenizer = make_tokenizer()
    size = len(token_spans("x 481 y", tokenizer))
    spans = token_spans("x 481 y", tokenizer)
    row = [8.0] * (size + 1)
    for token, (start, end) in enumerate(spans):
        if set("x 481 y"[start:end]) & set("481"):
            row[token] = -7.0 - token
    competitor = tokenizer("6", add_special_tokens=False)["input_ids"][0]
    _, (one,) = suspects_of(["x 481 y"], gaps_of(row, competitor=competitor), 3.0)
    assert (one.text, one.expected) == ("481", "6")
