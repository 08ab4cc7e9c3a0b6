"""Texts that share a row: how they are laid out, and that each is computed as if it were alone, or refused."""

from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, GptOssConfig, Llama4TextConfig, OPTConfig, Qwen3_5TextConfig
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from tests.train.tiny import ARCHITECTURES, TEXTS, VOCABULARY, make_model, make_ours, make_trainer, record_batches
from trimsft.errors import UsageError
from trimsft.head import IGNORED
from trimsft.train import TrimSFTTrainer
from trimsft.train.batches import PackedRows
from trimsft.train.packed import PackedTexts, labels_between, with_others_changed

PACKED: dict[str, dict[str, Any]] = {
    "packing": {"packing": True, "max_length": 45},
    "padding_free": {"padding_free": True, "max_length": None},
}

# rows; that losses and gradients are TRL's is tested with those of all data -----------------------------------------


def test_packed_texts_stay_in_their_rows(tmp_path) -> None:
    trainer = make_ours(tmp_path, TEXTS, packing=True, max_length=40, per_device_train_batch_size=3)
    batches = record_batches(trainer)
    trainer.train()
    assert isinstance(trainer.data_collator, PackedRows)
    shapes = {tuple(batch["input_ids"].shape) for batch, _ in batches}
    assert max(rows for rows, _ in shapes) == 3 and max(width for _, width in shapes) <= 40
    assert all("attention_mask" not in batch for batch, _ in batches)  # positions say what belongs together
    assert any((batch["position_ids"][:, 1:] == 0).any() for batch, _ in batches)


class Packs:
    """What the trainer would do on a GPU."""

    args = SimpleNamespace(device=torch.device("cuda"), packing=True, max_length=40)
    padding_free = True

    def __init__(self) -> None:
        self.model, self.looks_left, self.packed_texts = make_model(), True, PackedTexts(self)


def test_on_a_gpu_packed_rows_are_of_one_length() -> None:
    collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    trainer = Packs()
    rows = [{"input_ids": [5] * 30, "seq_lengths": [10, 20]}, {"input_ids": [6] * 25, "seq_lengths": [25]}]
    batch = trainer.packed_texts.collator(collator)(rows)
    assert batch["input_ids"].shape == (2, 40) and not trainer.padding_free
    assert batch["labels"][0, [0, 10]].tolist() == [-100, -100] and (batch["labels"] == 5).sum() == 28
    assert "attention_mask" not in batch  # texts are found by their positions


# each text as if it were alone --------------------------------------------------------------------------------------

SIZE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1,
}  # fmt: skip
LAYERS = {"intermediate_size": 48, "num_key_value_heads": 1, "head_dim": 16}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"}
LINEAR: dict[str, Any] = {f"linear_num_{name}_heads": 2 for name in ("key", "value")}
LINEAR |= {f"linear_{name}_head_dim": 8 for name in ("key", "value")}
MIXED = {"layer_types": ["linear_attention", "full_attention"]}
OTHERS: dict[str, Any] = {
    "opt": lambda: OPTConfig(**SIZE, word_embed_proj_dim=32, ffn_dim=48),
    "gpt-oss": lambda: GptOssConfig(**SIZE, **LAYERS, **EXPERTS),
    "falcon h1": ARCHITECTURES["falcon_h1"],  # a state
    "bloom": lambda: BloomConfig(**SIZE),
    "qwen3.5": lambda: Qwen3_5TextConfig(**SIZE, **LAYERS, **LINEAR, **MIXED),
    "llama4": lambda: Llama4TextConfig(
        **SIZE, **LAYERS, **EXPERTS, intermediate_size_mlp=48, attention_chunk_size=48,
        layer_types=["chunked_attention", "full_attention"],
    ),
}  # fmt: skip


def make_other(kind: str) -> Any:
    """A small model of a kind that does not tell packed texts apart, or not always."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(OTHERS[kind](), dtype=torch.float32)
    model.generation_config.eos_token_id = 1
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.data.normal_(0, 0.15)  # as of a trained model: at random they say next to nothing
    return model


@pytest.mark.parametrize("field", PACKED)
@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_that_does_not_tell_texts_of_a_row_apart_is_refused(kind, field, tmp_path) -> None:
    """OPT, Bloom and GPT-OSS do not look for them, recurrent layers of a CPU go on, and chunks begin with the row (here
    rows have 49 tokens and more)."""
    model = make_other(kind)
    trainer = make_trainer(TrimSFTTrainer, model, tmp_path, TEXTS, per_device_train_batch_size=8, **PACKED[field])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UsageError, match=f"^{field}: {type(model).__name__} would not tell the texts of a row apart"):
        trainer.train()
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_trying_changes_nothing_of_a_training(kind, tmp_path) -> None:
    """With dropout, which must be the same in both passes."""
    trainers = []
    for tried in (True, False):
        model = make_model(kind, attention_dropout=0.5)
        options = {"objective": "auto-trim", "skip_below": None, **PACKED["packing"]}
        trainer = make_trainer(TrimSFTTrainer, model, tmp_path / str(tried), TEXTS, **options)
        trainer.packed_texts.are_apart = not tried
        trainer.train()
        assert trainer.packed_texts.are_apart
        trainers.append(trainer)
    for got, expected in zip(trainers[0].grads, trainers[1].grads, strict=True):
        assert all(torch.equal(got[name], expected[name]) for name in expected)


# prompts that are learned -------------------------------------------------------------------------------------------

PROMPTS: dict[str, Any] = {
    "prompt tuning": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "prefix tuning": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "p-tuning": lambda: peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=16),
}


@pytest.mark.parametrize("field", PACKED)
@pytest.mark.parametrize("make", PROMPTS.values(), ids=PROMPTS)
def test_a_prompt_that_is_learned_has_no_place_in_packed_rows(make, field, tmp_path) -> None:
    with pytest.raises(UsageError, match=f"^{field}: puts a prompt that is learned before the first text of a row"):
        make_ours(tmp_path, TEXTS, {"peft_config": make()}, **PACKED[field])


# the trial itself --------------------------------------------------------------------------------------------------


def test_texts_beside_those_compared_are_changed_and_the_first_is_moved() -> None:
    batch = {
        "input_ids": torch.tensor([[11, 12, 13, 21, 22, 31], [14, 15, 23, 24, 25, 0]]),
        "position_ids": torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 0, 1, 2, 0]]),
    }
    none = IGNORED
    batch["labels"] = labels_between(batch)
    assert batch["labels"].tolist() == [[none, none, none, none, 22, none], [none, none, none, 24, 25, none]]
    moved = with_others_changed(batch)
    assert moved["input_ids"].tolist() == [[21, 22, 14, 0, 25, 24], [23, 24, 25, 11, 31, 22]]
    assert moved["labels"].tolist() == [[none, 22, none, none, none, none], [none, 24, 25, none, none, none]]
    assert moved["position_ids"].tolist() == [[0, 1, 0, 0, 1, 2], [0, 1, 2, 0, 0, 1]]


def test_kernels_are_told_where_moved_texts_begin() -> None:
    """As TRL's collator would have told them."""
    collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    texts = [[11, 12, 13], [21, 22], [31, 32, 33, 34]]
    batch = collator([{"input_ids": text} for text in texts])
    expected = collator([{"input_ids": text} for text in (texts[1], [21, 13, 12, 11], [34, 33, 32])])
    moved = with_others_changed(batch)
    assert moved.keys() == expected.keys()
    for name, value in expected.items():
        if name == "labels":  # of the others, as they were
            value = torch.cat([batch[name][:, 3:], batch[name][:, :3]], dim=1)
        assert torch.equal(torch.as_tensor(moved[name]), torch.as_tensor(value)), name
        assert getattr(moved[name], "dtype", int) == getattr(value, "dtype", int)
