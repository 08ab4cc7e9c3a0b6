"""How much the head may hold, and that a head with little room computes the same."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trimsft import DFT, TrimSFT
from trimsft.head import memory
from trimsft.head import triton_solver as solver
from trimsft.head.problem import Problem

from .oracle import assert_close, distance, exact, fused, make_head

GIB = 2**30
QWEN = (151_936, 1536)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, small_chunks: None) -> Any:
    """Gives logit gradients room for so many rows of 300; returns the list of the matrices of logits that were made."""

    def limit(rows: int) -> list[int]:
        monkeypatch.setattr(solver, "room_for_logit_gradients", lambda *_, **__: rows * 4 * 320)
        monkeypatch.setattr(solver.Solver, "_matrix", lambda self, rows: made.append(rows) or make(self, rows))
        return made

    made: list[int] = []
    make = solver.Solver._matrix
    return limit


def test_little_room_is_computed_in_parts(room) -> None:
    head, options = make_head(20, bias=True), {"logit_scale": 0.7, "softcap": 8.0}
    made = room(10)
    got = fused(head, TrimSFT(), "triton", skip_below=0, entropy=True, **options)
    assert max(made) <= 10 and got.kept == 20
    assert_close(got, exact(head, TrimSFT(), **options))


def test_half_precision_adds_up_in_float32(room) -> None:
    head = make_head(17, dtype=torch.bfloat16)
    objective: Any = lambda tokens: 0.5 * tokens.prob  # noqa: E731
    whole = fused(head, objective, "triton", low_memory=False)
    made = room(5)
    got = fused(head, objective, "triton")
    assert max(made) <= 10  # rows of half the size
    assert torch.equal(got.hidden, whole.hidden) and torch.equal(got.tokens.gap, whole.tokens.gap)
    assert distance(got.weight, whole.weight) < torch.finfo(torch.bfloat16).eps  # of two roundings of equal sums


@pytest.mark.filterwarnings("error")  # torch would enlarge a view that is too small, and warn
@pytest.mark.parametrize("most", [12, 16, 23, 30])
def test_out_of_memory_is_computed_again(most: int, monkeypatch, small_chunks) -> None:
    """Nothing is skipped and the buffer holds a part of the rows only; the rows of 300 logits have padding."""
    make = solver.Solver._matrix

    def limited(self: solver.Solver, rows: int) -> torch.Tensor:
        if rows > most:
            raise torch.OutOfMemoryError
        return make(self, rows)

    head = make_head(40)
    monkeypatch.setattr(solver.Solver, "_matrix", limited)
    got = fused(head, DFT(), "triton", skip_below=0, low_memory=False)
    assert got.kept == 40
    assert_close(got, exact(head, DFT()))


def test_kept_rows_beyond_the_room_are_computed_again(room) -> None:
    head = make_head(24)
    objective, options = TrimSFT(bandwidth=2.0), {"skip_below": 1e-3}
    whole = fused(head, objective, "triton", low_memory=False, **options)
    made = room(9)
    got = fused(head, objective, "triton", **options)
    assert max(made) <= 9 < got.kept == whole.kept < 24
    assert_close(got, replace(whole, rounding=exact(head, objective).rounding))


# ---- how much room there is


def room_beside(held: float, tokens: int, weight: tuple[int, int] = QWEN, *, device: float = 80) -> Any:
    """Room for logit gradients in GiB, where `held` of a device's GiB are in use."""
    allocated = {"allocated_bytes": {"all": {"current": int(held * GIB)}}}
    properties = SimpleNamespace(total_memory=int(device * GIB))
    with pytest.MonkeyPatch.context() as patched, FakeTensorMode():
        patched.setattr(torch.cuda.memory, "memory_stats_as_nested_dict", lambda device: allocated)
        patched.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        hidden, matrix = (
            torch.empty(*size, dtype=torch.bfloat16, device="cuda") for size in ((tokens, weight[1]), weight)
        )
        problem = Problem(
            hidden_TH=hidden, weight_VH=matrix, bias_V=None, labels_T=hidden, objective=DFT(), wants_weight=True
        )
        room = memory.room_for_logit_gradients(problem)
        return None if room is None else room / GIB


@pytest.mark.parametrize("tokens", [8192, 16_384, 32_768])
def test_a_step_takes_less_than_two_percent_more_memory(tokens) -> None:
    held = 8.63 + 5.56 * tokens / 2048  # of a step in docs/performance.md, in GiB
    gradient, hidden = 2 * 151_936 * 1536 / GIB, 2 * 1536 * tokens / GIB
    others = held + 3 * (gradient + hidden) + 0.25  # and logits of 4096 x 32,768
    assert held + gradient + 3 * hidden + room_beside(held, tokens) < 1.02 * others
    assert room_beside(held, tokens) > 2 * gradient + 0.25


def test_an_eighth_of_an_empty_device_may_be_used() -> None:
    gradients = 2 * (151_936 + 3 * 32_768) * 1536 / GIB
    assert room_beside(2, 32_768) == pytest.approx(10 - 2 - gradients)
    assert room_beside(4, 32_768) == pytest.approx(10 - 4 - gradients)
    assert room_beside(10, 32_768) == room_beside(10, 32_768, device=10) < 1.5


def test_deterministic_torch_has_the_same_room_whatever_is_held() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        rooms = [room_beside(held, 32_768, device=device) for held, device in ((1, 80), (10, 80), (20, 140))]
    finally:
        torch.use_deterministic_algorithms(False)
    assert rooms == pytest.approx([4 * 151_936 * 1536 / GIB + 0.25] * 3)
