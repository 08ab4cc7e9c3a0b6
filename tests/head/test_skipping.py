"""Rows that carry no gradient are left out of the backward pass: how much that may change, and what it must not."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trimsft import DFT, FSFT, OBJECTIVES, SFT, TrimSFT, TrimSFTEasy, make_objective
from trimsft.bench.head import synthetic_head
from trimsft.head.problem import DEFAULT_SKIP_BELOW, SKIPPED_MASS, rows_to_keep

from .oracle import BACKENDS, FUSED, Head, assert_close, call, device_of, distance, exact, fused, make_head

BOUND = 2e-3
"""What the default may cost: the size of bfloat16 rounding."""


def spread_head(tokens: int, hidden_size: int = 64, vocabulary: int = 1500, **gaps: float) -> Head:
    """Gaps spread evenly over (-2, 14), or the range given."""
    return Head(*synthetic_head(tokens, hidden_size, vocabulary, device="cpu", dtype=torch.float32, **gaps))


# ---- the default


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("options", [{}, {"softcap": 30.0}], ids=str)
def test_default_keeps_both_gradients(options, name, backend) -> None:
    objective, head = make_objective(name), spread_head(2000)
    got, expected = fused(head, objective, backend, **options), exact(head, objective, **options)
    assert distance(got.hidden, expected.hidden) < BOUND
    assert distance(got.weight, expected.weight) < BOUND
    assert distance(got.loss, expected.loss) < 1e-5  # the loss counts every row
    if name == "trim":
        assert 0 < got.kept < 1000


@pytest.mark.parametrize("backend", ["triton", "triton low_memory"])
@pytest.mark.parametrize("objective", [TrimSFT(), FSFT()], ids=str)
def test_default_keeps_both_gradients_in_the_kernels(objective, backend) -> None:
    head = spread_head(40, hidden_size=32, vocabulary=300)
    got, expected = fused(head, objective, backend), exact(head, objective)
    assert 0 < got.kept < 40
    assert distance(got.hidden, expected.hidden) < BOUND
    assert distance(got.weight, expected.weight) < BOUND


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_is_exact(backend) -> None:
    head = spread_head(24, hidden_size=32, vocabulary=300)
    got = fused(head, TrimSFT(), backend, skip_below=0)
    assert got.kept == 24
    assert_close(got, exact(head, TrimSFT()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_skipped_rows_get_no_gradient_at_all(backend) -> None:
    head = spread_head(32, hidden_size=32, vocabulary=300)
    got = fused(head, TrimSFT(), backend)
    mass = got.weights.abs() * got.tokens.doubt
    touched = got.hidden.abs().sum(dim=1) > 0
    assert torch.equal(touched, mass >= DEFAULT_SKIP_BELOW)
    assert got.kept == int(touched.sum()) < 32


@pytest.mark.parametrize("objective", [SFT(), DFT(), TrimSFT(), TrimSFT(margin=8.0)], ids=str)
@pytest.mark.parametrize("skip_below", [DEFAULT_SKIP_BELOW, 0.05])
def test_backends_agree_on_what_to_keep(skip_below, objective) -> None:
    head = spread_head(20, hidden_size=16, vocabulary=100)
    kept = {backend: fused(head, objective, backend, skip_below=skip_below).kept for backend in BACKENDS}
    assert len(set(kept.values())) == 1, kept


# ---- the guard: many rows of little mass


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("skip_below", [DEFAULT_SKIP_BELOW, 0.5])
def test_batch_whose_weights_are_all_tiny_still_learns(skip_below, backend) -> None:
    head = spread_head(24, hidden_size=32, vocabulary=300, lowest_gap=-2.0, highest_gap=2.0)
    objective = TrimSFT(margin=6.0)
    expected = exact(head, objective)
    assert expected.weights.max() < 1e-4
    got = fused(head, objective, backend, skip_below=skip_below)
    assert got.kept > 0
    assert distance(got.hidden, expected.hidden) < BOUND
    assert distance(got.weight, expected.weight) < BOUND


@pytest.mark.parametrize("backend", ["reference", "chunked"])
@pytest.mark.parametrize("objective", [DFT(), lambda tokens: torch.full_like(tokens.nll, 1e-3)])
def test_rows_of_equal_mass(objective, backend) -> None:
    """To skip a share s of equal rows is an error of the root of s, not of s."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(512, 16, generator=generator), torch.randn(500, 16, generator=generator)
    head = Head(hidden, 0.02 * weight, torch.arange(512) % 500)
    got, expected = fused(head, objective, backend), exact(head, objective)
    assert distance(got.hidden, expected.hidden) < BOUND
    assert distance(got.weight, expected.weight) < BOUND


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.usefixtures("small_chunks")
def test_tiny_weights_in_several_chunks(backend) -> None:
    """What the first chunk teaches about the threshold holds for the others."""
    head = spread_head(40, hidden_size=32, vocabulary=300, lowest_gap=-2.0, highest_gap=2.0)
    objective = TrimSFT(margin=6.0)
    got, expected = fused(head, objective, backend), exact(head, objective)
    assert 0 < got.kept < 40
    assert distance(got.hidden, expected.hidden) < BOUND
    assert distance(got.weight, expected.weight) < BOUND


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_light_rows_beside_a_few_heavy_ones(backend) -> None:
    """Each light row is below the threshold; together they hold a good share of the gradient."""
    head = spread_head(36, hidden_size=32, vocabulary=300, lowest_gap=9.0, highest_gap=12.0)
    head.labels[[4, 30]] = (head.labels[[4, 30]] + 1) % 300
    objective = lambda tokens: torch.where(tokens.gap < 0, 0.01, 1.0)  # noqa: E731
    expected = exact(head, objective)
    got = fused(head, objective, backend)
    below = int((expected.weights * expected.tokens.doubt < DEFAULT_SKIP_BELOW).sum())
    assert got.kept > 36 - below
    assert distance(got.hidden, expected.hidden) < BOUND
    assert distance(got.weight, expected.weight) < BOUND


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("skip_below", [0, DEFAULT_SKIP_BELOW])
def test_zero_weights_give_zero_gradients(skip_below, backend) -> None:
    got = fused(make_head(12, bias=True), lambda tokens: torch.zeros_like(tokens.nll), backend, skip_below=skip_below)
    assert got.loss == 0
    for gradient in (got.hidden, got.weight, got.bias):
        assert (gradient == 0).all()


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("objective", [TrimSFT(), TrimSFT(margin=7.0, bandwidth=0.5)], ids=str)
@pytest.mark.parametrize("order", ["heavy rows first", "heavy rows last"])
@pytest.mark.usefixtures("small_chunks")
def test_where_the_kept_rows_stand_does_not_matter(order, objective, backend) -> None:
    """Room for kept rows is guessed from the first chunk; a guess that is off costs time, not correctness."""
    head = spread_head(40, hidden_size=32, vocabulary=300)
    head = replace(head, bias=torch.linspace(-0.1, 0.1, 300))
    expected = exact(head, objective)
    rows = (expected.weights * expected.tokens.doubt).argsort(descending=order == "heavy rows first")
    got, expected = fused(head.rows(rows), objective, backend), exact(head.rows(rows), objective)
    assert 0 < got.kept < 40
    for name in ("hidden", "weight", "bias"):
        assert distance(getattr(got, name), getattr(expected, name)) < BOUND, name


# ---- the rule itself

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
def test_rule_keeps_fewer_rows_at_a_higher_threshold(mass, one, other) -> None:
    low, high = sorted((one, other))
    assert (rows_to_keep(mass, low) >= rows_to_keep(mass, high)).all()


@given(masses | light_masses)
def test_rule_keeps_everything_at_0(mass) -> None:
    assert rows_to_keep(mass, 0.0).all()


@given(st.lists(st.floats(0, 2**-8, width=32), min_size=2, max_size=60, unique=True), st.randoms())
def test_rule_does_not_depend_on_the_order(mass, random) -> None:
    shuffled = random.sample(mass, len(mass))
    kept = {m for m, keep in zip(mass, rows_to_keep(torch.tensor(mass), 1e-3), strict=True) if keep}
    again = {m for m, keep in zip(shuffled, rows_to_keep(torch.tensor(shuffled), 1e-3), strict=True) if keep}
    assert kept == again


# ---- laws of the whole head


@settings(max_examples=10)
@given(st.permutations(range(24)))
@pytest.mark.parametrize("backend", ["reference", "chunked"])
def test_permuted_tokens_give_permuted_statistics_and_the_same_weight_gradient(backend, order) -> None:
    check_permutation(backend, order)


@pytest.mark.parametrize("backend", ["triton", "triton low_memory"])
def test_permuted_tokens_in_the_kernels(backend) -> None:
    check_permutation(backend, torch.randperm(24, generator=torch.Generator().manual_seed(0)).tolist())


def check_permutation(backend: str, order: list[int]) -> None:
    head = spread_head(24, hidden_size=16, vocabulary=100)
    before, after = fused(head, TrimSFT(), backend), fused(head.rows(torch.tensor(order)), TrimSFT(), backend)
    torch.testing.assert_close(after.tokens.gap, before.tokens.gap[order], rtol=0, atol=1e-5)
    assert torch.equal(after.tokens.competitor, before.tokens.competitor[order])
    assert distance(after.hidden, before.hidden[order]) < 1e-5
    assert distance(after.weight, before.weight) < 1e-5
    assert after.kept == before.kept


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("skip_below", [0, DEFAULT_SKIP_BELOW])
def test_normalizer_divides_loss_and_gradients(skip_below, backend) -> None:
    head = spread_head(16, hidden_size=16, vocabulary=100)
    one = fused(head, TrimSFTEasy(), backend, skip_below=skip_below, normalizer=1)
    many = fused(head, TrimSFTEasy(), backend, skip_below=skip_below, normalizer=5e4)
    assert one.kept == many.kept
    for name in ("loss", "hidden", "weight"):
        assert distance(5e4 * getattr(many, name), getattr(one, name)) < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_micro_batches_with_a_shared_normalizer_add_up(backend) -> None:
    head = make_head(20, bias=True)
    head.labels[[1, 2, 3, 4, 11]] = -100  # 6 trained tokens in one half, 9 in the other
    whole = fused(head, TrimSFTEasy(), backend, skip_below=0)
    leaves = head.to(device_of(backend)).leaves()
    loss = torch.zeros((), dtype=torch.float64)
    for rows in (slice(0, 10), slice(10, 20)):
        out = call(leaves.rows(rows), TrimSFTEasy(), backend, skip_below=0, normalizer=15)
        out.loss.backward()
        loss += out.loss.detach().cpu()
    assert distance(loss, whole.loss) < 1e-5
    for name in ("hidden", "weight", "bias"):
        assert distance(getattr(leaves, name).grad, getattr(whole, name)) < 1e-5
