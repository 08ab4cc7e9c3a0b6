"""Which batches have their attention computed by cuDNN."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from tests.train.tiny import make_ours
from trimsft.train import cudnn
from trimsft.train.cudnn import GAIN, PLAN_SECONDS, CudnnChoice

UNITS = 28 * 1536


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)


def chosen(choice: CudnnChoice, rows: int, length: int, **how: bool) -> bool:
    choice.choose(rows, length, **{"masked": False, **how})
    return torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(("rows", "length", "after"), [(16, 2048, 4), (4, 2048, 16), (1, 2048, 64), (4, 300, 700)])
def test_a_shape_gets_a_plan_when_it_has_lost_as_much_without(rows, length, after) -> None:
    choice = CudnnChoice(UNITS)
    with choice.in_charge():
        found = [chosen(choice, rows, length) for _ in range(2 * after)]
    assert found.index(True) == pytest.approx(after, rel=0.15)
    assert all(found[found.index(True) :])
    assert found.index(True) * GAIN * UNITS * rows * length**2 <= PLAN_SECONDS


def test_an_evaluation_loses_less_without_a_plan() -> None:
    choice = CudnnChoice(UNITS)
    with choice.in_charge():
        found = [chosen(choice, 16, 2048, trains=False) for _ in range(20)]
    assert found.index(True) == pytest.approx(12, rel=0.1)


def test_shapes_are_told_apart() -> None:
    choice = CudnnChoice(UNITS)
    with choice.in_charge():
        assert [chosen(choice, 16, 2048) for _ in range(8)][-1]
        assert not chosen(choice, 16, 2047) and not chosen(choice, 15, 2048)
        assert chosen(choice, 16, 2048)


def test_without_known_sizes_every_shape_gets_a_plan() -> None:
    choice = CudnnChoice(float("inf"))
    with choice.in_charge():
        assert chosen(choice, 1, 1)


def test_compiled_layers_and_deterministic_runs_have_one_kernel_from_the_start() -> None:
    compiled, plain = CudnnChoice(UNITS, is_compiled=True), CudnnChoice(UNITS)
    with compiled.in_charge():
        assert chosen(compiled, 1, 10)
    torch.use_deterministic_algorithms(True)
    try:
        with plain.in_charge():
            assert chosen(plain, 1, 10)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("length", "breaks", "compiled", "allowed"),
    [
        (192, True, False, False),
        (192, False, False, True),
        (191, True, False, True),
        (128, True, False, True),
        (128, True, True, False),  # compiled for this length, it may meet others
        (128, False, True, True),
    ],
)
def test_with_a_mask_it_is_left_out_where_it_breaks(length, breaks, compiled, allowed, monkeypatch) -> None:
    monkeypatch.setattr(cudnn, "breaks_with_mask", lambda: breaks)
    choice = CudnnChoice(UNITS, is_compiled=compiled)
    with choice.in_charge():
        assert chosen(choice, 2, length, masked=True) is allowed
        assert chosen(choice, 2, length, masked=True, trains=False)  # its gradients alone are wrong
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_what_the_user_forbids_stays_forbidden() -> None:
    torch.backends.cuda.enable_cudnn_sdp(False)
    choice = CudnnChoice(float("inf"))
    with choice.in_charge():
        assert not chosen(choice, 16, 2048)
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_a_training_leaves_it_as_it_was(tmp_path) -> None:
    found = []

    class Chooses(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            trainer._cudnn.choose(1, 10, masked=False)
            found.append(torch.backends.cuda.cudnn_sdp_enabled())

    trainer = make_ours(tmp_path, options={"callbacks": [Chooses()]})
    trainer.train()
    assert found == [False, False]
    assert torch.backends.cuda.cudnn_sdp_enabled()
