"""Rows that carry no gradient are left out of the backward pass: how much that may change, and what it must not."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimsft import DFT, SFT, TrimSFT, TrimSFTEasy, make_objective
from trimsft.bench.head import synthetic_head
from trimsft.head import IGNORED
from trimsft.head.problem import DEFAULT_SKIP_BELOW, SKIPPED_MASS, rows_to_keep
from trimsft.objectives import PAPER_OBJECTIVES

from . import oracle
from .oracle import BACKENDS, FUSED, Answer, Head, call, device_of, distance, exact, fused, logit_rounding, make_head

BOUND = 2e-3
"""What the default may cost: the size of bfloat16 rounding."""


def spread_head(tokens: int, hidden_size: int = 64, vocabulary: int = 1500, **gaps: float) -> Head:
    """Gaps spread evenly over (-2, 14), or the range given."""
    return Head(*synthetic_head(tokens, hidden_size, vocabulary, device="cpu", dtype=torch.float32, **gaps))


def assert_within_bound(got: Answer, expected: Answer) -> None:
    for part in ("hidden", "weight") if expected.bias is None else ("hidden", "weight", "bias"):
        assert distance(getattr(got, part), getattr(expected, part)) < BOUND
    assert distance(got.loss, expected.loss) <= expected.rounding  # the loss counts every row


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in PAPER_OBJECTIVES), ("trim", {"softcap": 30.0})])
def test_default_keeps_both_gradients(name, options) -> None:
    objective, head = make_objective(name), spread_head(800)
    expected = exact(head, objective, **options)
    for backend in ("reference", "chunked"):
        got = fused(head, objective, backend, **options)
        assert_within_bound(got, expected)
        assert name != "trim" or 0 < got.kept < 400


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_is_exact_and_skipped_rows_get_no_gradient_at_all(backend) -> None:
    head = spread_head(10, hidden_size=32, vocabulary=300)
    got = fused(head, TrimSFT(), backend, skip_below=0)
    assert got.kept == 10
    oracle.assert_close(got, exact(head, TrimSFT()))
    got = fused(head, TrimSFT(), backend)
    touched = got.hidden.abs().sum(dim=1) > 0
    assert torch.equal(touched, got.weights.abs() * got.tokens.doubt >= DEFAULT_SKIP_BELOW)
    assert got.kept == int(touched.sum()) < 10


@pytest.mark.parametrize(
    ("objective", "skip_below"),
    [(SFT(), 0.05), (DFT(), DEFAULT_SKIP_BELOW), (TrimSFT(), 0.05), (TrimSFT(margin=8.0), DEFAULT_SKIP_BELOW)],
    ids=str,
)
def test_backends_agree_on_what_to_keep(objective, skip_below) -> None:
    head = spread_head(10, hidden_size=16, vocabulary=100)
    kept = {backend: fused(head, objective, backend, skip_below=skip_below).kept for backend in BACKENDS}
    assert len(set(kept.values())) == 1, kept


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("chunks", "skip_below"), [(1, DEFAULT_SKIP_BELOW), (1, 0.5), (3, DEFAULT_SKIP_BELOW)])
@pytest.mark.usefixtures("small_chunks")
def test_batch_whose_weights_are_all_tiny_still_learns(chunks, skip_below, backend) -> None:
    """What the first chunk teaches about the threshold holds for the others."""
    tokens = 8 if chunks == 1 else 40 if backend == "chunked" else 20
    head = spread_head(tokens, hidden_size=32, vocabulary=300, lowest_gap=-2.0, highest_gap=2.0)
    expected = exact(head, TrimSFT(margin=6.0))
    assert expected.weights.max() < 1e-4
    got = fused(head, TrimSFT(margin=6.0), backend, skip_below=skip_below)
    assert got.kept > 0 and (got.kept < tokens or chunks == 1)
    assert_within_bound(got, expected)


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("objective", [DFT(), lambda tokens: torch.full_like(tokens.nll, 1e-3)])
def test_rows_of_equal_mass(objective, backend) -> None:
    """To skip a share s of equal rows is an error of the root of s, not of s."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(512, 16, generator=generator), torch.randn(500, 16, generator=generator)
    head = Head(hidden, 0.02 * weight, torch.arange(512) % 500)
    assert_within_bound(fused(head, objective, backend), exact(head, objective))


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_light_rows_beside_a_few_heavy_ones(backend) -> None:
    """Each light row is below the threshold; together they hold a good share of the gradient."""
    head = spread_head(16, hidden_size=32, vocabulary=300, lowest_gap=9.0, highest_gap=12.0)
    head.labels[[4, 12]] = (head.labels[[4, 12]] + 1) % 300
    objective = lambda tokens: torch.where(tokens.gap < 0, 0.01, 1.0)  # noqa: E731
    expected = exact(head, objective)
    got = fused(head, objective, backend)
    below = int((expected.weights * expected.tokens.doubt < DEFAULT_SKIP_BELOW).sum())
    assert got.kept > 16 - below
    assert_within_bound(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("skip_below", [0, DEFAULT_SKIP_BELOW])
def test_zero_weights_give_zero_gradients(skip_below, backend) -> None:
    got = fused(make_head(4, bias=True), lambda tokens: torch.zeros_like(tokens.nll), backend, skip_below=skip_below)
    assert got.loss == 0
    for gradient in (got.hidden, got.weight, got.bias):
        assert (gradient == 0).all()


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize(
    ("objective", "order"),
    [(TrimSFT(), "heavy rows last"), (TrimSFT(margin=7.0, bandwidth=0.5), "heavy rows first")],
    ids=str,
)
@pytest.mark.usefixtures("small_chunks")
def test_where_the_kept_rows_stand_does_not_matter(objective, order, backend) -> None:
    """Room for kept rows is guessed from the first chunk; a guess that is off costs time, not correctness."""
    head = spread_head(24, hidden_size=32, vocabulary=300)
    head = replace(head, bias=torch.linspace(-0.1, 0.1, 300))
    expected = exact(head, objective)
    rows = (expected.weights * expected.tokens.doubt).argsort(descending=order == "heavy rows first")
    got = fused(head.rows(rows), objective, backend)
    assert 0 < got.kept < 24
    assert_within_bound(got, exact(head.rows(rows), objective))


masses = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=60).map(torch.tensor)
light_masses = st.lists(st.floats(0, 2**-8, width=32), min_size=1, max_size=60).map(torch.tensor)
thresholds = st.floats(0, 2)


@given(masses | light_masses, thresholds)
def test_rule_keeps_heavy_rows_and_skips_little_mass(mass, skip_below) -> None:
    keep = rows_to_keep(mass, skip_below)
    assert keep.dtype == torch.bool and keep.shape == mass.shape
    assert keep[mass >= skip_below].all()
    skipped, total = mass[~keep].double().sum(), mass.double().sum()
    assert skipped <= SKIPPED_MASS * total * (1 + 1e-12)


@given(masses | light_masses, thresholds, thresholds)
def test_rule_keeps_everything_at_0_and_fewer_rows_at_a_higher_threshold(mass, one, other) -> None:
    assert rows_to_keep(mass, 0.0).all()
    low, high = sorted((one, other))
    assert (rows_to_keep(mass, low) >= rows_to_keep(mass, high)).all()


@given(st.lists(st.floats(0, 2**-8, width=32), min_size=2, max_size=60, unique=True), st.randoms())
def test_rule_does_not_depend_on_the_order(mass, random) -> None:
    orders = torch.tensor(mass), torch.tensor(random.sample(mass, len(mass)))
    kept, again = ({float(m) for m in order[rows_to_keep(order, 1e-3)]} for order in orders)
    assert kept == again


@pytest.mark.parametrize("backend", BACKENDS)
def test_permuted_tokens_give_permuted_statistics_and_the_same_weight_gradient(backend) -> None:
    head, order = spread_head(10, hidden_size=16, vocabulary=100), [3, 9, 0, 1, 8, 2, 7, 4, 6, 5]
    before, after = fused(head, TrimSFT(), backend), fused(head.rows(torch.tensor(order)), TrimSFT(), backend)
    rounding = logit_rounding(head)
    torch.testing.assert_close(after.tokens.gap, before.tokens.gap[order], rtol=0, atol=rounding)
    assert torch.equal(after.tokens.competitor, before.tokens.competitor[order])
    assert distance(after.hidden, before.hidden[order]) < rounding
    assert distance(after.weight, before.weight) < rounding
    assert after.kept == before.kept


@pytest.mark.parametrize("backend", BACKENDS)
def test_micro_batches_with_a_shared_normalizer_add_up(backend) -> None:
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
