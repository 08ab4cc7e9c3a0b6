"""Rows that carry no gradient are left out of the backward pass: how much that may change, and what it must not."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measuring import synthetic_head
from trimsft import DFT, TrimSFT, TrimSFTEasy, make_objective
from trimsft.head import IGNORED
from trimsft.head.problem import SKIPPED_MASS, rows_to_keep
from trimsft.objectives import PAPER_OBJECTIVES

from . import oracle
from .oracle import BACKENDS, FUSED, Answer, Head, call, device_of, distance, exact, fused, logit_rounding, make_head

HIGH = 1.5e-3
"""A threshold far above the default, at which rows begin to matter to the gradient."""

BOUND = 2e-3
"""What it may cost in the norm of a gradient: the size of bfloat16 rounding."""


def spread_head(tokens: int, hidden_size: int = 64, vocabulary: int = 1500, **gaps: float) -> Head:
    """Gaps spread evenly over (-2, 14), or the range given."""
    return Head(*synthetic_head(tokens, hidden_size, vocabulary, device="cpu", dtype=torch.float32, **gaps))


def assert_within_bound(got: Answer, expected: Answer) -> None:
    for part in ("hidden", "weight") if expected.bias is None else ("hidden", "weight", "bias"):
        assert distance(getattr(got, part), getattr(expected, part)) < BOUND
    assert distance(got.loss, expected.loss) <= expected.rounding  # the loss counts every row


def updates_of(head: Head, rounded: bool = False, **options) -> list[torch.Tensor]:
    """How far weight and bias of the head move in ten updates of Adam."""
    leaves = head.leaves()
    before = [leaves.weight.detach().clone(), leaves.bias.detach().clone()]
    optimizer = torch.optim.AdamW([leaves.weight, leaves.bias], lr=1e-3, weight_decay=0.0)
    for _ in range(10):
        call(leaves, TrimSFT(), "chunked", **options).loss.backward()
        for leaf in (leaves.weight, leaves.bias) if rounded else ():
            leaf.grad.copy_(leaf.grad.bfloat16())
        optimizer.step()
        optimizer.zero_grad()
    return [after.detach() - old for after, old in zip((leaves.weight, leaves.bias), before, strict=True)]


def test_the_default_moves_rows_less_than_rounding() -> None:
    """Adam divides each element by its own size: rows of easy tokens move as far as the others."""
    head = replace(spread_head(800, vocabulary=300, highest_gap=20.0), bias=torch.linspace(-0.1, 0.1, 300))
    assert 0 < fused(head, TrimSFT(), "chunked").kept < 600

    def worst(moved, exactly) -> float:
        return float(((moved - exactly).norm(dim=-1) / exactly.norm(dim=-1)).max())

    exactly, rounded, skipped = updates_of(head, skip_below=0), updates_of(head, True, skip_below=0), updates_of(head)
    assert worst(skipped[0], exactly[0]) <= worst(rounded[0], exactly[0])  # the worst row of the weight
    assert worst(skipped[1], exactly[1]) <= worst(rounded[1], exactly[1])  # the bias
    # at the threshold that keeps the norm of the gradient, some row moves elsewhere altogether
    assert worst(updates_of(head, skip_below=HIGH)[0], exactly[0]) > 0.1


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in PAPER_OBJECTIVES), ("trim", {"softcap": 30.0})])
def test_a_high_threshold_keeps_both_norms(name, options) -> None:
    objective, head = make_objective(name), spread_head(800)
    expected = exact(head, objective, **options)
    for backend in ("reference", "chunked"):
        got = fused(head, objective, backend, skip_below=HIGH, **options)
        assert_within_bound(got, expected)
        assert name != "trim" or 0 < got.kept < 400


@pytest.mark.parametrize("backend", BACKENDS)
def test_skipped_rows_get_nothing(backend) -> None:
    head = spread_head(10, hidden_size=32, vocabulary=300)
    got = fused(head, TrimSFT(), backend, skip_below=0)
    assert got.kept == 10
    oracle.assert_close(got, exact(head, TrimSFT()))
    got = fused(head, TrimSFT(), backend, skip_below=HIGH)
    touched = got.hidden.abs().sum(dim=1) > 0
    assert torch.equal(touched, got.weights.abs() * got.tokens.doubt >= HIGH)
    assert got.kept == int(touched.sum()) < 10
    for skip_below in (0, HIGH):
        got = fused(head, lambda tokens: torch.zeros_like(tokens.nll), backend, skip_below=skip_below)
        assert got.loss == 0 and not got.hidden.any() and not got.weight.any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("chunks", "skip_below"), [(1, HIGH), (1, 0.5), (3, HIGH)])
@pytest.mark.usefixtures("small_chunks")
def test_tiny_weights_still_learn(chunks, skip_below, backend) -> None:
    """What the first chunk teaches about the threshold holds for the others."""
    tokens = 8 if chunks == 1 else 40 if backend == "chunked" else 20
    head = spread_head(tokens, hidden_size=32, vocabulary=300, lowest_gap=-2.0, highest_gap=2.0)
    expected = exact(head, TrimSFT(margin=6.0))
    assert expected.weights.max() < 1e-4
    got = fused(head, TrimSFT(margin=6.0), backend, skip_below=skip_below)
    assert got.kept > 0 and (got.kept < tokens or chunks == 1)
    assert_within_bound(got, expected)


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize(
    ("objective", "order"),
    [(TrimSFT(), "heavy rows last"), (TrimSFT(margin=7.0, bandwidth=0.5), "heavy rows first")],
    ids=str,
)
@pytest.mark.usefixtures("small_chunks")
def test_kept_rows_may_stand_anywhere(objective, order, backend) -> None:
    """Room for kept rows is guessed from the first chunk; a guess that is off costs time, not correctness."""
    head = spread_head(24, hidden_size=32, vocabulary=300)
    head = replace(head, bias=torch.linspace(-0.1, 0.1, 300))
    expected = exact(head, objective)
    rows = (expected.weights * expected.tokens.doubt).argsort(descending=order == "heavy rows first")
    got = fused(head.rows(rows), objective, backend, skip_below=HIGH)
    assert 0 < got.kept < 24
    assert_within_bound(got, exact(head.rows(rows), objective))


masses = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60).map(torch.tensor)
thresholds = st.floats(0, 2)


@given(masses, thresholds, thresholds)
def test_the_rule_skips_little_mass(mass, one, other) -> None:
    low, high = (rows_to_keep(mass, skip_below) for skip_below in sorted((one, other)))
    assert high.dtype == torch.bool and high.shape == mass.shape
    assert rows_to_keep(mass, 0.0).all() and (low >= high).all() and high[mass >= max(one, other)].all()
    assert mass[~high].double().sum() <= SKIPPED_MASS * mass.double().sum() * (1 + 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_micro_batches_add_up(backend) -> None:
    head = make_head(8, bias=True)
    head.labels[[1, 2, 5]] = IGNORED  # 2 trained tokens in one half, 3 in the other
    whole = fused(head, TrimSFTEasy(), backend, skip_below=0)
    leaves = head.to(device_of(backend)).leaves()
    loss = torch.zeros((), dtype=torch.float64)
    for rows in (slice(0, 4), slice(4, 8)):
        out = call(leaves.rows(rows), TrimSFTEasy(), backend, skip_below=0, normalizer=5)
        out.loss.backward()
        loss += out.loss.detach().cpu()
    assert distance(loss, whole.loss) < logit_rounding(head)
    for name in ("hidden", "weight", "bias"):
        assert distance(getattr(leaves, name).grad, getattr(whole, name)) < logit_rounding(head)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("objective", [DFT(), lambda tokens: torch.full_like(tokens.nll, 1e-3)])
def test_rows_of_equal_mass(objective, backend) -> None:
    """To skip a share s of equal rows is an error of the root of s, not of s."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(512, 16, generator=generator), torch.randn(500, 16, generator=generator)
    head = Head(hidden, 0.02 * weight, torch.arange(512) % 500)
    assert_within_bound(fused(head, objective, backend, skip_below=HIGH), exact(head, objective))
