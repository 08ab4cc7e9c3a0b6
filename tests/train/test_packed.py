"""Texts that share a row: a model that lets them see each other is refused, whatever the reason."""

from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch
from torch._dynamo.utils import counters
from transformers import GptOssConfig, MiniMaxConfig, OPTConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from tests.train.tiny import TEXTS, VOCABULARY, make_model, make_trainer
from trimsft.errors import UsageError
from trimsft.head import IGNORED
from trimsft.train import TrimSFTTrainer
from trimsft.train.packed import MOST_CHANGE, labels_between, relative, with_others_replaced

PACKED = {"packing": True, "max_length": 40}
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
MORE = {"num_key_value_heads": 1, "intermediate_size": 48, "head_dim": 16, "pad_token_id": 0, "eos_token_id": 1}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"}


def build(config: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def make_opt() -> Any:
    return build(OPTConfig(**SIZE, word_embed_proj_dim=32, ffn_dim=48, max_position_embeddings=256, pad_token_id=0))


SEE_EACH_OTHER: dict[str, Callable[[], Any]] = {
    "no positions in its mask": make_opt,
    "the same, with eager attention": lambda: build(GptOssConfig(**SIZE, **MORE, **EXPERTS)),
    "linear attention": lambda: build(MiniMaxConfig(**SIZE, **MORE, **EXPERTS)),
    "a state": lambda: make_model("falcon_h1"),
}


@pytest.mark.parametrize("kind", SEE_EACH_OTHER)
def test_a_model_whose_texts_see_each_other_is_refused(kind, tmp_path) -> None:
    model = SEE_EACH_OTHER[kind]()
    trainer = make_trainer(TrimSFTTrainer, model, tmp_path, TEXTS, **PACKED)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UsageError, match=f"^packing: texts of a row would see each other in {type(model).__name__}"):
        trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_so_it_is_without_packing_where_rows_are_joined(tmp_path) -> None:
    trainer = make_trainer(TrimSFTTrainer, make_opt(), tmp_path, TEXTS, padding_free=True, max_length=None)
    with pytest.raises(UsageError, match=r"^padding_free: texts of a row would see each other"):
        trainer.train()


@pytest.mark.filterwarnings("ignore::FutureWarning")  # TRL's, of label smoothing
def test_so_it_is_with_an_adapter_and_another_loss(tmp_path) -> None:
    options = {"peft_config": peft.LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")}
    settings = {**PACKED, "objective": "sft", "label_smoothing_factor": 0.1}
    trainer = make_trainer(TrimSFTTrainer, make_opt(), tmp_path, TEXTS, options, **settings)
    with pytest.raises(UsageError, match=r"^packing: texts of a row would see each other in OPTForCausalLM with sdpa"):
        trainer.train()


def test_positions_of_a_collator_of_your_own_are_no_packed_texts(tmp_path) -> None:
    trainer = make_trainer(TrimSFTTrainer, make_opt(), tmp_path, TEXTS, per_device_train_batch_size=1)
    inner = trainer.data_collator

    def collate(rows: Any) -> dict[str, torch.Tensor]:
        batch = inner(rows)
        batch["position_ids"] = batch.pop("attention_mask").cumsum(dim=1) - 1
        return batch

    trainer.data_collator = collate
    trainer.train()
    assert len(trainer.grads) == 2


@pytest.mark.parametrize("kind", ["llama", "qwen3 moe", "gemma2"])
def test_trying_changes_nothing_of_a_training(kind, tmp_path) -> None:
    """Neither random numbers, nor what AutoTrim has seen; with dropout, which must be the same in both passes."""
    trainers = []
    for tried in (True, False):
        model = make_model(kind, attention_dropout=0.5)
        options = {"objective": "auto-trim", "skip_below": None, **PACKED}
        trainer = make_trainer(TrimSFTTrainer, model, tmp_path / str(tried), TEXTS, **options)
        trainer._are_apart = not tried
        trainer.train()
        assert trainer._are_apart
        trainers.append(trainer)
    for got, expected in zip(trainers[0].grads, trainers[1].grads, strict=True):
        assert all(torch.equal(got[name], expected[name]) for name in expected)
    assert str(trainers[0].objective) == str(trainers[1].objective)


def test_it_is_asked_until_a_row_has_two_texts(tmp_path) -> None:
    trainer = make_trainer(TrimSFTTrainer, make_opt(), tmp_path, TEXTS, **PACKED)
    ids = torch.arange(3, 23).view(2, 10)
    alone = {"input_ids": ids, "position_ids": torch.arange(10).expand(2, 10)}
    shared = {"input_ids": ids, "position_ids": torch.cat([torch.arange(4), torch.arange(6)]).expand(2, 10)}
    trainer.model.train()
    with trainer._fused():
        trainer._require_texts_apart(trainer.model, alone)
        assert not trainer._are_apart
        with pytest.raises(UsageError, match="see each other"):
            trainer._require_texts_apart(trainer.model, shared)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo's way does not hide it from pytest
def test_compiled_layers_are_not_compiled_for_it(tmp_path) -> None:
    traced: list[int] = []
    settings = {**PACKED, "torch_compile": True, "torch_compile_backend": "eager", "max_steps": 1}
    trainer = make_trainer(TrimSFTTrainer, make_model(), tmp_path, TEXTS, **settings)
    require = trainer._require_texts_apart

    def counted(model: Any, batch: Any) -> None:
        before = counters["frames"]["total"]
        require(model, batch)
        traced.append(counters["frames"]["total"] - before)

    torch.compiler.reset()
    counters.clear()
    trainer._require_texts_apart = counted
    trainer.train()
    assert trainer._are_apart and set(traced) == {0}
    assert counters["frames"]["total"] > 0


def test_every_other_text_is_replaced_and_those_between_are_compared() -> None:
    batch = {
        "input_ids": torch.tensor([[11, 12, 13, 21, 22, 31], [14, 15, 23, 24, 25, 0]]),
        "position_ids": torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 0, 1, 2, 0]]),
    }
    none = IGNORED
    assert labels_between(batch).tolist() == [[none, none, none, none, 22, none], [none, none, none, 24, 25, none]]
    assert with_others_replaced(batch).tolist() == [[0, 25, 24, 21, 22, 14], [31, 22, 23, 24, 25, 11]]


def test_the_change_is_in_units_of_the_spread() -> None:
    # tokens of 1, 3, 5 and 7 nats: a standard deviation of sqrt(5); of two beginnings one moves by 1, another by 2
    change = torch.tensor([1.0, 2.0, 3.0, 4.0, 16.0, 84.0])
    assert relative(change) == pytest.approx(0.75 / 5**0.5) and relative(change) > MOST_CHANGE
    assert relative(torch.tensor([1.0, 1.0, 1.0, 4.0, 16.0, 84.0])) == pytest.approx(1 / 5**0.5)
    assert relative(torch.tensor([0.0, 2.0, 0.0, 4.0, 4.0, 4.0])) == 0.0  # all alike, and nothing moves
