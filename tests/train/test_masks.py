"""Batches without an attention mask: where that changes nothing, and nowhere else."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
from transformers import masking_utils
from trl import SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from tests.train.tiny import (
    ARCHITECTURES,
    BAND,
    LOSS_ERROR,
    MESSAGES,
    TEXTS,
    assert_same_gradients,
    gradients_of,
    logged,
    make_batch,
    make_model,
    make_ours,
    make_trainer,
    record_batches,
)
from trimsft import TrimSFT
from trimsft.train import TrimSFTTrainer, masks, patch
from trimsft.train.cudnn import CudnnChoice
from trimsft.train.masks import AvoidsMasks, PackedRows, is_causal, real_tokens

CAUSAL = [kind for kind in ARCHITECTURES if is_causal(make_model(kind))]


def step(model: Any, batch: dict[str, Any]) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model(**batch).token_loss
    loss.backward()
    return loss.item(), gradients_of(model)


def test_nearly_all_kinds_of_models_are_known_as_causal() -> None:
    assert set(ARCHITECTURES) - set(CAUSAL) <= {"gemma2"}  # transformers gives it eager attention, for its soft cap


@pytest.mark.parametrize("kind", CAUSAL)
def test_no_trained_token_sees_padding_on_the_right(kind) -> None:
    model, batch = patch(make_model(kind), TrimSFT(**BAND), skip_below=0.0), make_batch(rows=6)
    expected_loss, expected = step(model, batch)
    mask = batch.pop("attention_mask")
    assert not mask.all()
    batch["input_ids"] = torch.where(mask.bool(), batch["input_ids"], 7)  # whatever stands there
    with masks._not_packed():
        loss, found = step(model, batch)
    assert loss == pytest.approx(expected_loss, rel=LOSS_ERROR)
    assert_same_gradients(found, expected)


def test_a_window_of_attention_stays() -> None:
    """Longer rows than the window: transformers makes a mask for it, with padding or without."""
    model = patch(make_model("qwen2", layer_types=["sliding_attention"] * 2, sliding_window=4), TrimSFT(**BAND))
    batch = make_batch(rows=6)
    windowed = step(model, batch)[0]
    del batch["attention_mask"]
    with masks._not_packed():
        assert step(model, batch)[0] == pytest.approx(windowed, rel=LOSS_ERROR)
    for module in model.modules():
        if hasattr(module, "sliding_window"):
            module.sliding_window = None
    model.config.layer_types = ["full_attention"] * 2
    assert step(model, batch)[0] != pytest.approx(windowed, rel=LOSS_ERROR)  # it matters here


def test_nobody_searches_for_packed_texts_where_there_are_none(monkeypatch) -> None:
    """The search that is left out is the one transformers makes, and it is there again afterwards."""
    searched = []
    search = masking_utils.find_packed_sequence_indices
    monkeypatch.setattr(
        masking_utils, "find_packed_sequence_indices", lambda positions: searched.append(1) or search(positions)
    )
    model, batch = make_model(), make_batch()
    del batch["attention_mask"]
    with masks._not_packed():
        model(**batch, use_cache=False)
    assert not searched
    model(**batch, use_cache=False)
    assert searched


def test_searches_that_overlap_are_all_restored() -> None:
    search = masking_utils.find_packed_sequence_indices
    first, second = masks._not_packed(), masks._not_packed()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert masking_utils.find_packed_sequence_indices is search


def test_a_model_that_is_made_to_look_both_ways_is_not_causal() -> None:
    assert is_causal(make_model()) and not is_causal(make_model(is_causal=False))


# which batches ------------------------------------------------------------------------------------------------------


class OnCuda(AvoidsMasks):
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
        self._compile_settings = None


@pytest.fixture(autouse=True)
def chosen(monkeypatch) -> list[tuple[int, int, bool]]:
    """The shape of each batch for which a kernel of attention was chosen, and whether it has a mask."""
    found: list[tuple[int, int, bool]] = []
    monkeypatch.setattr(
        CudnnChoice, "choose", lambda self, rows, length, masked, trains: found.append((rows, length, masked))
    )
    return found


def test_a_batch_of_trls_collator_goes_without_a_mask_on_a_gpu(chosen) -> None:
    batch = make_batch()
    given, context = OnCuda(make_model())._with_mask_if_needed(batch)
    assert set(batch) - set(given) == {"attention_mask"}
    assert not isinstance(context, nullcontext)
    assert chosen == [(3, 11, False)]


class PadsLeft(DataCollatorForLanguageModeling):  # type: ignore[misc]
    pass


def with_prefix() -> Any:
    return peft.get_peft_model(make_model(), peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))


def eager() -> Any:
    model = make_model()
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize(
    "trainer",
    [
        lambda: OnCuda(make_model(), PadsLeft(pad_token_id=0)),
        lambda: OnCuda(make_model("mixtral"), aux_loss=True),
        lambda: OnCuda(make_model(), context_parallel=True),
        lambda: OnCuda(with_prefix()),
        lambda: OnCuda(eager()),
    ],
    ids=["another collator", "loss of a router", "context parallel", "prefix", "eager"],
)
def test_a_mask_that_may_matter_stays(trainer, chosen) -> None:
    batch = make_batch()
    given, context = trainer()._with_mask_if_needed(batch)
    assert given is batch and isinstance(context, nullcontext)
    assert chosen == [(3, 11, True)]


def test_on_a_cpu_the_mask_stays(tmp_path) -> None:
    trainer = make_ours(tmp_path)
    batches = record_batches(trainer)
    trainer.train()
    assert all("attention_mask" in batch for batch, _ in batches)


# packed texts; that losses and gradients are TRL's is tested with those of all data ---------------------------------


def test_packed_texts_stay_in_their_rows(tmp_path) -> None:
    trainer = make_ours(tmp_path, TEXTS, packing=True, max_length=40, per_device_train_batch_size=3)
    batches = record_batches(trainer)
    trainer.train()
    assert isinstance(trainer.data_collator, PackedRows)
    shapes = {tuple(batch["input_ids"].shape) for batch, _ in batches}
    assert max(rows for rows, _ in shapes) == 3 and max(width for _, width in shapes) <= 40
    assert all("attention_mask" not in batch for batch, _ in batches)  # positions say what belongs together
    assert any((batch["position_ids"][:, 1:] == 0).any() for batch, _ in batches)


def test_rows_longer_than_a_window_have_a_mask_in_any_case(chosen) -> None:
    trainer = OnCuda(make_model("qwen2", layer_types=["sliding_attention"] * 2, sliding_window=11))
    for length in (10, 11):
        given, _ = trainer._with_mask_if_needed(make_batch(length=length))
        assert "attention_mask" not in given
    assert [masked for _, _, masked in chosen] == [False, True]


def cross_entropy(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    logits, gold = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return torch.nn.functional.cross_entropy(logits, gold, reduction="sum") / num_items_in_batch


OTHER_LOSSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "label smoothing": ({}, {"label_smoothing_factor": 0.1}),
    "a function": ({"compute_loss_func": cross_entropy}, {}),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("options", "settings"), OTHER_LOSSES.values(), ids=OTHER_LOSSES)
def test_packed_texts_do_not_see_each_other_with_another_loss_either(options, settings, tmp_path) -> None:
    settings = {"packing": True, "max_length": 40, **settings}
    plain = make_trainer(SFTTrainer, make_model(), tmp_path / "plain", TEXTS, options, **settings)
    ours = make_trainer(TrimSFTTrainer, make_model(), tmp_path / "ours", TEXTS, options, objective="sft", **settings)
    plain.train()
    ours.train()
    assert isinstance(ours.data_collator, PackedRows)
    assert logged(ours, "loss") == pytest.approx(logged(plain, "loss"), rel=LOSS_ERROR)
    for got, expected in zip(ours.grads, plain.grads, strict=True):
        assert_same_gradients(got, expected)


def test_another_collator_around_it_changes_nothing(tmp_path) -> None:
    settings = {"packing": True, "max_length": 40, "objective": "sft"}
    losses = []
    for name in ("own", "wrapped"):
        trainer = make_ours(tmp_path / name, TEXTS, **settings)
        if name == "wrapped":
            inner = trainer.data_collator
            trainer.data_collator = lambda rows, inner=inner: inner(rows)
        trainer.train()
        losses.append(logged(trainer, "loss"))
    assert losses[0] == losses[1]


def test_rows_of_an_evaluation_that_are_not_packed_are_padded_as_usual() -> None:
    collator = PackedRows(pad_token_id=0, return_position_ids=True, width=40)
    batch = collator([{"input_ids": [5] * 7}, {"input_ids": [6] * 3}])
    assert batch.keys() == {"input_ids", "labels", "attention_mask"} and batch["input_ids"].shape == (2, 7)


def test_padding_is_not_counted() -> None:
    collator = PackedRows(pad_token_id=0, return_position_ids=True, width=40)
    batch = collator([{"input_ids": [5] * 30, "seq_lengths": [10, 20]}, {"input_ids": [6] * 25, "seq_lengths": [25]}])
    assert real_tokens(batch) == 55
    assert real_tokens(make_batch()) == make_batch()["attention_mask"].sum()
    assert real_tokens({"input_ids": torch.zeros(2, 3)}) == 6


def test_on_a_gpu_packed_rows_are_of_one_length(chosen) -> None:
    collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    trainer = OnCuda(make_model(), collator)
    trainer.data_collator = trainer._in_rows(collator)
    rows = [{"input_ids": [5] * 30, "seq_lengths": [10, 20]}, {"input_ids": [6] * 25, "seq_lengths": [25]}]
    batch = trainer.data_collator(rows)
    assert batch["input_ids"].shape == (2, 40)
    assert batch["labels"][0, [0, 10]].tolist() == [-100, -100] and (batch["labels"] == 5).sum() == 28
    given, context = trainer._with_mask_if_needed(batch)
    assert given is batch and "attention_mask" not in batch  # texts are found by their positions
    assert isinstance(context, nullcontext)
    assert chosen == [(2, 40, True)]


@pytest.mark.parametrize("kind", ["falcon_h1", "mixtral"])
def test_other_models_get_packed_texts_as_trl_has_them(kind, tmp_path) -> None:
    trainer = make_trainer(TrimSFTTrainer, make_model(kind), tmp_path, MESSAGES, packing=True, max_length=40)
    assert type(trainer.data_collator) is DataCollatorForLanguageModeling
    assert trainer.data_collator.padding_free
