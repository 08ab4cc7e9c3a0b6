"""AutoTrim: its weights by hand, what its gate follows, and the same through every backend."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimsft import AutoTrim, TokenStats
from trimsft.errors import UsageError
from trimsft.objectives import Adapts

from .head.oracle import BACKENDS, assert_close, device_of, exact, formula, fused, make_head

BOX = 7


def tokens_of(gaps, gold=None) -> TokenStats:
    """Tokens with one competitor each: nll = log(1 + exp(-gap))."""
    gap = torch.tensor(gaps, dtype=torch.float32)
    ids = torch.zeros(len(gaps), dtype=torch.int64) if gold is None else torch.tensor(gold)
    return TokenStats(torch.nn.functional.softplus(-gap), gap, gap, torch.ones_like(ids), gold=ids)


def after(updates, objective=None, progress=0.0) -> AutoTrim:
    """The objective after updates of these tokens."""
    objective = AutoTrim() if objective is None else objective
    for tokens in updates:
        objective = objective.observe(tokens).advance(progress)
    return objective


def gate_of(objective) -> float:
    return objective.figures()["gate"]


def test_it_is_sft_before_it_has_seen_an_update() -> None:
    objective, tokens = AutoTrim(), tokens_of([9.0, -9.0])
    assert isinstance(objective, Adapts)
    assert objective.weights(tokens).tolist() == [1, 1]
    assert objective.observe(tokens).weights(tokens).tolist() == [1, 1]  # within an update nothing changes
    assert gate_of(objective) == 1


@pytest.mark.parametrize(
    ("missing", "progress", "gate", "exponent"),
    # D, and the share of the training: x = (D - 0.3) / 1.2 within 0 and 1; a = 1 + 2 (share - 0.3) / 0.4 once x is 0
    [(0.25, 0.0, 0.0, 1.0), (0.9, 0.3, 0.5, 1.0), (1.5, 0.5, 1.0, 1.0), (0.2, 0.5, 0.0, 2.0), (0.0, 0.8, 0.0, 3.0)],
)
def test_weights_by_hand(missing, progress, gate, exponent) -> None:
    # one of two tokens misses twice the mean
    objective = after([tokens_of([-2 * missing, 5.0])], progress=progress)
    prob = [0.5, 0.25]
    tokens = TokenStats(*[-torch.tensor(prob).log()] * 3, torch.zeros(2, dtype=torch.int64))
    expected = [gate + (1 - gate) * p**exponent for p in prob]
    # D from float32 gaps, and the exponential of float32 numbers near 1
    torch.testing.assert_close(objective.weights(tokens), torch.tensor(expected), rtol=1e-6, atol=0)
    figures = objective.figures()
    assert figures["gate"] == pytest.approx(gate, abs=1e-6) and figures["exponent"] == pytest.approx(exponent)


def test_the_exponent_waits_until_the_gate_has_closed() -> None:
    """What is half learned when the gate closes is not taken for noise at once."""
    far, near = tokens_of([-3.0]), tokens_of([1.0])
    objective = after([far], AutoTrim(smoothing=0.0), progress=0.5)
    assert objective.figures()["exponent"] == 1
    # it closes between 0.5 and 0.6, and rises from there over 0.4 of the training
    exponents = []
    for progress in (0.6, 0.7, 0.9, 1.0):
        objective = after([near], objective, progress)
        exponents.append(objective.figures()["exponent"])
    assert exponents == pytest.approx([1.5, 2, 3, 3])


def test_a_state_of_before_the_exponent_waited_goes_on_as_it_was() -> None:
    state = {"progress": 0.5, "fixed": [], "smoothed": [0.9], "lowest": [0.9]}
    objective = AutoTrim().load_state_dict(state)
    assert objective.figures()["exponent"] == pytest.approx(2) and gate_of(objective) == pytest.approx(0.5)


def test_a_state_of_before_the_gate_could_open_again_learns_what_is_wrong_from_then_on() -> None:
    state = {"progress": 0.5, "fixed": [BOX], "smoothed": [0.2, None], "lowest": [0.1, None], "open_until": 0.0}
    best, worse = tokens_of([3.0] * 1024), tokens_of([-0.1] * 1024)
    objective = after([best] * 10, AutoTrim().load_state_dict(state), progress=0.5)
    assert gate_of(objective) == 0 and gate_of(after([worse], objective)) == 1


def test_what_was_given_up_on_does_not_open_the_gate_again() -> None:
    """It was wrong before; now it is wrong by more."""
    rows = [tokens_of([gap] * 50 + [3.0] * 950) for gap in (-3.0, -15.0)]
    learned = after([rows[0]] * 20)
    given_up = after([rows[1]] * 20, learned)
    assert gate_of(learned) == gate_of(given_up) == 0
    assert given_up.figures()["missing_support"] > 0.7


@pytest.mark.parametrize(("wrong", "gate"), [(114, 0.0), (125, 0.5), (135, 1.0)])
def test_it_opens_again_where_more_is_wrong_than_at_best(wrong, gate) -> None:
    """At best 10 % of the tokens are wrong: it opens from 12 % on, and is open at 13 %."""
    best, worse = (tokens_of([-0.1] * count + [3.0] * (1000 - count)) for count in (100, wrong))
    objective = after([best] * 60)
    assert gate_of(objective) == 0
    fallen = after([worse] * 60, objective, progress=0.9)
    assert gate_of(fallen) == pytest.approx(gate, abs=1e-3)  # 60 updates are kept to 2e-6
    assert fallen.figures()["exponent"] == pytest.approx(3 if gate == 0 else 1)  # an open gate takes it back
    assert gate_of(after([best] * 60, fallen)) == 0
    # said of what has become so much worse that the gate is open
    assert objective.fallen() is None
    assert fallen.fallen() == (pytest.approx((0.1, wrong / 1000), abs=1e-5) if gate == 1 else None)


def test_one_update_moves_it_by_a_fifth() -> None:
    objective = after([tokens_of([-1.0] * 512), tokens_of([2.0] * 512)])
    assert objective.figures()["missing_support"] == pytest.approx(0.8)


def test_small_updates_count_in_proportion() -> None:
    """Four updates of 128 tokens move it as far as one of 512, and one of 4,096 no farther."""
    objective = after([tokens_of([-1.0] * 512)])
    assert after([tokens_of([2.0] * 128)] * 4, objective).figures()["missing_support"] == pytest.approx(0.8)
    assert after([tokens_of([2.0] * 4096)], objective).figures()["missing_support"] == pytest.approx(0.8)


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=30), st.integers(0, 30), st.booleans())
def test_how_an_update_is_cut_into_micro_batches_does_not_matter(gaps, cut, empty) -> None:
    objective = AutoTrim(fixed=(0, 1))
    gold = [place % 3 for place in range(len(gaps))]
    whole = after([tokens_of(gaps, gold)], objective)
    pieces = [tokens_of(gaps[part], gold[part]) for part in (slice(cut), slice(cut, None)) if gaps[part] or empty]
    for piece in pieces:
        objective = objective.observe(piece)
    state, expected = objective.advance(0.0).state_dict(), whole.state_dict()
    for name in ("smoothed", "lowest", "wrong", "least"):
        for one, other in zip(state[name], expected[name], strict=True):
            assert one == other is None or one == pytest.approx(other, rel=1e-13)  # sums of 30 float64 numbers


def test_what_the_first_tokens_say_by_chance_is_not_taken_for_the_best() -> None:
    """85 tokens an update, 20 % of them wrong throughout; in the first update 7 % are."""
    lucky, usual = (tokens_of([-0.1] * count + [3.0] * (85 - count)) for count in (6, 17))
    assert gate_of(after([lucky] + [usual] * 200)) == 0
    best, worse = (tokens_of([-0.1] * count + [3.0] * (1000 - count)) for count in (100, 300))
    assert gate_of(after([best] + [worse] * 60)) == 0
    assert gate_of(after([best] * 10 + [worse] * 60)) == 1


def test_gaps_that_are_no_numbers_change_nothing() -> None:
    right = tokens_of([-0.1] * 200 + [3.0] * 800)
    objective = after([right] * 20)
    unknown = after([tokens_of([math.nan] * 1000)], objective).state_dict()
    assert {**unknown, "updates": 20.0} == objective.state_dict()
    assert gate_of(after([right], after([tokens_of([math.nan] * 1000)]))) == 0


def test_a_fixed_part_is_learned_where_all_else_is_supported() -> None:
    """SmolLM2 on GSM8K: one backslash of each row at gap -9, and a mean that hardly shows it."""
    row = tokens_of([6.0] * 49 + [-9.0], [0] * 49 + [BOX])
    without, objective = after([row] * 5), after([row] * 5, AutoTrim(fixed=(BOX,)))
    assert gate_of(without) == gate_of(objective) == 0
    assert without.weights(row)[-1] < 1e-3
    assert objective.weights(row)[-1] == 1 and objective.weights(row)[0] == without.weights(row)[0]
    learned = after([tokens_of([6.0, 4.0] * 512, [0, BOX] * 512)] * 30, objective)
    assert learned.weights(row)[-1] < 1e-3


def test_a_fixed_part_that_was_not_seen_yet_goes_with_the_others() -> None:
    objective = after([tokens_of([6.0])], AutoTrim(fixed=(BOX,)))
    assert objective.weights(tokens_of([-9.0], [BOX])) < 1e-3
    late = after([tokens_of([-9.0], [BOX])], objective)
    assert late.weights(tokens_of([-9.0], [BOX])) == 1


def test_an_update_without_tokens_leaves_the_gate_as_it_is() -> None:
    assert gate_of(after([tokens_of([])])) == 1
    objective = after([tokens_of([-0.9])])
    assert gate_of(after([tokens_of([])], objective)) == gate_of(objective)


def test_what_it_has_seen_stays_when_parts_become_fixed() -> None:
    """As a trainer makes them, which knows the data."""
    before = after([tokens_of([-1.8, 5.0])]).observe(tokens_of([-1.0, 5.0]))
    following = before.with_fixed((BOX, 9))
    assert following.fixed == (BOX, 9) and gate_of(following) == gate_of(before) == pytest.approx(0.5)
    tokens = tokens_of([0.0, 0.0], gold=[BOX, 3])
    assert torch.equal(following.weights(tokens), before.weights(tokens))  # a part that was not seen yet
    advanced = following.advance(0.1)
    assert gate_of(advanced) == gate_of(before.advance(0.1))
    starved = after([tokens_of([-9.0, *[5.0] * 99], gold=[BOX, *[3] * 99])] * 20, advanced)
    assert starved.weights(tokens)[0] > starved.weights(tokens)[1]
    assert AutoTrim().with_fixed((BOX,)) == AutoTrim(fixed=(BOX,))


def test_its_state_is_restored_bit_for_bit() -> None:
    row, best = tokens_of([6.0, -0.7, 1 / 3], [0, BOX, 1]), tokens_of([6.0, 2.0, 1 / 3] * 400, [0, BOX, 1] * 400)
    objective = after([best] * 10 + [row] * 90, AutoTrim(fixed=(BOX, 99)), progress=0.45)
    state = objective.state_dict()
    assert state["wrong"][0] > state["least"][0] and gate_of(objective) > 0  # it has opened again
    restored = AutoTrim().load_state_dict(json.loads(json.dumps(objective.state_dict())))
    assert restored.fixed == objective.fixed
    for one, other in ((restored, objective), (after([row], restored, 0.6), after([row], objective, 0.6))):
        assert one.state_dict() == other.state_dict()
        assert torch.equal(one.weights(row), other.weights(row))
    first = AutoTrim().load_state_dict(json.loads(json.dumps(AutoTrim().state_dict())))
    assert gate_of(first) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fixed", [False, True])
def test_every_backend_agrees_with_the_formula_in_float64(backend, fixed) -> None:
    head = make_head(12)
    first, second = head.labels[:2].tolist()
    objective = AutoTrim(fixed=(first, second) if fixed else (), open_above=4.0, closed_below=0.1)
    state = objective.observe(formula(head, objective)[1]).advance(0.5).state_dict()
    objective = objective.load_state_dict(state | {"open_until": 0.0})  # a gate half open, an exponent that has risen
    assert 0.1 < gate_of(objective) < 0.9 and objective.figures()["exponent"] == pytest.approx(2)
    # neither the gate nor the exponent makes more of an error of the nll than the gradient itself does
    assert_close(fused(head.to(device_of(backend)), objective, backend, skip_below=0), exact(head, objective))


@pytest.mark.parametrize(
    "parameters",
    [{"closed_below": -1}, {"open_above": 0.3}, {"smoothing": 1}, {"exponent": 0.5}, {"exponent": math.nan}],
    ids=str,
)
def test_bad_parameters_are_refused(parameters) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(parameters))}: must be a finite number"):
        AutoTrim(**parameters)


def test_fixed_parts_need_ids() -> None:
    gap = torch.zeros(1)
    with pytest.raises(TypeError, match="gold ids"):
        AutoTrim(fixed=(1,)).observe(TokenStats(gap, gap, gap, gap.long()))
