"""The model that a training begins with: whole, and computing what it computes elsewhere, soft caps included."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.tiny import make_model
from trimsft.errors import UsageError
from trimsft.models import load_model
from trimsft.train import TrimSFTConfig
from trimsft.train.trainer import load_base


@pytest.fixture
def capped(tmp_path: Path) -> Path:
    """A Gemma-2 whose attention scores are far above their cap."""
    model = make_model("gemma2", attn_logit_softcapping=0.05)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data.mul_(30)
    model.save_pretrained(tmp_path / "gemma")
    return tmp_path / "gemma"


def load(folder: Path, attention: str | None = None) -> Any:
    settings = TrimSFTConfig(str(folder / "run"), use_cpu=True, bf16=False, report_to="none")
    settings.model_init_kwargs = {"attn_implementation": attention, "dtype": "float32"}
    return load_base(str(folder), settings)[0]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.arange(3, 19)[None]).logits  # type: ignore[no-any-return]


def test_a_soft_cap_of_attention_is_not_left_out(capped: Path, caplog: pytest.LogCaptureFixture) -> None:
    right, by_default = logits(load(capped, "eager")), load(capped)
    torch.testing.assert_close(logits(by_default), right)
    torch.testing.assert_close(logits(load_model(capped, dtype=torch.float32)), right)
    assert by_default.config._attn_implementation == "eager"
    assert "which sdpa leaves out: it is eager" in caplog.text


def test_who_asks_for_sdpa_gets_it_and_is_told(capped: Path, caplog: pytest.LogCaptureFixture) -> None:
    uncapped = logits(load(capped, "sdpa"))
    assert "sdpa leaves that out" in caplog.text
    assert (uncapped - logits(load(capped, "eager"))).abs().max() > 0.1


def test_weights_that_are_damaged_are_refused(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + bytes(100))
    with pytest.raises(UsageError, match=r"cannot load '.*model': .*file not fully covered") as refused:
        load(tmp_path / "model")
    assert refused.value.field == "model_name_or_path"
