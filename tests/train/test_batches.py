"""Rows beside TRL's forms; texts that share a row; batches without a mask."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
from datasets import Dataset, IterableDataset
from transformers import AutoModelForCausalLM, Llama4TextConfig, OPTConfig, TrainerCallback
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from tests.data.toys import ROWS, make_tokenizer
from tests.train.tiny import (
    ARCHITECTURES,
    BAND,
    LOSS_ERROR,
    SIZE,
    TEXTS,
    assert_same_gradients,
    gradients_of,
    make_batch,
    make_model,
    make_ours,
    make_trainer,
)
from trimsft import TrimSFT
from trimsft.data.encode import encode
from trimsft.data.load import DataConfig
from trimsft.errors import DataError, UsageError
from trimsft.train import TrimSFTTrainer, batches, patch
from trimsft.train.batches import is_causal, looks_left, with_mask_if_needed

CHAT = (
    "{% for m in messages %}[{{ m['role'] }}]{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<end>"
    "{% endgeneration %}{% else %}{{ m['content'] }}<end>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
ALPACA = [{"instruction": row["problem"], "input": "", "output": row["solution"]} for row in ROWS]
SHAREGPT = [
    {"conversations": [{"from": "human", "value": row["problem"]}, {"from": "gpt", "value": row["solution"]}]}
    for row in ROWS
]


def trainer_of(tmp_path: Any, rows: Any, options: Any = None, **settings: Any) -> TrimSFTTrainer:
    tokenizer, settings = make_tokenizer(chat=CHAT), {"max_length": None, **settings}
    options = {"processing_class": tokenizer, **(options or {})}
    return make_trainer(TrimSFTTrainer, make_model(vocab_size=len(tokenizer)), tmp_path, rows, options, **settings)


def columns(dataset: Any) -> tuple[list[Any], list[Any]]:
    return dataset["input_ids"][:], dataset["labels"][:]


def as_the_commands_do() -> tuple[list[Any], list[Any]]:
    return columns(encode(Dataset.from_list(ROWS), make_tokenizer(chat=CHAT), DataConfig("d")))


@pytest.mark.parametrize("rows", [ROWS, ALPACA], ids=["problem-solution", "alpaca"])
def test_problems_and_solutions_become_what_the_commands_make_of_them(rows, tmp_path) -> None:
    several = {"one": Dataset.from_list(ROWS[:2]), "two": Dataset.from_list(ALPACA[:3])}
    trainer = trainer_of(tmp_path, [{**row, "id": 1} for row in rows], {"eval_dataset": several}, max_steps=1)
    assert columns(trainer.train_dataset) == as_the_commands_do()
    assert trainer.length_reports["train"].rows == len(ROWS)
    assert {name: len(part) for name, part in trainer.eval_dataset.items()} == {"one": 2, "two": 3}
    assert trainer.train().training_loss > 0
    assert trainer.evaluate(Dataset.from_list(rows[:2]))["eval_loss"] > 0


@pytest.mark.parametrize("rows", [ROWS, ALPACA, SHAREGPT], ids=["problem-solution", "alpaca", "sharegpt"])
def test_a_stream_is_what_its_rows_are(rows, tmp_path) -> None:
    stream = IterableDataset.from_generator(lambda: iter(rows))  # which does not say its columns
    read = list(trainer_of(tmp_path, stream, max_steps=1).train_dataset)
    held = columns(trainer_of(tmp_path, rows).train_dataset)
    assert ([row["input_ids"] for row in read], [row["labels"] for row in read]) == held


def test_what_trl_takes_stays_trls(tmp_path) -> None:
    rows = [{**row, "text": "the sum"} for row in ROWS]
    trained = trainer_of(tmp_path, rows).train_dataset
    assert make_tokenizer().decode(trained[0]["labels"]) == "the sum<eos>"
    written = trainer_of(tmp_path, ROWS, {"formatting_func": lambda row: row["solution"]}).train_dataset
    assert make_tokenizer().decode(written[0]["labels"]) == ROWS[0]["solution"] + "<eos>"


def test_rows_of_no_known_form(tmp_path) -> None:
    says = "train_dataset: has rows with the columns q, a, which are of no form that is known; known: problem"
    with pytest.raises(DataError, match=says):
        trainer_of(tmp_path, [{"q": "1", "a": "2"}])


PACKED: dict[str, dict[str, Any]] = {
    "packing": {"packing": True, "max_length": 45},
    "padding_free": {"padding_free": True, "max_length": None},
}


# each text as if it were alone --------------------------------------------------------------------------------------

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"}
OTHERS: dict[str, Any] = {
    "opt": lambda: OPTConfig(**SIZE, word_embed_proj_dim=32, ffn_dim=48),
    "falcon h1": ARCHITECTURES["falcon_h1"],  # a state
    "llama4": lambda: Llama4TextConfig(
        **SIZE, **EXPERTS, head_dim=16, intermediate_size_mlp=48, attention_chunk_size=48,
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
            weight.data.normal_(0, 0.15)  # as of a trained model
    return model


@pytest.mark.parametrize("field", PACKED)
@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_that_does_not_tell_texts_of_a_row_apart_is_refused(kind, field, tmp_path) -> None:
    """OPT does not look for them, recurrent layers of a CPU go on, and chunks begin with the row (49 tokens)."""
    model = make_other(kind)
    trainer = make_trainer(TrimSFTTrainer, model, tmp_path, TEXTS, per_device_train_batch_size=8, **PACKED[field])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UsageError, match=f"^{field}: {type(model).__name__} would not tell the texts of a row apart"):
        trainer.train()
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


CAUSAL = [kind for kind in ARCHITECTURES if is_causal(make_model(kind))]


def step(model: Any, batch: dict[str, Any]) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model(**batch).token_loss
    loss.backward()
    return loss.item(), gradients_of(model)


@pytest.mark.parametrize("kind", CAUSAL)
def test_no_trained_token_sees_padding_on_the_right(kind) -> None:
    model, batch = patch(make_model(kind), TrimSFT(**BAND), skip_below=0.0), make_batch(rows=6)
    expected_loss, expected = step(model, batch)
    mask = batch.pop("attention_mask")
    assert not mask.all()
    batch["input_ids"] = torch.where(mask.bool(), batch["input_ids"], 7)  # whatever stands there
    with batches._not_packed():
        loss, found = step(model, batch)
    assert loss == pytest.approx(expected_loss, rel=LOSS_ERROR)
    assert_same_gradients(found, expected)


class OnCuda:
    """What the trainer would do on a GPU."""

    def __init__(
        self, model: Any, collator: Any = None, aux_loss: bool = False, context_parallel: bool = False
    ) -> None:
        self.model = model.train()
        self.args = SimpleNamespace(device=torch.device("cuda"), packing=True, padding_free=False, max_length=40)
        self.data_collator = collator or DataCollatorForLanguageModeling(pad_token_id=0)
        self.padding_free = getattr(self.data_collator, "padding_free", False)
        self.accelerator = SimpleNamespace(parallelism_config=SimpleNamespace(cp_enabled=context_parallel))
        self.aux_loss_enabled = aux_loss
        self.looks_left = looks_left(self)


def test_a_batch_of_trls_collator_goes_without_a_mask_on_a_gpu() -> None:
    batch = make_batch()
    given, context = with_mask_if_needed(batch, OnCuda(make_model()))
    assert set(batch) - set(given) == {"attention_mask"}
    assert not isinstance(context, nullcontext)


class PadsLeft(DataCollatorForLanguageModeling):  # type: ignore[misc]
    pass


def with_prefix() -> Any:
    return peft.get_peft_model(make_model(), peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))


@pytest.mark.parametrize(
    "trainer",
    [
        lambda: OnCuda(make_model(), PadsLeft(pad_token_id=0)),
        lambda: OnCuda(make_model("mixtral"), aux_loss=True),
        lambda: OnCuda(make_model(), context_parallel=True),
        lambda: OnCuda(with_prefix()),
    ],
    ids=["another collator", "loss of a router", "context parallel", "prefix"],
)
def test_a_mask_that_may_matter_stays(trainer) -> None:
    batch = make_batch()
    given, context = with_mask_if_needed(batch, trainer())
    assert given is batch and isinstance(context, nullcontext)


def test_a_training_does_without_cudnn_attention_and_leaves_torch_as_it_was(tmp_path) -> None:
    seen, allowed = [], torch.backends.cuda.cudnn_sdp_enabled()

    class Looks(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seen.append(torch.backends.cuda.cudnn_sdp_enabled())

    make_ours(tmp_path, options={"callbacks": [Looks()]}).train()
    assert seen and not any(seen) and torch.backends.cuda.cudnn_sdp_enabled() is allowed
