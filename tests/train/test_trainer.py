"""TrimSFTTrainer: with objective="sft" it is SFTTrainer; with another it is the loop one would write by hand."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import EarlyStoppingCallback, EvalPrediction
from trl import SFTConfig, SFTTrainer

from tests.train.tiny import (
    BAND,
    CHATS,
    LOSS_ERROR,
    MESSAGES,
    PAIRS,
    TEXTS,
    assert_same_gradients,
    logged,
    make_config,
    make_model,
    make_ours,
    make_tokenizer,
    make_trainer,
    plain_step,
    record_batches,
    unpatched,
)
from trimsft import DFT, TokenStats, TrimSFT
from trimsft.errors import UsageError
from trimsft.train import TrimSFTConfig, TrimSFTTrainer
from trimsft.train.trainer import load_base

PACKED = {"packing": True, "max_length": 40}
TOKENS = [
    {"input_ids": list(range(5, 5 + length)), "labels": [-100, -100, *range(7, 5 + length)]} for length in (4, 9, 20, 6)
]


def train_both(
    folder: Path, rows: Any, options: dict[str, Any] | None = None, kind: str = "llama", **settings: Any
) -> tuple[Any, Any]:
    """SFTTrainer and TrimSFTTrainer with objective="sft", from the same weights."""
    plain = make_trainer(SFTTrainer, make_model(kind), folder / "plain", rows, options, **settings)
    ours = make_trainer(TrimSFTTrainer, make_model(kind), folder / "ours", rows, options, objective="sft", **settings)
    plain.train()
    ours.train()
    return plain, ours


def assert_same_training(ours: Any, plain: Any) -> None:
    assert len(plain.grads) == len(ours.grads) == 2
    assert logged(ours, "loss") == pytest.approx(logged(plain, "loss"), rel=LOSS_ERROR)
    assert logged(ours, "num_tokens") == logged(plain, "num_tokens")
    for got, expected in zip(ours.grads, plain.grads, strict=True):
        assert_same_gradients(got, expected)


DATA = {
    "text": (TEXTS, {}),
    "text truncated": (TEXTS, {"max_length": 10}),
    "prompt and completion": (PAIRS, {}),
    "prompt trained too": (PAIRS, {"completion_only_loss": False}),
    "messages": (MESSAGES, {}),
    "assistant only": (MESSAGES, {"assistant_only_loss": True}),
    "conversational prompt and completion": (CHATS, {}),
    "tokenised": (TOKENS, {}),
    "packed": (TEXTS, PACKED),
    "wrapped": (MESSAGES, PACKED | {"packing_strategy": "wrapped", "max_length": 20}),
    "padding-free": (PAIRS, {"padding_free": True, "max_length": None}),
    "accumulated": (PAIRS, {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}),
    "gradient checkpointing": (PAIRS, {"gradient_checkpointing": True}),
    "clipped": (PAIRS, {"weight_decay": 0.1, "optim": "adamw_torch", "max_grad_norm": 0.5}),
}


@pytest.mark.parametrize(("rows", "settings"), DATA.values(), ids=DATA)
def test_sft_is_sfttrainer_for_all_data(rows, settings, tmp_path) -> None:
    plain, ours = train_both(tmp_path, rows, **settings)
    assert_same_training(ours, plain)
    assert ours.train_dataset.to_list() == plain.train_dataset.to_list()


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gemma2", "granite", "mixtral"])
def test_sft_is_sfttrainer_for_all_models(kind, tmp_path) -> None:
    plain, ours = train_both(tmp_path, PAIRS, kind=kind, gradient_accumulation_steps=3)
    assert_same_training(ours, plain)
    if kind == "mixtral":
        assert logged(ours, "aux_loss") == pytest.approx(logged(plain, "aux_loss"), rel=LOSS_ERROR)
        # the loss logged is the total, and the router's part is no small one
        assert logged(ours, "loss")[0] > logged(ours, "nll")[0] + 0.1


LORA = {"target_modules": ["q_proj", "down_proj"], "r": 4}


@pytest.mark.parametrize(
    ("adapter", "trained"),
    [
        (peft.LoraConfig(**LORA), 8),
        (peft.LoraConfig(**LORA, modules_to_save=["lm_head"]), 9),
        # virtual tokens come before the row: hidden states and labels grow by as many
        (peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), 1),
    ],
    ids=["lora", "lora with a trained lm_head", "prompt tuning"],
)
def test_sft_is_sfttrainer_with_an_adapter(adapter, trained, tmp_path) -> None:
    recomputed = isinstance(adapter, peft.LoraConfig)
    plain, ours = train_both(tmp_path, PAIRS, {"peft_config": adapter}, gradient_checkpointing=recomputed)
    assert_same_training(ours, plain)
    assert len(ours.grads[0]) == trained


def test_sft_is_sfttrainer_in_evaluation(tmp_path) -> None:
    options = {"eval_dataset": {"one": Dataset.from_list(PAIRS[:3]), "two": Dataset.from_list(PAIRS[2:])}}
    plain, ours = train_both(tmp_path, PAIRS, options, eval_strategy="steps", eval_steps=1)
    assert_same_training(ours, plain)
    for name in ("eval_one_loss", "eval_two_loss"):
        assert len(logged(ours, name)) == 2
        assert logged(ours, name) == pytest.approx(logged(plain, name), rel=LOSS_ERROR)


@pytest.mark.parametrize(
    ("options", "settings"), [({"compute_loss_func": abs}, {}), ({}, {"label_smoothing_factor": 0.2})]
)
def test_another_loss_has_no_place_beside_an_objective(options, settings, tmp_path) -> None:
    (name,) = {**options, **settings}
    with pytest.raises(UsageError, match=f"{name}: would replace the objective; use trl.SFTTrainer for it"):
        make_ours(tmp_path, PAIRS, options, objective="sft", **settings)


def sure(tokens: TokenStats) -> Tensor:
    return (tokens.gap + 6).clamp(0, 1)


@pytest.mark.parametrize(
    ("kind", "objective", "settings", "options"),
    [
        ("llama", TrimSFT(**BAND), {}, {}),
        ("qwen3", TrimSFT(**BAND), {"gradient_checkpointing": True}, {}),
        ("gemma2", DFT(), {"objective": "trim"}, {"objective": "dft"}),
        ("llama", sure, {}, {"objective": sure}),
        ("llama", TrimSFT(margin=-3, bandwidth=2), {}, {"objective": TrimSFT(margin=-3, bandwidth=2)}),
    ],
)
def test_it_is_the_loop_written_by_hand(kind, objective, settings, options, tmp_path) -> None:
    trainer = make_trainer(TrimSFTTrainer, make_model(kind), tmp_path, PAIRS, options, **settings)
    plain = unpatched(trainer.model).train()
    optimizer = torch.optim.SGD(plain.parameters(), lr=trainer.args.learning_rate)
    batches = record_batches(trainer)
    trainer.train()
    assert len(batches) == 4
    for step in range(2):
        micro_batches = [batch for batch, _ in batches[2 * step : 2 * step + 2]]
        loss, gradients = plain_step(plain, micro_batches, objective)
        optimizer.step()
        assert logged(trainer, "loss")[step] == pytest.approx(loss, rel=LOSS_ERROR)
        assert_same_gradients(trainer.grads[step], gradients)
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(
            dict(trainer.model.named_parameters())[name], weight, rtol=LOSS_ERROR, atol=LOSS_ERROR
        )


@pytest.mark.parametrize("settings", [{}, {"bf16": True}, {"gradient_checkpointing": True}], ids=str)
def test_the_model_of_the_user_is_given_back(settings, tmp_path) -> None:
    """After each training, evaluation and failure; and the trainer can go on."""
    options = {"eval_dataset": Dataset.from_list(PAIRS[:2])}
    trainer = make_ours(tmp_path, options=options, max_steps=1, **settings)
    ids = torch.arange(5, 17)[None]

    def assert_plain() -> None:
        expected, given = unpatched(trainer.model)(ids, labels=ids), trainer.model(ids, labels=ids)
        assert type(given) is type(expected) and not hasattr(trainer.model, "trimsft_head")
        # accelerate leaves its autocast in the model
        assert given.loss.item() == pytest.approx(expected.loss.item(), rel=0.01 if settings.get("bf16") else 1e-6)
        assert given.logits.shape == expected.logits.shape

    assert_plain()
    before = trainer.evaluate()
    assert_plain()
    trainer.train()
    assert_plain()
    assert trainer.evaluate()["eval_weighted_loss"] != before["eval_weighted_loss"]
    trainer.training_step = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert_plain()


BEST = {
    "max_steps": 3, "save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1,
    "load_best_model_at_end": True,
}  # fmt: skip


def test_a_model_that_has_left_the_band_is_not_the_best(tmp_path) -> None:
    """Its weighted loss is 0, since no token has a weight."""
    stops = EarlyStoppingCallback(early_stopping_patience=1)
    options = {"eval_dataset": Dataset.from_list(PAIRS[:2]), "callbacks": [stops]}
    warm_up = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 1}
    trainer = make_ours(tmp_path, options=options, **BEST | warm_up, learning_rate=1e3)
    trainer.train()
    nll, loss = logged(trainer, "eval_nll"), logged(trainer, "eval_loss")
    assert len(nll) == 2 and nll[1] > nll[0] + 50 and loss[1] < loss[0]
    assert trainer.state.best_global_step == 1 and trainer.evaluate()["eval_nll"] == pytest.approx(nll[0])


def test_arguments_of_a_parent_class_are_taken_over(tmp_path, caplog) -> None:
    config = make_config(SFTConfig, tmp_path, learning_rate=0.25, max_length=9, hub_token="secret")
    rows = Dataset.from_list(PAIRS)
    trainer = TrimSFTTrainer(make_model(), config, train_dataset=rows, processing_class=make_tokenizer())
    args = trainer.args
    assert type(args) is TrimSFTConfig
    assert (args.learning_rate, args.max_length, args.hub_token) == (0.25, 9, "secret")
    assert trainer.objective == TrimSFT(margin=1.5, bandwidth=0.8)
    assert "objective: 'trim', the default, which SFTConfig does not name" in caplog.text


def test_what_truncation_costs_is_said(tmp_path, caplog) -> None:
    trainer = make_ours(tmp_path, TEXTS, max_length=40)
    assert "train data: " in caplog.text and "max_length=40 cuts 1 row by 5 tokens" in caplog.text
    assert max(map(len, trainer.train_dataset["input_ids"])) == 40
    # a row that keeps nothing goes
    rows = [{"prompt": " ".join(["w1"] * 12), "completion": " w2"}, *PAIRS]
    trainer = make_ours(tmp_path, rows, max_length=12)
    assert trainer.length_reports["train"].dropped == 1 and len(trainer.train_dataset) == len(PAIRS)


def test_a_non_finite_weight_names_the_place(tmp_path) -> None:
    trainer = make_ours(tmp_path)
    seen = record_batches(trainer)

    def spoil(*_: Any) -> None:
        if len(seen) == 3:  # of two a step
            trainer.model.lm_head.weight.data[0, 0] = torch.nan

    trainer.model.register_forward_pre_hook(spoil)
    with pytest.raises(FloatingPointError, match=r"step 2, rank 0: non-finite logits at \d+ of \d+"):
        trainer.train()


def test_a_soft_cap_of_attention_is_not_left_out(tmp_path, caplog) -> None:
    make_model("gemma2").save_pretrained(tmp_path / "model")
    settings = make_config(TrimSFTConfig, tmp_path)
    for asked in (None, "sdpa"):
        settings.model_init_kwargs = {"attn_implementation": asked, "dtype": "float32"}
        assert load_base(str(tmp_path / "model"), settings).config._attn_implementation == "eager"
        assert "which sdpa leaves out: it is eager" in caplog.text


def train_one(folder: Path, rows: Any, size: int, accumulated: int, **settings: Any) -> tuple[Any, Any]:
    """A trainer after its training, and the weights it began with."""
    settings = {"max_steps": 1, "max_length": None} | settings
    sizes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}
    trainer = make_ours(folder, rows, **sizes, **settings)
    before = unpatched(trainer.model).train()
    trainer.batches = record_batches(trainer)
    trainer.train()
    return trainer, before


PARTS = (
    (4, 2, {}), (2, 4, {}), (1, 8, {}), (4, 2, {"padding_free": True}),
    (1, 16, {"packing": True, "max_length": 60, "shuffle_dataset": False}),
)  # fmt: skip


@pytest.mark.parametrize("objective", ["sft", "trim"])
def test_one_batch_of_eight_however_it_is_cut(objective, tmp_path) -> None:
    whole, before = train_one(tmp_path, PAIRS, 8, 1, objective=objective)
    [(batch, _)] = whole.batches
    loss, gradients = plain_step(before, [batch], whole.objective)
    assert logged(whole, "loss") == pytest.approx([loss], rel=LOSS_ERROR)
    assert_same_gradients(whole.grads[0], gradients)
    for size, accumulated, settings in PARTS:
        parts, before = train_one(tmp_path, PAIRS, size, accumulated, objective=objective, **settings)
        assert 1 < len(parts.batches) <= accumulated
        assert logged(parts, "loss") == pytest.approx([loss], rel=LOSS_ERROR)
        assert logged(parts, "weighted_loss") == pytest.approx([loss], rel=LOSS_ERROR)
        assert_same_gradients(parts.grads[0], gradients)


def row(length: int, ignored: int) -> dict[str, list[int]]:
    ids = list(range(10, 10 + length))
    return {"input_ids": ids, "labels": [-100] * ignored + ids[ignored:]}


def test_a_step_without_a_trained_token(tmp_path) -> None:
    """TRL agrees."""
    rows = [row(9, 9), row(5, 5)]
    plain = make_trainer(SFTTrainer, make_model(), tmp_path, rows, max_steps=1, max_length=None)
    plain.train()
    for objective in ("sft", "trim"):
        trainer, before = train_one(tmp_path, rows, 1, 2, objective=objective)
        for name, value in (("loss", [0.0]), ("num_tokens", [14])):
            assert logged(trainer, name) == logged(plain, name) == value
        assert all(torch.all(gradient == 0) for gradient in trainer.grads[0].values())
        assert not logged(trainer, "nll") and not logged(trainer, "trained_tokens")
        for name, weight in before.named_parameters():
            assert torch.equal(trainer.model.get_parameter(name), weight)


@pytest.mark.filterwarnings("ignore:`return_outputs=True`:FutureWarning")
@pytest.mark.parametrize("objective", ["sft", "trim"])
def test_compute_metrics_sees_the_logits(objective, tmp_path) -> None:
    def metrics(prediction: EvalPrediction) -> dict[str, float]:
        return {"sum": float(abs(prediction.predictions).sum()), "labels": float(prediction.label_ids.sum())}

    options = {"compute_metrics": metrics, "eval_dataset": Dataset.from_list(PAIRS)}
    plain = make_trainer(SFTTrainer, make_model(), tmp_path, PAIRS, options)
    ours = make_ours(tmp_path, PAIRS, options, objective=objective)
    expected, got = plain.evaluate(), ours.evaluate()
    assert got["eval_sum"] == pytest.approx(expected["eval_sum"], rel=1e-6) and got["eval_sum"] > 0
    assert got["eval_labels"] == expected["eval_labels"]
    assert (got["eval_loss"] == pytest.approx(expected["eval_loss"], rel=LOSS_ERROR)) == (objective == "sft")


def test_a_last_step_with_fewer_micro_batches(tmp_path) -> None:
    """Eight rows, two at a time, three times a step: the second step has one micro-batch."""
    trainer, before = train_one(tmp_path, PAIRS, 2, 3, max_steps=2, learning_rate=0.0)
    batches = [batch for batch, _ in trainer.batches]
    assert len(batches) == 4
    for step, micro_batches in enumerate((batches[:3], batches[3:])):
        loss, gradients = plain_step(before, micro_batches, trainer.objective)
        assert logged(trainer, "loss")[step] == pytest.approx(loss, rel=LOSS_ERROR)
        assert_same_gradients(trainer.grads[step], gradients)
