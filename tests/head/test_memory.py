"""How much the head may hold, and that a head with little room computes the same."""

from typing import Any

import pytest
import torch

from trimsft import DFT, TrimSFT
from trimsft.head import triton_solver as solver

from .oracle import assert_close, distance, exact, fused, make_head


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
