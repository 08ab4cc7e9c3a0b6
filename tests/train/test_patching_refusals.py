"""What `patch` refuses: models, heads and calls whose fused loss would be wrong."""

from typing import Any

import peft
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, LlamaForCausalLM, T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import CausalLMOutputWithPast

from tests.train.tiny import BAND, gradients_of, make_batch, make_model
from trimsft import SFT, TrimSFT
from trimsft.train import patch, unpatch

TRIM = TrimSFT(**BAND)


def patched(objective: Any = TRIM, **settings: Any) -> tuple[Any, dict[str, Tensor]]:
    """A patched model, and a batch for it."""
    return patch(make_model(), objective, **settings), make_batch()


class Louder(LlamaForCausalLM):
    """Its configuration does not say what it does to its logits."""

    def forward(self, *args: Any, **kwargs: Any) -> CausalLMOutputWithPast:
        outputs = super().forward(*args, **kwargs)
        outputs.logits = self.changed(outputs.logits)
        return outputs

    def changed(self, logits: Tensor) -> Tensor:
        return logits * 2


class Capped(Louder):
    def changed(self, logits: Tensor) -> Tensor:
        return 30 * torch.tanh(logits / 30)


class Masked(Louder):
    def changed(self, logits: Tensor) -> Tensor:
        return torch.cat((logits[..., :-1], torch.full_like(logits[..., -1:], -1e9)), dim=-1)


class Twice(Louder):
    def changed(self, logits: Tensor) -> Tensor:
        self.lm_head(torch.zeros(3, 11, 32))
        return logits


class Never(LlamaForCausalLM):
    def forward(self, input_ids: Tensor, **kwargs: Any) -> CausalLMOutputWithPast:
        kwargs.pop("return_dict")
        hidden = self.model(input_ids, **kwargs)[0]
        return CausalLMOutputWithPast(logits=hidden @ self.lm_head.weight.T)


UNKNOWN = "{} changes its logits in a way trimsft does not know"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Louder, UNKNOWN),
        (Capped, UNKNOWN),
        (Masked, UNKNOWN),
        (Twice, "{} called its output embedding 2 times"),
        (Never, "{} called its output embedding 0 times"),
    ],
)
def test_a_head_that_cannot_be_stood_in_for_is_refused(kind, says) -> None:
    model = patch(kind(make_model().config), TRIM)
    for _ in range(2):  # not only once
        with pytest.raises(NotImplementedError, match=says.format(kind.__name__)):
            model(**make_batch())


def test_calls_that_cannot_be_fused_are_refused() -> None:
    model, batch = patched()
    with pytest.raises(ValueError, match="logits_to_keep: a patched model makes no logits"):
        model(**batch, logits_to_keep=1)
    with pytest.raises(ValueError, match=r"labels: shape \(3, 5\) does not go with hidden states of \(3, 11, 32\)"):
        model(**{**batch, "labels": batch["labels"][:, :5]})
    assert model(batch["input_ids"]).logits.shape == (3, 11, model.config.vocab_size)  # its head is back
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.to(torch.int8), requires_grad=False)
    with pytest.raises(ValueError, match=r"output embedding \(Linear\) has no plain floating-point weight"):
        model(**batch)


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
    with pytest.raises(TypeError, match="labels: a patched model takes them by name"):
        model(*before, batch["labels"])
    assert model(*before, None).logits.shape[:2] == (3, 11)
    assert torch.equal(model(*before, labels=batch["labels"]).loss, model(**batch).loss)
    assert unpatch(model)(*before, batch["labels"]).loss > 0


SMALL = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BertForMaskedLM(BertConfig(**SMALL)), "BertForMaskedLM is a masked language model"),
        (
            lambda: T5ForConditionalGeneration(T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1)),
            "T5ForConditionalGeneration is an encoder-decoder model",
        ),
    ],
)
def test_models_that_are_not_causal_are_refused_by_name(make, message) -> None:
    with pytest.raises(TypeError, match=message):
        patch(make(), TRIM)


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
