"""Every backend, objective and option against the plain formula in float64."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from trimsft import DFT, FSFT, SFT, AutoTrim, TokenStats, TrimSFT, TrimSFTEasy, TrimSFTHard
from trimsft.head import IGNORED

from . import oracle
from .oracle import BACKENDS, EPS, FUSED, Head, assert_close, device_of, exact, fused, make_head


def sharpness(tokens: TokenStats) -> torch.Tensor:
    """A user's own weights: some above 1, some negative."""
    return 2 * torch.sigmoid(tokens.gap) - tokens.prob


def confident(tokens: TokenStats) -> torch.Tensor:
    return torch.exp(-tokens.entropy)


class Halved(TrimSFT):
    """A user's variation on a built-in objective."""

    def weights(self, tokens: TokenStats) -> torch.Tensor:
        return super().weights(tokens) / 2


@dataclass(frozen=True)
class Case:
    """One combination: every objective, option, kind of size and layout occurs, most of them in pairs."""

    objective: Any
    size: tuple[int, int, int] = (6, 32, 300)
    bias: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    ignored: int | None = None
    strided: bool = False

    def __str__(self) -> str:
        name = getattr(self.objective, "__name__", str(self.objective))
        return " ".join([name, "x".join(map(str, self.size)), *map(str, self.options)])


CASES = [
    Case(SFT()),
    Case(FSFT(), (5, 20, 997), True, {"logit_scale": 0.25}),
    Case(DFT(), (5, 64, 5003), False, {"softcap": 30.0}, ignored=-1),
    Case(TrimSFT(bandwidth=3.0), (5, 16, 4096), True, {"softcap": 5.0, "logit_scale": 2.0}),
    Case(TrimSFTEasy(), (8, 16, 4097), False, {"normalizer": 7}, ignored=3),
    Case(TrimSFTHard(), (8, 19, 37), True, {"normalizer": torch.tensor(40)}, IGNORED, strided=True),
    Case(FSFT(gamma=0.5), (8, 7, 2), True, {"softcap": 30.0}),
    Case(TrimSFT(0.5, 3.0), (1, 16, 300), False, {"normalizer": 123.5}),
    Case(AutoTrim(), (6, 24, 300), True, {"softcap": 30.0}),
    Case(AutoTrim(floor=0.02), (5, 20, 97), False, {"logit_scale": 0.25}, ignored=IGNORED),
    Case(lambda tokens: tokens.gap > 0, (6, 24, 97)),
    Case(sharpness, (6, 24, 300), True, {"logit_scale": 2.0}, strided=True),
    Case(confident, (6, 32, 50), False, {"normalizer": 5.0}, ignored=IGNORED),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_statistics_loss_and_gradients(case, backend) -> None:
    head = make_head(*case.size, bias=case.bias, seed=1)
    options = dict(case.options)
    inputs = head
    if case.ignored is not None:
        head.labels[[0, 3, 4]] = case.ignored
        options["ignore_index"] = case.ignored
        # padding may hold anything
        inputs = replace(head, hidden=head.hidden.index_fill(0, torch.tensor([0, 3, 4]), torch.nan))
    if case.strided:
        inputs = replace(inputs, hidden=inputs.hidden.T.contiguous().T, weight=head.weight.T.contiguous().T)
        assert not inputs.hidden.is_contiguous()
    got = fused(inputs, case.objective, backend, skip_below=0, entropy=True, **options)
    assert_close(got, exact(head, case.objective, **options))
    if case.ignored is not None:
        trained = head.labels != case.ignored
        assert len(got.tokens) == int(trained.sum()) and not got.hidden[~trained].any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("objective", [TrimSFT(bandwidth=3.0), sharpness], ids=["built in", "function"])
@pytest.mark.parametrize("skip_below", [0, 1e-30])
@pytest.mark.usefixtures("small_chunks")
def test_token_weights_multiply(skip_below, objective, backend) -> None:
    head, given = make_head(20, bias=True), torch.linspace(-1, 2, 20)
    given[[1, 4]] = 0.0
    head.labels[[0, 7]] = IGNORED
    trained = (head.labels != IGNORED) & (given != 0)  # a weight of 0 is a label that is ignored

    def product(tokens: TokenStats) -> torch.Tensor:
        weights = objective(tokens) if objective is sharpness else objective.weights(tokens)
        return weights * given[trained]

    expected = exact(replace(head, labels=head.labels.masked_fill(~trained, IGNORED)), product)
    given = given.masked_fill(head.labels == IGNORED, torch.nan)  # nobody looks at those
    weights = given.to(device_of(backend))
    got = fused(head, objective, backend, skip_below=skip_below, token_weights=weights)
    assert_close(got, expected)
    torch.testing.assert_close(got.weights, expected.weights, rtol=1e-3, atol=1e-6)
    assert got.kept == len(got.tokens) == 16


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
@pytest.mark.parametrize(
    "objective",
    [SFT(), DFT(), FSFT(), FSFT(gamma=0), FSFT(gamma=1), FSFT(gamma=0.5), TrimSFT(), TrimSFT(1, 2), TrimSFT(-3.0, 0.05),
     TrimSFTEasy(), TrimSFTHard(), Halved(), AutoTrim(), AutoTrim(floor=0.0)],
)  # fmt: skip
def test_weights_are_what_the_objective_says(objective, backend) -> None:
    """From tokens out of reach to tokens whose nll is 0 in float32; integers are numbers, too."""
    weight = torch.zeros(50, 16)
    weight[7, 0] = 1.0
    hidden = torch.zeros(6, 16)
    hidden[:, 0] = torch.tensor([-60.0, -3.0, 0.0, 1.5, 15.0, 120.0])
    got = fused(Head(hidden, weight, torch.full((6,), 7)), objective, backend, skip_below=0)
    assert got.tokens.nll[-1] < 1e-40
    tokens = TokenStats(got.tokens.nll.float(), got.tokens.gap.float(), got.tokens.gold_logit, got.tokens.competitor)
    # an exponent of up to 87 (below it float32 has nothing) carries as many roundings of itself into the weight
    torch.testing.assert_close(got.weights.float(), objective.weights(tokens), rtol=87 * EPS, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_of_sequences(backend) -> None:
    flat = make_head(6, seed=4)
    flat.labels[[2, 5]] = IGNORED
    head = Head(flat.hidden.view(2, 3, -1), flat.weight, flat.labels.view(2, 3))
    got = fused(head, TrimSFTHard(), backend, skip_below=0)
    assert got.hidden.shape == (2, 3, 32)
    assert_close(replace(got, hidden=got.hidden.flatten(0, 1)), exact(flat, TrimSFTHard()))


@pytest.mark.parametrize(("backend", "skip_below"), [(backend, 0) for backend in FUSED] + [("triton", 1e-30)])
@pytest.mark.usefixtures("small_chunks")
def test_several_chunks(backend, skip_below) -> None:
    head = make_head(36 if backend == "chunked" else 18, bias=True, seed=6)
    head.labels[7] = IGNORED
    assert_close(fused(head, TrimSFTEasy(), backend, skip_below=skip_below, entropy=True), exact(head, TrimSFTEasy()))


@pytest.mark.parametrize("backend", ["reference", "chunked", "auto"])
def test_float64(backend) -> None:
    head = make_head(dtype=torch.float64, bias=True)
    # statistics and weights are float32 all the same: each is rounded once, and the gap enters the weight squared
    expected = replace(exact(head, TrimSFT()), rounding=16 * EPS)
    assert_close(fused(head, TrimSFT(), backend, skip_below=0), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("objective", "options", "dtype"),
    [
        (SFT(), {}, torch.bfloat16),
        (TrimSFT(), {}, torch.bfloat16),
        (sharpness, {"softcap": 30.0}, torch.bfloat16),
        (SFT(), {"softcap": 30.0}, torch.float16),
        (TrimSFT(), {}, torch.float16),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_half_precision_errs_no_more_than_torch(objective, options, dtype, backend) -> None:
    head = make_head(8, 64, 997, bias=bool(options), dtype=dtype, logit_size=7.0, seed=7)
    expected, torch_own = exact(head, objective, **options), oracle.plain(head, objective, **options)
    got = fused(head, objective, backend, skip_below=0, entropy=True, **options)
    assert 16 < expected.tokens.gold_logit.max() < 32
    oracle.assert_no_worse_than_torch(got, torch_own, expected)
    if dtype == torch.bfloat16:
        assert (torch_own.tokens.gap - expected.tokens.gap).abs().max() > 0.03


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
def test_competitors_within_a_bfloat16_step(backend) -> None:
    pairs = [(5, 6), (6, 5), (13, 5), (5, 4101), (4101, 5), (4100, 5), (5, 5002), (5002, 5)]
    hidden, weight = torch.zeros(8, 16), torch.zeros(5003, 16)
    for row, (best, second) in enumerate(pairs):  # each has two features of its own
        two = slice(2 * row, 2 * row + 2)
        hidden[row, two] = torch.tensor([16.0, 1.0])
        weight[40, two] = torch.tensor([1.0, 1.5])  # gold: 17.5
        weight[best, two] = torch.tensor([1.0, 0.05078125])  # 16.0508, in bfloat16 16
        weight[second, two] = torch.tensor([1.0, 0.0078125])  # 16.0078, in bfloat16 16
    head = Head(hidden, weight, torch.full((8,), 40)).to(torch.bfloat16)
    rounded = head.hidden @ head.weight.T
    assert all(rounded[row, best] == rounded[row, second] == 16.0 for row, (best, second) in enumerate(pairs))

    got, expected = fused(head, TrimSFT(), backend, skip_below=0, entropy=True), exact(head, TrimSFT())
    assert got.tokens.competitor.tolist() == [best for best, _ in pairs]
    torch.testing.assert_close(got.tokens.gap, torch.full((8,), 17.5 - 16.05078125).double(), rtol=0, atol=1e-5)
    # the second may be off by its 0.0078 of rounding, times its probability of 0.16; the best counts exactly, too
    torch.testing.assert_close(got.tokens.nll, expected.tokens.nll, rtol=0, atol=0.0078 * 0.2)
    torch.testing.assert_close(got.tokens.entropy, expected.tokens.entropy, rtol=0, atol=2 * 0.0078 * 0.2)


@pytest.mark.parametrize("backend", FUSED)
def test_nll_of_a_certain_token(backend) -> None:
    """nll = log(1 + 299 exp(-gap)); for 26.5 that is 9.3e-10, where float32 cannot tell p from 1."""
    gaps = torch.tensor([12.0, 26.5, 60.0, 2.0])
    weight, hidden = torch.zeros(300, 16), torch.zeros(4, 16)
    weight[11, 0], hidden[:, 0] = 1.0, gaps
    got = fused(Head(hidden, weight, torch.full((4,), 11)), SFT(), backend, skip_below=0)
    others = 299 * torch.exp(-gaps.double())
    # exp(-60) carries 60 roundings of its exponent
    torch.testing.assert_close(got.tokens.nll, torch.log1p(others), rtol=64 * EPS, atol=0)
    # d loss / d hidden = (p - 1) * weight[gold], over 4 tokens
    torch.testing.assert_close(got.hidden[:, 0], -others / (1 + others) / 4, rtol=64 * EPS, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nll_at_both_ends(backend) -> None:
    nll = fused(make_head(6, logit_size=20.0, seed=8), SFT(), backend, skip_below=0).tokens.nll
    assert (nll >= 0).all() and nll.min() < 1e-2
    head = make_head(4, logit_size=60.0, seed=9)
    head = replace(head, labels=(head.hidden @ head.weight.T).argmin(dim=1))
    expected = exact(head, SFT())
    assert expected.tokens.gap.min() < -200  # exp(200) is beyond float32
    assert_close(fused(head, SFT(), backend, skip_below=0), expected)
