"""Token tables are of the logits that the model makes: adapters and heads that do more than multiply."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.tokens import tiny
from trimsft.errors import UsageError
from trimsft.models import load_model
from trimsft.tokens.forward import Reader
from trimsft.tokens.write import write_token_table


def adapted(folder: Path, out: Path, **changes: Any) -> Path:
    """The folder of a LoRA whose parts are all random."""
    lora = LoraConfig(r=2, init_lora_weights=False, **changes)
    model = get_peft_model(load_model(folder, dtype=torch.float32), lora)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        for weight in model.parameters():
            if weight.requires_grad:
                weight.normal_(0, 0.3)
    model.save_pretrained(out, save_embedding_layers=False)
    tiny.make_tokenizer().save_pretrained(out)
    return out


def test_an_adapter_on_the_head_is_refused(folder: Path, tmp_path: Path) -> None:
    adapter = adapted(folder, tmp_path / "adapter", target_modules=["lm_head"])
    with pytest.raises(UsageError, match=r"adapter on lm_head.*merge it first: trimsft export") as refused:
        write_token_table(str(adapter), tiny.ROWS, tmp_path / "tokens.parquet")
    assert refused.value.field == "model" and not (tmp_path / "tokens.parquet").exists()


def test_a_head_that_was_trained_beside_an_adapter_counts(folder: Path, tmp_path: Path) -> None:
    settings = {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}
    model = load_model(adapted(folder, tmp_path / "adapter", **settings), dtype=torch.float32)
    reader = Reader(model)
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        hidden, logits = reader.hidden_states(ids, None), model(ids).logits
    torch.testing.assert_close(hidden @ reader.head.weight.T, logits)
