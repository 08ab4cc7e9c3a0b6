"""What a training logged: which lines count, where a token begins to count, and AutoTrim at a moment."""

import json
import math

import pytest
import torch

from tests.report.page.pages import make_telemetry
from trimsft.errors import RunError
from trimsft.objectives import AutoTrim, TokenStats
from trimsft.report.course import MOST_MOMENTS, Logged, Moment, moments_of, read_course
from trimsft.report.runs import Run


def tokens_of(nll: list[float]) -> TokenStats:
    values = torch.tensor(nll, dtype=torch.float64)
    gold = torch.zeros(len(nll), dtype=torch.int64)
    return TokenStats(nll=values, gap=-torch.expm1(values).log(), gold_logit=values, competitor=gold)


def test_a_moment_weighs_as_auto_trim_does() -> None:
    """Halfway between closed_below and open_above the gate is one half; at half of the training the exponent is 2."""
    objective = AutoTrim(closed_below=0.2, open_above=1.0)
    state = {"progress": 0.5, "fixed": [], "smoothed": [0.6], "lowest": [0.6]}
    tokens = tokens_of([0.01, 0.7, 5.0])
    figures = objective.load_state_dict(state).figures()
    moment = Moment(1, figures["gate"], figures["exponent"])
    assert (moment.gate, moment.exponent) == pytest.approx((0.5, 2.0))
    # the same formula in another order: a few roundings of float64
    expected = objective.load_state_dict(state).weights(tokens).tolist()
    assert moment.weights(tokens).tolist() == pytest.approx(expected, rel=1e-12)


def test_a_token_counts_from_the_gap_at_which_its_weight_is_one_half() -> None:
    assert Moment(1, 0.5, 1.0).counts_from is None  # every weight is above one half
    assert Moment(1, 0.0, 1.0).counts_from == pytest.approx(0.0, abs=1e-12)  # p = 1/2
    for moment in (Moment(1, 0.0, 3.0), Moment(1, 0.3, 1.7)):
        nll = math.log1p(math.exp(-moment.counts_from))
        assert moment.weights(tokens_of([nll])).item() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("objective", "gap"), [("trim", 1.5 - 0.8 * 1.1774), ("trim-e", 1.5 - 0.8 * 1.1774), ("dft", 0.0), ("sft", None)]
)
def test_fixed_objectives_have_one_such_gap_or_none(tmp_path, objective, gap) -> None:
    course = read_course(Run("a", make_telemetry(tmp_path / "run", objective, skipped=[0.1, 0.2])))
    assert [line.step for line in course] == [1, 2]  # neither the evaluation nor the end
    expected = None if gap is None else pytest.approx(gap, abs=1e-4)
    assert [line.counts_from for line in course] == [expected, expected]
    assert moments_of(course) == []


def test_a_long_training_has_no_more_moments_than_a_page_carries() -> None:
    moments = moments_of([Logged(step=n, gate=0.0, exponent=1.0) for n in range(1, 1002)])
    assert len(moments) <= MOST_MOMENTS and moments[-1].step == 1001
    assert [moment.step for moment in moments] == sorted({moment.step for moment in moments})


def test_telemetry_that_is_damaged_is_named_and_what_cannot_be_is_no_moment(tmp_path) -> None:
    run = make_telemetry(tmp_path / "run", "auto-trim", gate=[7.0, 0.5], exponent=[1.0, math.nan])
    assert moments_of(read_course(Run("a", run))) == []
    path = run / "train" / "telemetry.jsonl"
    path.write_text(json.dumps({"step": "x", "nll": 1.0}) + "\n")
    with pytest.raises(RunError, match=r"telemetry.jsonl: .*step"):
        read_course(Run("a", run))
    path.unlink()
    assert read_course(Run("a", run)) == []
