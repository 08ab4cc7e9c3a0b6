"""What bad input gets: an error that names the argument, the value, and what would be right."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from trimsft import SFT, TrimSFT, linear_cross_entropy
from trimsft.errors import WrongArgument
from trimsft.head import IGNORED

from .oracle import BACKENDS, call, device_of, make_head

HIDDEN, WEIGHT, LABELS = torch.randn(4, 8), torch.randn(10, 8), torch.tensor([1, 2, 3, 4])
INPUTS = {"hidden": HIDDEN, "weight": WEIGHT, "labels": LABELS}


def refused(message: str, kind: type[Exception] = ValueError, device: str = "", **changes: Any) -> None:
    given = {"objective": SFT(), **INPUTS, **changes}
    moved = {name: value.to(device) if device and name in INPUTS else value for name, value in given.items()}
    with pytest.raises(kind, match=message):
        linear_cross_entropy(**moved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": WEIGHT.T}, r"^weight: must be .* of shape \(8, 8\), got .* \(8, 10\)"),
        ({"labels": torch.tensor([IGNORED, -7, 1, 99])}, r"2 of 3 .*first -7 at position 1"),
        ({"bias": torch.zeros(9)}, r"^bias: must be float32 of shape \(10,\), got .* of shape \(9,"),
        ({"token_weights": torch.ones(3)}, r"^token_weights: .* of shape \(4,\), got .* \(3,\)"),
        ({"backend": "liger"}, "^backend: unknown name 'liger'; known: auto, reference, chunked, triton$"),
        ({"backend": "chunked", "low_memory": True}, "^low_memory: has no effect with backend='chunked'"),
        *(
            ({name: value}, f"^{name}: must be a number > 0, got {value!r}")
            for name in ("normalizer", "logit_scale", "softcap")
            for value in (0, -0.5, math.nan, math.inf)
        ),
        ({"skip_below": -1e-9}, "^skip_below: must be a number >= 0, got -1e-09"),
    ],
)
def test_wrong_arguments_are_named(changes, message) -> None:
    refused(message, **changes)


WEIGHTS = [
    (lambda tokens: torch.ones(3), r"\(shape \(4,\)\), got torch.float32 of shape \(3,\)"),
    (lambda tokens: torch.ones_like(tokens.competitor), "got torch.int64"),
    (lambda tokens: None, "NoneType"),
]


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
def test_labels_and_weights_seen_by_a_backend(backend) -> None:
    device = device_of(backend)
    for value, position in ((10, 2), (-1, 0), (10**12, 3)):
        labels = LABELS.clone()
        labels[position] = value
        message = rf"^labels: 1 of 4 .*\(0 to 9; ignore_index is -100\), first {value} at position {position}$"
        refused(message, device=device, backend=backend, labels=labels)
    for weights, got in WEIGHTS:
        message = rf"(?s)^objective .* must return one floating-point or boolean weight per token.*{got}"
        refused(message, WrongArgument, device=device, backend=backend, objective=weights)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_normalizer_on_the_device_is_above_0(value, backend) -> None:
    """As Trainer gives the number of items in a batch."""
    head = make_head(2, 8, 20).to(device_of(backend)).leaves()
    normalizer = torch.tensor(value, device=device_of(backend))
    message = f"^normalizer: must be a number > 0, got {value!r} with 2 tokens"
    with pytest.raises(ValueError, match=message):
        call(head, SFT(), backend, normalizer=normalizer)
    nothing = replace(head, labels=torch.full_like(head.labels, IGNORED))
    assert call(nothing, SFT(), backend, normalizer=normalizer).loss == 0  # of no token it is no matter


def calm(tokens):
    return tokens.gap.clamp_(-1, 1)


def hasty(tokens):
    tokens[1:].nll.mul_(2)
    return torch.ones_like(tokens.nll)


@pytest.mark.parametrize(("objective", "backend"), [(calm, "reference"), (hasty, "chunked"), (calm, "triton")])
def test_tokens_changed_in_place_are_refused(objective, backend) -> None:
    head = make_head(4).to(device_of(backend)).leaves()
    with pytest.raises(WrongArgument, match=rf"objective .*{objective.__name__}.* changed its tokens in place"):
        call(head, objective, backend)


def broken(tokens):
    return torch.full_like(tokens.nll, math.inf)


def not_finite() -> Iterator[tuple[Any, ...]]:
    """Heads with logits that are not finite, and one with such an objective or weights."""
    head = make_head(6, bias=True)
    head.labels[2] = IGNORED
    some = r"non-finite logits at 2 of 5 trained tokens \(first: token 2\)"
    for value in (math.nan, math.inf):
        yield replace(head, hidden=head.hidden.index_fill(0, torch.tensor([3, 5]), value)), SFT(), {}, some
    large = replace(head, hidden=head.hidden * 1e25, weight=head.weight * 1e20)
    for row in (0, 150, 299):
        yield replace(head, weight=head.weight.index_fill(0, torch.tensor(row), math.nan)), TrimSFT(), {}, "at 5 of 5"
    yield large, TrimSFT(), {}, "non-finite logits at 5 of 5 trained tokens"
    yield head, broken, {}, "^objective .*broken.* returned a weight that is not finite"
    weights = torch.tensor([1.0, 1.0, 1.0, math.nan, 1.0, 1.0])
    yield head, SFT(), {"token_weights": weights}, "^token_weights: must be finite at every trained token"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gradients", [True, False])
def test_what_is_not_finite_is_named(gradients, backend) -> None:
    for head, objective, options, message in not_finite():
        on_device = {name: value.to(device_of(backend)) for name, value in options.items()}
        with torch.set_grad_enabled(gradients), pytest.raises((FloatingPointError, ValueError), match=message):
            call(head.to(device_of(backend)).leaves(), objective, backend, **on_device)
