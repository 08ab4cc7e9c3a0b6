"""Every backend, objective and option against the plain formula in float64."""

from dataclasses import replace

import pytest
import torch

from trimsft import DFT, FSFT, SFT, TokenStats, TrimSFT, TrimSFTEasy, TrimSFTHard, linear_cross_entropy

from .oracle import (
    BACKENDS,
    FUSED,
    Answer,
    Head,
    assert_close,
    distance,
    exact,
    formula,
    fused,
    make_head,
    plain,
    wide,
)


def sharpness(tokens: TokenStats) -> torch.Tensor:
    """A user's own weights: some above 1, some negative."""
    return 2 * torch.sigmoid(tokens.gap) - tokens.prob


def name(objective: object) -> str:
    return getattr(objective, "__name__", str(objective))


BUILTIN = [SFT(), FSFT(), DFT(), TrimSFT(), TrimSFTEasy(), TrimSFTHard()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("objective", [*BUILTIN, FSFT(gamma=0.5), TrimSFT(0.5, 3.0), sharpness], ids=name)
def test_objectives(objective, backend) -> None:
    head = make_head()
    assert_close(fused(head, objective, backend, skip_below=0, entropy=True), exact(head, objective))


class Halved(TrimSFT):
    """A user's variation on a built-in objective."""

    def weights(self, tokens: TokenStats) -> torch.Tensor:
        return super().weights(tokens) / 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "objective",
    [*BUILTIN, FSFT(gamma=0), FSFT(gamma=1), FSFT(gamma=0.5), TrimSFT(1, 2), TrimSFT(-3.0, 0.05), Halved()],
)
def test_weights_are_what_the_objective_says(objective, backend) -> None:
    """From tokens out of reach to tokens whose nll is 0 in float32; integers are numbers, too."""
    weight = torch.zeros(50, 16)
    weight[7, 0] = 1.0
    hidden = torch.zeros(9, 16)
    hidden[:, 0] = torch.tensor([-60.0, -20.0, -3.0, 0.0, 1.5, 4.0, 15.0, 60.0, 120.0])
    got = fused(Head(hidden, weight, torch.full((9,), 7)), objective, backend, skip_below=0)
    assert got.tokens.nll[-1] < 1e-40
    tokens = TokenStats(got.tokens.nll.float(), got.tokens.gap.float(), got.tokens.gold_logit, got.tokens.competitor)
    torch.testing.assert_close(got.weights.float(), objective.weights(tokens), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("bias", "options"),
    [
        (True, {}),
        (False, {"logit_scale": 0.25}),
        (True, {"logit_scale": 2.0}),
        (False, {"softcap": 30.0}),
        (True, {"softcap": 30.0}),
        (True, {"softcap": 5.0, "logit_scale": 2.0}),
        (True, {"normalizer": 7}),
        (False, {"normalizer": 123.5}),
        (True, {"normalizer": torch.tensor(40)}),
    ],
    ids=str,
)
def test_options(bias, options, backend) -> None:
    head = make_head(12, bias=bias, seed=1)
    got = fused(head, TrimSFT(bandwidth=3.0), backend, skip_below=0, entropy=True, **options)
    assert_close(got, exact(head, TrimSFT(bandwidth=3.0), **options))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("tokens", "hidden_size", "vocabulary"),
    [(12, 20, 997), (10, 64, 5003), (8, 16, 4096), (8, 16, 4097), (12, 19, 37), (12, 7, 2), (1, 16, 300)],
)
def test_sizes(tokens, hidden_size, vocabulary, backend) -> None:
    head = make_head(tokens, hidden_size, vocabulary, bias=True, seed=2)
    got = fused(head, TrimSFTEasy(), backend, skip_below=0, entropy=True)
    assert_close(got, exact(head, TrimSFTEasy()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ignore_index", [-100, -1, 3])
def test_ignored_labels(ignore_index, backend) -> None:
    head = make_head(18, vocabulary=50, seed=3)
    head.labels[[0, 4, 5, 17]] = ignore_index
    options = {"ignore_index": ignore_index}
    got = fused(head, DFT(), backend, skip_below=0, **options)
    assert len(got.tokens) == int((head.labels != ignore_index).sum())
    assert_close(got, exact(head, DFT(), **options))
    assert not got.hidden[head.labels == ignore_index].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_of_sequences(backend) -> None:
    flat = make_head(18, seed=4)
    flat.labels[[2, 9]] = -100
    head = Head(flat.hidden.view(3, 6, -1), flat.weight, flat.labels.view(3, 6))
    got, expected = fused(head, TrimSFTHard(), backend, skip_below=0), exact(flat, TrimSFTHard())
    assert got.hidden.shape == (3, 6, 32)
    assert_close(replace(got, hidden=got.hidden.flatten(0, 1)), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ignored", [False, True], ids=["all labels", "some ignored"])
def test_hidden_states_and_weights_that_are_not_contiguous(ignored, backend) -> None:
    head = make_head(14, hidden_size=24, seed=5)
    if ignored:
        head.labels[[1, 13]] = -100
    strided = replace(head, hidden=head.hidden.T.contiguous().T, weight=head.weight.T.contiguous().T)
    assert not strided.hidden.is_contiguous()
    assert_close(fused(strided, FSFT(), backend, skip_below=0), exact(head, FSFT()))


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
def test_weight_tied_to_the_embedding(backend) -> None:
    base = make_head(16, vocabulary=97)
    inputs = torch.randint(97, (16,), generator=torch.Generator().manual_seed(0))
    double = base.weight.double().requires_grad_()
    formula(Head(torch.tanh(double[inputs]), double, base.labels), SFT())[0].backward()

    device = "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"
    tied = base.weight.to(device).requires_grad_()
    hidden = torch.tanh(tied[inputs.to(device)])
    linear_cross_entropy(hidden, tied, base.labels.to(device), SFT(), skip_below=0, backend=backend).loss.backward()
    assert distance(tied.grad, double.grad) < 1e-5


@pytest.mark.parametrize("skip_below", [0, 1e-30])
@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.usefixtures("small_chunks")
def test_several_chunks(backend, skip_below) -> None:
    head = make_head(36, bias=True, seed=6)
    head.labels[7] = -100
    assert_close(fused(head, TrimSFTEasy(), backend, skip_below=skip_below, entropy=True), exact(head, TrimSFTEasy()))


def test_float64() -> None:
    head = make_head(dtype=torch.float64, bias=True)
    for backend in ("reference", "chunked", "auto"):
        assert_close(fused(head, TrimSFT(), backend, skip_below=0), exact(head, TrimSFT()), gradients=1e-6, gap=1e-6)


# ---- half precision: no worse than torch itself, except that the gap must be right


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("objective", "options"),
    [(SFT(), {}), (SFT(), {"softcap": 30.0}), (TrimSFT(), {}), (sharpness, {"softcap": 30.0})],
    ids=name,
)
def test_half_precision_errs_no_more_than_torch(objective, options, dtype, backend) -> None:
    head = make_head(16, 64, 997, bias=bool(options), dtype=dtype, logit_size=7.0, seed=7)
    expected, torch_own = exact(head, objective, **options), plain(head, objective, **options)
    got = fused(head, objective, backend, skip_below=0, entropy=True, **options)
    assert 16 < expected.tokens.gold_logit.max() < 32
    errors = half_precision_errors(got, expected)
    bounds = half_precision_errors(torch_own, expected)
    assert all(errors[part] <= 1.5 * bounds[part] for part in bounds), (errors, bounds)
    torch.testing.assert_close(got.tokens.gap, expected.tokens.gap, rtol=0, atol=0.01)
    if dtype == torch.bfloat16:
        assert (torch_own.tokens.gap - expected.tokens.gap).abs().max() > 0.03


def half_precision_errors(got: Answer, expected: Answer) -> dict[str, float]:
    """Of the terms of the loss rather than of their sum, in which errors may cancel by luck."""
    terms = distance(got.weights * got.tokens.nll, expected.weights * expected.tokens.nll)
    errors = {"terms": terms, "hidden": distance(got.hidden, expected.hidden)}
    errors["weight"] = distance(got.weight, expected.weight)
    errors["entropy"] = distance(got.tokens.entropy, expected.tokens.entropy)
    return errors if expected.bias is None else errors | {"bias": distance(got.bias, expected.bias)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("best", "second"), [(5, 6), (6, 5), (13, 5), (5, 4101), (4101, 5), (4100, 5), (5, 5002), (5002, 5)]
)
def test_competitors_that_bfloat16_cannot_tell_apart(best, second, backend) -> None:
    hidden = torch.zeros(1, 16)
    hidden[0, :2] = torch.tensor([16.0, 1.0])
    weight = torch.zeros(5003, 16)
    weight[40, :2] = torch.tensor([1.0, 1.5])  # gold: 17.5
    weight[best, :2] = torch.tensor([1.0, 0.05078125])  # 16.0508, in bfloat16 16
    weight[second, :2] = torch.tensor([1.0, 0.0078125])  # 16.0078, in bfloat16 16
    head = Head(hidden, weight, torch.tensor([40])).to(torch.bfloat16)
    rounded = head.hidden @ head.weight.T
    assert rounded[0, best] == rounded[0, second] == 16.0

    got, expected = fused(head, TrimSFT(), backend, skip_below=0, entropy=True), exact(head, TrimSFT())
    assert got.tokens.competitor.item() == best
    assert got.tokens.gap.item() == pytest.approx(17.5 - 16.05078125, abs=0.01)
    # the best competitor counts exactly, too: rounded like the second, it would move both by 0.008
    assert got.tokens.nll.item() == pytest.approx(expected.tokens.nll.item(), abs=3e-3)
    assert got.tokens.entropy.item() == pytest.approx(expected.tokens.entropy.item(), abs=4e-3)


# ---- deep tails


def certain_head(gap: float) -> Head:
    """One token that the model is sure of: all other logits are 0."""
    weight = torch.zeros(300, 16)
    weight[11, 0] = 1.0
    hidden = torch.zeros(2, 16)
    hidden[:, 0] = torch.tensor([gap, 2.0])
    return Head(hidden, weight, torch.tensor([11, 11]))


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("gap", [12.0, 26.5, 60.0])
def test_nll_of_a_certain_token_keeps_its_digits(gap, backend) -> None:
    # nll = log(1 + 299 exp(-gap)); for 26.5 that is 9.3e-10, where float32 cannot tell p from 1
    got = fused(certain_head(gap), SFT(), backend, skip_below=0)
    others = 299 * torch.exp(torch.tensor(-gap, dtype=torch.float64))
    assert got.tokens.nll[0].item() == pytest.approx(torch.log1p(others).item(), rel=1e-4)
    doubt = (others / (1 + others)).item()
    # d loss / d hidden = (p - 1) * weight[gold], over 2 tokens
    assert got.hidden[0, 0].item() == pytest.approx(-doubt / 2, rel=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nll_is_never_negative(backend) -> None:
    head = make_head(16, logit_size=20.0, seed=8)
    nll = fused(head, SFT(), backend, skip_below=0).tokens.nll
    assert (nll >= 0).all()
    assert wide(nll).min() < 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_gold_token_out_of_reach(backend) -> None:
    """exp(-gap) overflows float32; nll and gradients must not."""
    head = make_head(6, logit_size=60.0, seed=9)
    head = replace(head, labels=(head.hidden @ head.weight.T).argmin(dim=1))
    expected = exact(head, SFT())
    assert expected.tokens.gap.min() < -200
    got = fused(head, SFT(), backend, skip_below=0)
    assert_close(got, expected, gap=1e-3)
