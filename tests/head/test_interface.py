"""What callers may do with linear_cross_entropy: degenerate batches, frozen parameters, scaling, autocast, compile."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from trimsft import DFT, SFT, TokenStats, TrimSFT, TrimSFTEasy, linear_cross_entropy

from .oracle import BACKENDS, Head, assert_close, call, device_of, distance, exact, formula, fused, make_head

# ---- batches with little in them


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(0,), (2, 0), (5,), (2, 3)], ids=["empty", "empty 2-D", "ignored", "ignored 2-D"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nothing_to_train_gives_loss_0_and_zero_gradients(dtype, shape, backend) -> None:
    base = make_head(bias=True, dtype=dtype)
    hidden = torch.full((*shape, 32), torch.nan, dtype=dtype)  # padding may hold anything
    head = Head(hidden, base.weight, torch.full(shape, -100), base.bias).to(device_of(backend)).leaves()
    out = call(head, TrimSFT(), backend, entropy=True)
    assert out.loss.item() == 0.0 and out.loss.shape == () and out.loss.dtype == torch.float32
    assert len(out.tokens) == len(out.weights) == len(out.tokens.entropy) == out.kept == 0
    out.loss.backward()
    for leaf in (head.hidden, head.weight, head.bias):
        assert leaf.grad is not None and leaf.grad.shape == leaf.shape
        assert (leaf.grad == 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_hidden_state_without_a_batch_dimension(backend) -> None:
    row = make_head(1)
    got = fused(Head(row.hidden[0], row.weight, row.labels[0]), SFT(), backend)
    assert got.hidden.shape == (32,)
    assert_close(replace(got, hidden=got.hidden[None]), exact(row, SFT()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_garbage_at_ignored_positions_does_no_harm(backend) -> None:
    head = make_head(12)
    head.labels[[0, 5]] = -100
    dirty = replace(head, hidden=head.hidden.index_fill(0, torch.tensor([0, 5]), torch.nan))
    got, clean = fused(dirty, SFT(), backend), fused(head, SFT(), backend)
    assert torch.equal(got.hidden, clean.hidden) and torch.equal(got.weight, clean.weight)


# ---- what comes back


@pytest.mark.parametrize("backend", BACKENDS)
def test_statistics_are_of_the_trained_tokens_in_order(backend) -> None:
    head = make_head(18, seed=1)
    head.labels[[0, 3, 4, 17]] = -100
    head = head.to(device_of(backend))
    out = call(head.leaves(), TrimSFT(bandwidth=2.0), backend, skip_below=0)
    expected = exact(head.to("cpu"), TrimSFT(bandwidth=2.0))
    assert len(out.tokens) == out.kept == 14
    torch.testing.assert_close(out.tokens.gap.cpu().double(), expected.tokens.gap, rtol=0, atol=1e-4)
    torch.testing.assert_close(out.weights, TrimSFT(bandwidth=2.0).weights(out.tokens))
    assert out.tokens.entropy is None
    assert out.tokens.competitor.dtype == torch.int64
    for values in (out.tokens.nll, out.tokens.gap, out.tokens.gold_logit, out.weights):
        assert values.dtype == torch.float32 and values.shape == (14,) and not values.requires_grad


@pytest.mark.parametrize("backend", BACKENDS)
def test_objective_may_use_the_entropy(backend) -> None:
    def confident(tokens: TokenStats) -> torch.Tensor:
        return torch.exp(-tokens.entropy)

    head = make_head(12)
    assert_close(fused(head, confident, backend, entropy=True, skip_below=0), exact(head, confident))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
def test_labels_of_other_integer_types(backend, dtype) -> None:
    head = make_head(8)
    narrow = replace(head, labels=head.labels.to(dtype))
    assert torch.equal(fused(narrow, SFT(), backend).hidden, fused(head, SFT(), backend).hidden)


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
@pytest.mark.parametrize("normalizer", [5, 5.0, torch.tensor(5), torch.tensor([5.0])], ids=repr)
def test_loss_is_a_scalar_whatever_the_normalizer_is(normalizer, backend) -> None:
    head = make_head(5).to(device_of(backend)).leaves()
    loss = call(head, SFT(), backend, normalizer=normalizer).loss
    assert loss.shape == ()
    torch.testing.assert_close(loss, call(head, SFT(), backend).loss)


# ---- gradients asked for, or not


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wanted", [("hidden",), ("weight",), ("bias",), ("hidden", "bias"), ("weight", "bias")])
@pytest.mark.parametrize("skip_below", [0, 1e-3])
def test_frozen_inputs_get_no_gradient_and_the_others_the_right_one(skip_below, wanted, backend) -> None:
    head = make_head(8, bias=True)
    expected = exact(head, TrimSFT())
    head = head.to(device_of(backend)).leaves()
    for name in {"hidden", "weight", "bias"} - set(wanted):
        getattr(head, name).requires_grad_(False)
    call(head, TrimSFT(), backend, skip_below=skip_below).loss.backward()
    for name in ("hidden", "weight", "bias"):
        gradient = getattr(head, name).grad
        assert (gradient is not None) == (name in wanted)
        if gradient is not None:
            assert distance(gradient, getattr(expected, name)) < (2e-3 if skip_below else 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_statistics_only_without_gradients(backend) -> None:
    head = make_head(12)
    expected = exact(head, TrimSFT())
    with torch.no_grad():
        out = call(head.to(device_of(backend)).leaves(), TrimSFT(), backend)
    assert not out.loss.requires_grad
    assert distance(out.loss, expected.loss) < 1e-5
    torch.testing.assert_close(out.tokens.gap.cpu().double(), expected.tokens.gap, rtol=0, atol=1e-4)
    assert out.kept == 0  # as LossOutput says: nothing takes part in a backward pass


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("factor", [3.7, -1.0, 0.0])
def test_loss_may_be_scaled_before_the_backward_pass(factor, backend) -> None:
    head = make_head(6, bias=True)
    got, expected = fused(head, SFT(), backend, factor=factor), exact(head, SFT())
    for name in ("hidden", "weight", "bias"):
        torch.testing.assert_close(getattr(got, name), factor * getattr(expected, name), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_loss_may_be_one_term_of_a_larger_graph(backend) -> None:
    head = make_head(12)
    device = device_of(backend)

    def total(hidden, weight, labels, loss_of):
        inner = torch.tanh(hidden)
        return loss_of(Head(inner, weight, labels)) + 0.1 * inner.square().mean() + weight.square().mean()

    double, single = head.to(torch.float64).leaves(), head.to(device).leaves()
    total(double.hidden, double.weight, head.labels, lambda h: formula(h, DFT())[0]).backward()
    total(single.hidden, single.weight, single.labels, lambda h: call(h, DFT(), backend, skip_below=0).loss).backward()
    assert distance(single.hidden.grad, double.hidden.grad) < 1e-5
    assert distance(single.weight.grad, double.weight.grad) < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_scaled_float16_gradients_do_not_underflow(backend) -> None:
    """A millionth of a gradient is nothing in float16; times the loss scale it is something."""
    head = make_head(12, bias=True, dtype=torch.float16)
    expected = exact(head, SFT(), normalizer=1e6)
    got = fused(head, SFT(), backend, factor=65536.0, normalizer=1e6)
    for name in ("hidden", "weight", "bias"):
        assert getattr(got, name).norm() > 0
        assert distance(getattr(got, name), 65536.0 * getattr(expected, name)) < 1e-2, name


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
def test_autocast_is_what_it_is_for_torch_linear(backend) -> None:
    device = device_of(backend)
    head = make_head(20, bias=True, logit_size=6.0).to(device)
    ours, theirs = head.leaves(), head.leaves()
    with torch.autocast(device, torch.bfloat16):
        out = call(ours, SFT(), backend)
        logits = F.linear(theirs.hidden, theirs.weight, theirs.bias)
        loss = F.cross_entropy(logits.float(), theirs.labels)
    out.loss.backward()
    loss.backward()
    assert out.loss.dtype == torch.float32
    assert distance(out.loss, loss) < 1e-2
    rounded = exact(head.to("cpu").to(torch.bfloat16), SFT())
    torch.testing.assert_close(out.tokens.gap.cpu().double(), rounded.tokens.gap, rtol=0, atol=0.01)
    expected = exact(head.to("cpu"), SFT())
    for name in ("hidden", "weight", "bias"):
        gradient, right = getattr(ours, name).grad, getattr(expected, name)
        assert gradient.dtype == torch.float32
        assert 0 < distance(gradient, right) <= 1.5 * distance(getattr(theirs, name).grad, right)


# ---- second derivatives and torch.compile


@pytest.mark.parametrize("backend", ["chunked", "triton", "triton low_memory"])
def test_fused_backends_refuse_a_second_derivative(backend) -> None:
    head = make_head(6).to(device_of(backend)).leaves()
    out = call(head, SFT(), backend)
    with pytest.raises(RuntimeError, match=r"cannot be differentiated twice .*backend='reference'"):
        torch.autograd.grad(out.loss, head.hidden, create_graph=True)


@pytest.mark.parametrize("backend", ["chunked", "triton", "triton low_memory"])
def test_fused_backends_refuse_a_second_backward_pass(backend) -> None:
    head = make_head(6).to(device_of(backend)).leaves()
    out = call(head, SFT(), backend)
    out.loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"already used.*second call"):
        out.loss.backward()


@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True:UserWarning")
def test_reference_can_be_differentiated_twice() -> None:
    base = make_head(3, 4, 7, bias=True, dtype=torch.float64).leaves()

    def loss(hidden, weight, bias):
        return call(Head(hidden, weight, base.labels, bias), SFT(), "reference", softcap=5.0, skip_below=0).loss

    inputs = (base.hidden, base.weight, base.bias)
    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs)


class Tail(torch.nn.Module):
    """The end of a language model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.LayerNorm(32)
        self.head = torch.nn.Linear(32, 300)

    def forward(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        normed = self.norm(torch.tanh(hidden))
        out = linear_cross_entropy(normed, self.head.weight, labels, TrimSFTEasy(), bias=self.head.bias)
        return out.loss * 2 + normed.mean()


# dynamo looks at .grad of what it resumes with
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiling_the_module_around_the_head() -> None:
    head = make_head()
    results = []
    for wrap in (lambda module: module, lambda module: torch.compile(module, backend="eager")):
        module = Tail()
        loss = wrap(module)(head.hidden, head.labels)
        loss.backward()
        results.append((loss, *(parameter.grad for parameter in module.parameters())))
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager)


def test_import_loads_nothing_heavy() -> None:
    heavy = ("trl", "transformers", "vllm", "matplotlib", "triton", "datasets", "accelerate")
    code = f"import sys, trimsft; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- strides


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_that_are_a_column_or_one_value_expanded(backend) -> None:
    head = make_head(12)
    for labels in (torch.stack([head.labels, head.labels + 1], dim=1)[:, 0], head.labels[:1].expand(12)):
        strided = replace(head, labels=labels)
        expected = exact(replace(head, labels=labels.clone()), SFT())
        assert_close(fused(strided, SFT(), backend, skip_below=0), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bias_that_is_every_other_entry(backend) -> None:
    head = make_head(12, bias=True).to(device_of(backend))
    assert head.bias is not None
    strided = replace(head, bias=torch.stack([head.bias, -head.bias], dim=1)[:, 0])
    got, expected = (call(one, SFT(), backend) for one in (strided, head))
    torch.testing.assert_close(got.tokens.nll, expected.tokens.nll)


# ---- what a normalizer may be


@pytest.mark.parametrize("backend", BACKENDS)
def test_normalizer_of_zero_goes_with_nothing_to_train(backend) -> None:
    head = make_head(6)
    nothing = replace(head, labels=torch.full_like(head.labels, -100))
    assert fused(nothing, SFT(), backend, normalizer=0).loss == 0
    with pytest.raises(ValueError, match="normalizer: must be a number > 0"):
        fused(head, SFT(), backend, normalizer=0)


@pytest.mark.parametrize("backend", ["chunked", "triton", "triton low_memory"])
def test_float16_sums_do_not_overflow(backend) -> None:
    """4000 tokens of one label and hidden states of 20 add up to more than float16 holds, before the division."""
    tokens = 4000 if backend == "chunked" else 40
    hidden = torch.full((tokens, 8), 20.0 if backend == "chunked" else 2000.0).half()
    head = Head(hidden, torch.zeros(50, 8).half(), torch.zeros(tokens, dtype=torch.int64))
    got = fused(head, SFT(), backend, skip_below=0)
    torch.testing.assert_close(got.weight[0].float().cpu(), -0.98 * hidden[0].float(), rtol=2e-3, atol=0)
