"""What the gaps of a table say about training on its rows."""

import numpy as np
import pytest

from tests.tokens.by_hand import hand_table
from trimsft.tokens.statistics import ENOUGH, judge_table


def test_tokens_within_the_papers_band_need_no_other() -> None:
    verdict = judge_table(hand_table([1.5] * 8 + [30.0] * 2))  # eight weights of 1, two of 0: R_eff 0.8
    assert verdict.band is not None and verdict.paper_ratio == pytest.approx(0.8)
    assert verdict.band.words == "--objective trim --margin 1.5 --bandwidth 0.8"
    assert verdict.sentence == (
        "The model supports this data: 0% of the tokens are out of reach (gap below -0.9). "
        "The paper's band (margin 1.5, bandwidth 0.8) has R_eff 0.80, which is enough."
    )


def test_tokens_further_right_get_the_same_band_wider() -> None:
    """One token in ten is within the paper's band, and the others three of its margins to the right."""
    verdict = judge_table(hand_table([1.5] + [4.5] * 9))
    assert verdict.paper_ratio == pytest.approx(0.1, abs=0.01) and verdict.paper_ratio < ENOUGH
    assert verdict.band is not None and verdict.band.effective_ratio >= ENOUGH
    assert verdict.band.bandwidth / verdict.band.margin == pytest.approx(0.8 / 1.5)
    assert "too few tokens; the same band" in verdict.sentence and verdict.as_dict()["supported"]


def test_tokens_out_of_reach_get_no_band() -> None:
    verdict = judge_table(hand_table([-5.0] * 6 + [1.5] * 4))
    assert verdict.band is None and not verdict.is_supported
    assert verdict.sentence.startswith("The model does not support this data: 60% of the tokens are out of reach")
    far_right = judge_table(hand_table(np.concatenate([[1.5], np.full(99, 60.0)]).tolist()))
    assert far_right.band is None and "even one 6 times as wide holds too few tokens" in far_right.sentence
