"""A patched model: loss, statistics and gradients of the plain formula on its own logits."""

import copy
import inspect
from typing import Any

import peft
import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.modeling_outputs import CausalLMOutputWithPast

from tests.train.tiny import (
    ARCHITECTURES,
    BAND,
    LOSS_ERROR,
    OBJECTIVES,
    KeepsGradients,
    assert_same_gradients,
    gradients_of,
    make_batch,
    make_config,
    make_model,
    plain_loss,
    plain_step,
    unpatched,
)
from trimsft import DFT, SFT, TrimSFT
from trimsft.train import TrimCallback, TrimOutput, patch, unpatch

TRIM = TrimSFT(**BAND)


def patched(objective: Any = TRIM, **settings: Any) -> tuple[Any, dict[str, Tensor]]:
    """A patched model, and a batch for it."""
    return patch(make_model(), objective, **settings), make_batch()


# every objective on one model, every model with one of them in turn
CASES = [("llama", objective) for objective in OBJECTIVES]
CASES += [(kind, OBJECTIVES[-1 - number % len(OBJECTIVES)]) for number, kind in enumerate(ARCHITECTURES)]


@pytest.mark.parametrize(("kind", "objective"), CASES, ids=lambda value: getattr(type(value), "__name__", value))
def test_equals_the_formula_on_the_logits_of_the_model(kind, objective) -> None:
    model = make_model(kind, dtype=torch.float64)
    batch = make_batch()
    # half of the labels are what the model predicts, so that gaps lie on both sides of 0
    with torch.no_grad():
        guesses = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits.argmax(dim=-1).roll(1, 1)
    guessed = (torch.arange(batch["labels"].shape[1]) % 2 == 0) & (batch["labels"] != -100)
    batch["labels"] = torch.where(guessed, guesses, batch["labels"])

    plain_model = unpatched(model)
    outputs = plain_model(batch["input_ids"], attention_mask=batch["attention_mask"])
    expected = plain_loss(outputs.logits, batch["labels"], objective)
    total = expected.loss
    if kind == "mixtral":
        total = total + plain_model.config.router_aux_loss_coef * outputs.aux_loss
    total.backward()

    got = patch(model, objective, skip_below=0.0, entropy=True)(**batch)
    got.loss.backward()
    assert (got.tokens.gap > 0).any() and (got.tokens.gap < 0).any()
    torch.testing.assert_close(got.loss, total, rtol=1e-6, atol=0)
    torch.testing.assert_close(got.token_loss, expected.loss, rtol=1e-6, atol=0)
    # statistics are float32: one part in 10^7 of logits below 50
    for name in ("nll", "gap", "gold_logit", "entropy"):
        value, exact = getattr(got.tokens, name), getattr(expected.tokens, name)
        torch.testing.assert_close(value.double(), exact, rtol=0, atol=1e-5)
    assert torch.equal(got.tokens.competitor, expected.tokens.competitor)
    torch.testing.assert_close(got.weights.double(), expected.weights.double(), rtol=0, atol=1e-5)
    assert torch.equal(got.labels, batch["labels"][:, 1:][batch["labels"][:, 1:] != -100])
    assert_same_gradients(gradients_of(model), gradients_of(plain_model))


def test_shift_labels_are_not_shifted_again() -> None:
    model, batch = patched(skip_below=0.0)
    labels = batch.pop("labels")
    expected = model(**batch, labels=labels)
    already = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    for given in ({"shift_labels": already}, {"shift_labels": already, "labels": labels}):
        assert torch.equal(model(**batch, **given).loss, expected.loss)


def test_token_weights_multiply_and_a_weight_of_0_is_a_label_that_is_ignored() -> None:
    model, batch = patched(skip_below=0.0)
    trained = batch["labels"] != -100
    given = torch.where(trained & (torch.arange(trained.shape[1]) % 3 == 0), 0.0, 2.0)
    got = model(**batch, token_weights=given)
    expected = model(**{**batch, "labels": batch["labels"].masked_fill(given == 0, -100)})
    assert torch.equal(got.labels, expected.labels) and len(got.labels) < int(trained[:, 1:].sum())
    torch.testing.assert_close(got.loss, 2 * expected.loss)


@pytest.mark.parametrize("kind", ["llama tied", "gemma2", "mixtral"])
def test_without_labels_the_model_is_what_it_was(kind, tmp_path) -> None:
    model, batch = make_model(kind).eval(), make_batch()
    plain = unpatched(model)
    patch(model, TRIM)
    model(**batch)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    expected = plain(**inputs).logits
    assert torch.equal(model(**inputs).logits, expected)
    last = [each(**inputs, logits_to_keep=2).logits for each in (model, plain)]
    assert torch.equal(*last) and last[0].shape[1] == 2
    generated = [m.generate(inputs["input_ids"][:1], max_new_tokens=5, do_sample=False) for m in (model, plain)]
    assert torch.equal(*generated)
    assert inspect.signature(model.forward) == inspect.signature(plain.forward)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert not hasattr(again, "trimsft_head")
    assert torch.equal(again(**inputs).logits, expected)
    assert isinstance(again(**batch), type(plain(**batch)))


def test_a_patched_model_can_be_copied() -> None:
    """Its copy is patched as well, and computes with its own weights."""
    model, batch = patched(skip_below=0.0)
    twin = copy.deepcopy(model)
    expected = model(**batch).loss.item()
    with torch.no_grad():
        twin.lm_head.weight.zero_()
    assert torch.all(twin(batch["input_ids"]).logits == 0)
    assert twin(**batch).tokens.gap.abs().max().item() == 0
    assert model(**batch).loss.item() == expected


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
@pytest.mark.parametrize("by_callback", [False, True])
def test_transformers_own_trainer_normalises_over_the_accumulated_batch(by_callback, tmp_path) -> None:
    rows = [make_batch(1, length, seed=length) for length in (4, 40, 7, 15)]
    lists = [{name: value[0].tolist() for name, value in row.items()} for row in rows]
    model, keeps, by_name = make_model(), KeepsGradients(), TrimCallback("dft", skip_below=0.0)
    plain = unpatched(model)
    callbacks = [keeps, by_name] if by_callback else [keeps]
    if not by_callback:
        patch(model, DFT(), skip_below=0.0)
    args = make_config(TrainingArguments, tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=4)
    trainer = Trainer(model, args, train_dataset=Dataset.from_list(lists), callbacks=callbacks)
    trainer.train()
    loss, gradients = plain_step(plain, rows, DFT())
    assert trainer.state.log_history[0]["loss"] == pytest.approx(loss, rel=LOSS_ERROR)
    assert_same_gradients(keeps.steps[0], gradients)
    assert isinstance(model(**rows[0]), TrimOutput) != by_callback  # which gives the model back


class Louder(LlamaForCausalLM):
    """Its configuration does not say what it does to its logits."""

    def forward(self, *args: Any, **kwargs: Any) -> CausalLMOutputWithPast:
        outputs = super().forward(*args, **kwargs)
        outputs.logits = outputs.logits * 2
        return outputs


@pytest.mark.parametrize(("kind", "says"), [(Louder, "{} changes its logits in a way trimsft does not know")])
def test_a_head_that_cannot_be_stood_in_for_is_refused(kind, says) -> None:
    model = patch(kind(make_model().config), TRIM)
    for _ in range(2):  # not only once
        with pytest.raises(NotImplementedError, match=says.format(kind.__name__)):
            model(**make_batch())


class NormHead(nn.Linear):
    """As Baichuan 2 and others have it."""

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, nn.functional.normalize(self.weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_head_that_is_no_plain_product_is_refused(dtype) -> None:
    model, batch = make_model(dtype=dtype), make_batch()
    plain = model.lm_head
    for kind, is_plain in ((NormHead, False), (type("OwnHead", (nn.Linear,), {"forward": nn.Linear.forward}), True)):
        model.lm_head = kind(*plain.weight.shape[::-1], bias=False, dtype=dtype)
        model.lm_head.weight = plain.weight
        if is_plain:
            assert patch(model, TRIM)(**batch).loss > 0
        else:
            with pytest.raises(NotImplementedError, match=r"output embedding \(NormHead\) does not return hidden @"):
                patch(model, TRIM)(**batch)
    unpatch(model).lm_head.forward = lambda hidden: 2 * nn.Linear.forward(model.lm_head, hidden)
    with pytest.raises(NotImplementedError, match="does not return hidden @ weight"):
        patch(model, TRIM)(**batch)


def test_labels_by_position_are_refused() -> None:
    model, batch = patched()
    before = (batch["input_ids"], batch["attention_mask"], None, None, None)
    with pytest.raises(TypeError, match="labels: a patched model takes five arguments by position at most"):
        model(*before, batch["labels"])
    assert torch.equal(model(*before, labels=batch["labels"]).loss, model(**batch).loss)
    assert unpatch(model)(*before, batch["labels"]).loss > 0


def test_an_adapter_on_the_head_is_refused_and_one_elsewhere_is_not() -> None:
    refusal = "target_modules: a PEFT adapter on lm_head is not supported"
    with pytest.raises(ValueError, match=refusal):
        patch(peft.get_peft_model(make_model(), peft.LoraConfig(target_modules=["q_proj", "lm_head"])), TRIM)
    afterwards = peft.get_peft_model(patch(make_model(), SFT()), peft.LoraConfig(target_modules=["lm_head"]))
    with pytest.raises(ValueError, match=refusal):
        afterwards(**make_batch())
    model = peft.get_peft_model(make_model(), peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"]))
    patch(model, TRIM, skip_below=0.0)(**make_batch()).loss.backward()
    trained = {name for name, value in gradients_of(model).items() if value.abs().sum() > 0}
    assert {name.rsplit(".", 2)[-2] for name in trained} == {"default"}
    assert any("lm_head" in name for name in trained)
