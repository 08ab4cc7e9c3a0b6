"""A training computes attention without cuDNN, and leaves torch as it was."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from tests.train.tiny import make_ours


@pytest.mark.parametrize("allowed", [True, False])
def test_a_training_does_without_cudnn_attention(allowed: bool, tmp_path: Path) -> None:
    seen = []

    class Looks(TrainerCallback):
        def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
            seen.append(torch.backends.cuda.cudnn_sdp_enabled())

        on_step_end = on_substep_end

    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed)
    try:
        make_ours(tmp_path, options={"callbacks": [Looks()]}).train()
        assert seen and not any(seen)
        assert torch.backends.cuda.cudnn_sdp_enabled() is allowed
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
