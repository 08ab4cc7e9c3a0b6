"""What callers may do with linear_cross_entropy: degenerate batches, frozen parameters, scaling, autocast, compile."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from trimsft import DFT, SFT, TrimSFT
from trimsft.head import IGNORED

from . import oracle
from .oracle import BACKENDS, FUSED, Head, call, device_of, distance, exact, fused, make_head

SOLVERS = ["reference", "chunked", "triton"]  # where low memory makes no difference


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((0,), torch.float32), ((2, 0), torch.bfloat16), ((5,), torch.bfloat16), ((2, 3), torch.float32)],
    ids=["empty", "empty 2-D", "ignored", "ignored 2-D"],
)
def test_nothing_to_train(shape, dtype, backend) -> None:
    base = make_head(bias=True, dtype=dtype)
    hidden = torch.full((*shape, 32), torch.nan, dtype=dtype)  # padding may hold anything
    head = Head(hidden, base.weight, torch.full(shape, IGNORED), base.bias).to(device_of(backend)).leaves()
    out = call(head, TrimSFT(), backend, entropy=True, normalizer=0)
    assert out.loss.item() == 0.0 and out.loss.shape == () and out.loss.dtype == torch.float32
    assert len(out.tokens) == len(out.weights) == len(out.tokens.entropy) == out.kept == 0
    out.loss.backward()
    for leaf in (head.hidden, head.weight, head.bias):
        assert leaf.grad is not None and leaf.grad.shape == leaf.shape
        assert (leaf.grad == 0).all()


@pytest.mark.parametrize("gradients", [True, False], ids=["training", "no_grad"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_statistics_are_detached_and_in_order(backend, gradients) -> None:
    head = make_head(6, seed=1)
    head.labels[[0, 3]] = IGNORED
    expected = exact(head, TrimSFT(bandwidth=2.0))
    with torch.set_grad_enabled(gradients):
        out = call(head.to(device_of(backend)).leaves(), TrimSFT(bandwidth=2.0), backend, skip_below=0)
    assert len(out.tokens) == 4 and out.loss.requires_grad == gradients
    assert out.kept == (4 if gradients else 0)  # as LossOutput says: rows that take part in a backward pass
    assert distance(out.loss, expected.loss) < expected.rounding
    torch.testing.assert_close(out.tokens.gap.cpu().double(), expected.tokens.gap, rtol=0, atol=expected.rounding)
    torch.testing.assert_close(out.weights, TrimSFT(bandwidth=2.0).weights(out.tokens))
    assert out.tokens.entropy is None
    assert out.tokens.competitor.dtype == out.labels.dtype == torch.int64
    for values in (out.tokens.nll, out.tokens.gap, out.tokens.gold_logit, out.weights):
        assert values.dtype == torch.float32 and values.shape == (4,) and not values.requires_grad


@pytest.mark.parametrize("backend", SOLVERS)
def test_labels_of_other_types_and_strides(backend) -> None:
    head = make_head(4, bias=True)
    expected = fused(head, SFT(), backend)
    column = torch.stack([head.labels, head.labels + 1], dim=1)[:, 0]
    for labels in (head.labels.to(torch.int16), head.labels.to(torch.int32), column):
        assert torch.equal(fused(replace(head, labels=labels), SFT(), backend).hidden, expected.hidden)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("wanted", "skip_below"),
    [(("hidden",), 0), (("weight",), 1e-3), (("bias",), 0), (("hidden", "bias"), 1e-3), (("weight", "bias"), 0)],
)
def test_frozen_inputs_get_no_gradient(wanted, skip_below, backend) -> None:
    head = make_head(4, bias=True)
    expected = exact(head, TrimSFT())
    head = head.to(device_of(backend)).leaves()
    for name in {"hidden", "weight", "bias"} - set(wanted):
        getattr(head, name).requires_grad_(False)
    call(head, TrimSFT(), backend, skip_below=skip_below).loss.backward()
    for name in ("hidden", "weight", "bias"):
        gradient = getattr(head, name).grad
        assert (gradient is not None) == (name in wanted)
        if gradient is not None:
            allowed = 2e-3 if skip_below else expected.rounding  # what skipping may cost at most
            assert distance(gradient, getattr(expected, name)) < allowed


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_scale_with_the_loss(backend) -> None:
    head = make_head(4, bias=True)
    expected = exact(head, DFT())
    for factor in (-3.7, 0.0):
        got = fused(head, DFT(), backend, factor=factor, skip_below=0)
        for name in ("hidden", "weight", "bias"):
            right = getattr(expected, name)
            assert (getattr(got, name) - factor * right).norm() <= abs(factor) * expected.rounding * right.norm()


@pytest.mark.parametrize("backend", BACKENDS)
def test_range_of_float16(backend) -> None:
    """A millionth of a gradient is nothing in float16; times the loss scale it is something."""
    head = make_head(4, bias=True, dtype=torch.float16)
    expected = exact(head, SFT(), normalizer=1e6)
    got = fused(head, SFT(), backend, factor=65536.0, normalizer=1e6)
    for name in ("hidden", "weight", "bias"):
        # a float16 gradient is rounded to 11 bits at each of a few steps
        assert distance(getattr(got, name), 65536.0 * getattr(expected, name)) < 2**-9, name
    # tokens of one label add up to more than the 65504 that float16 holds, before the division
    tokens, size = (4000, 20.0) if backend in ("reference", "chunked") else (6, 16000.0)
    hidden = torch.full((tokens, 8), size).half()
    large = Head(hidden, torch.zeros(50, 8).half(), torch.zeros(tokens, dtype=torch.int64))
    if backend != "reference":
        weight = fused(large, SFT(), backend, skip_below=0).weight
        torch.testing.assert_close(weight[0].float(), -0.98 * hidden[0].float(), rtol=2**-9, atol=0)


@pytest.mark.parametrize("backend", SOLVERS)
def test_autocast_as_in_torch(backend) -> None:
    device = device_of(backend)
    head = make_head(10, bias=True, logit_size=6.0).to(device)
    ours, theirs = head.leaves(), head.leaves()
    with torch.autocast(device, torch.bfloat16):
        out = call(ours, SFT(), backend)
        logits = F.linear(theirs.hidden, theirs.weight, theirs.bias)
        loss = F.cross_entropy(logits.float(), theirs.labels)
    out.loss.backward()
    loss.backward()
    assert out.loss.dtype == torch.float32
    assert distance(out.loss, loss) < torch.finfo(torch.bfloat16).eps  # the logits of each are rounded once
    rounded = exact(head.to("cpu").to(torch.bfloat16), SFT())
    torch.testing.assert_close(out.tokens.gap.cpu().double(), rounded.tokens.gap, rtol=0, atol=rounded.rounding)
    expected = exact(head.to("cpu"), SFT())
    for name in ("hidden", "weight", "bias"):
        gradient, right = getattr(ours, name).grad, getattr(expected, name)
        assert gradient.dtype == torch.float32
        assert 0 < distance(gradient, right) <= oracle.HALF_PRECISION * distance(getattr(theirs, name).grad, right)


@pytest.mark.parametrize("backend", FUSED)
def test_a_second_backward_is_refused(backend) -> None:
    head = make_head(2).to(device_of(backend)).leaves()
    out = call(head, SFT(), backend)
    with pytest.raises(RuntimeError, match=r"cannot be differentiated twice .*backend='reference'"):
        torch.autograd.grad(out.loss, head.hidden, create_graph=True)
    out = call(head, SFT(), backend)
    out.loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"already used.*second call"):
        out.loss.backward()
