"""Scores and spans, by numbers worked out by hand."""

from pathlib import Path

import numpy as np
import pytest

from tests.tokens.tiny import make_table, make_tokenizer
from trimsft.audit.run import AuditFolder, AuditSettings
from trimsft.audit.suspects import find_suspects, token_scores, whole_word
from trimsft.tokens.table import TokenTable, read_token_table


def gaps_of(gaps: list[float], entropies: list[float] | None = None) -> TokenTable:
    gap = np.array(gaps, dtype=np.float32)
    return TokenTable({"gap": gap, "entropy": np.array(entropies or [0.0] * len(gaps), dtype=np.float32)}, {}, {})


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


def test_the_score_weighs_both_models_by_novelty() -> None:
    # nothing is new: both count alike; -8 at entropy 1 is 4, -6 at entropy 0.5 is 4
    rest, known = [0.0] * 39, [9.0] * 39
    before, after = gaps_of([-8.0, *known], [1.0, *rest]), gaps_of([-6.0, *known], [0.5, *rest])
    assert token_scores(before, after)[:2].tolist() == [4.0, -9.0]
    assert token_scores(gaps_of([-8.0, *known]), gaps_of([-2.0, *known]))[0] == 5.0
    # everything is: only what the training leaves low counts
    new = gaps_of([-8.0, -9.0, -10.0]), gaps_of([-6.0, 3.0, -1.0], [0.5, 0.0, 1.0])
    assert token_scores(*new).tolist() == [4.0, -3.0, 0.5]
    alone = gaps_of([-8.0, 2.0], [1.0, 0.0])
    assert token_scores(alone, alone).tolist() == [4.0, -2.0]


def suspects_of(tmp_path: Path, texts: list[list[str]], gaps: list[float], expected: str = "3", **options):
    """The suspects of rows whose tokens have these texts and gaps; the model expects one text throughout."""
    folder = AuditFolder(tmp_path)
    table = read_token_table(make_table(folder.tokens_path, texts, gap=gaps))
    columns = {**table.columns, "entropy": np.zeros(len(table), dtype=np.float32)}
    competitor = make_tokenizer()(expected, add_special_tokens=False)["input_ids"][0]
    columns["competitor_id"] = np.full(len(table), competitor, dtype=np.int32)
    table = TokenTable(columns, {}, {})
    rows = [{"problem": "?", "solution": "".join(row).strip()} for row in texts]
    settings = AuditSettings(data="x", model="y", training=False, **options)
    return find_suspects(folder, (table, table), rows, make_tokenizer(), settings)


def test_other_categories_are_not_judged(tmp_path) -> None:
    texts = [["is", " 12"], ["is", " so"]]
    (one,) = suspects_of(tmp_path, texts, [-9.0] * 4, threshold=1.0, only="numeric")
    assert (one.row, one.start, one.text) == (0, 3, "12")


def test_suspects_are_ranked_and_shown_in_place(tmp_path) -> None:
    """A tokenizer may begin a text with a space that the solution has not."""
    texts = [[" is", " 1", "2", ",", " is", " <0xE2><0x82>", "<0xAC>", "9"], ["is", " 7"]]
    gaps = [8.0, 8.0, -12.0, 8.0, 8.0, 8.0, 8.0, -7.0, 8.0, -9.0]
    first, second, third = suspects_of(tmp_path, texts, gaps, threshold=5.0)
    assert (first.row, first.start, first.end, first.text, first.expected) == (0, 3, 5, "12", "13")
    assert (first.left, first.right) == (" is ", ", is €9")
    assert (first.gap_before, first.gap_after, first.score) == (-12.0, None, 12.0)
    assert (second.row, second.start, second.end, second.text) == (1, 3, 4, "7")
    assert (third.row, third.text, third.score) == (0, "9", 7.0)
    assert suspects_of(tmp_path, texts, gaps, threshold=20.0) == []
