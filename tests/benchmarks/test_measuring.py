"""The comparison of heads, on a shape for the CPU."""

import pytest
import torch

from benchmarks.measuring import METHODS, Method, Shape, chosen, compare


def test_a_comparison_goes_on() -> None:
    def load():
        raise ImportError("no module of that name")

    methods = [Method("absent", "sft", load), *chosen(METHODS, "TrimSFT, exact")]
    shape = Shape("tiny", 24, 16, 96)
    absent, exact = compare(shape, methods, device="cpu", dtype=torch.float32, seconds=0.001)
    assert absent.failed == "ImportError: no module of that name" and absent.milliseconds is None
    assert exact.ours and exact.kept == 1 and exact.milliseconds > 0 and exact.weight_error < 1e-5
    with pytest.raises(SystemExit, match=r"--only: 'no such' is part of no name; the names: .*AutoTrim"):
        chosen(METHODS, "no such")
