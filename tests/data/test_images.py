"""Rows with images: a small Qwen2-VL is trained as TRL trains it."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLProcessor
from trl import SFTTrainer

from tests.data.test_chat import TEMPLATES
from tests.data.toys import make_tokenizer
from tests.train import tiny
from trimsft.errors import DataError
from trimsft.train import TrimSFTTrainer

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
ROWS = [
    {
        "messages": [{"role": "user", "content": f"What is {n}?"}, {"role": "assistant", "content": "It is so. " * n}],
        "images": [Image.new("RGB", (56, 28 * (1 + n % 3)), (25 * n, 0, 0))],
    }
    for n in range(1, 9)
]


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    monkeypatch.setattr(Qwen2VLProcessor, "check_argument_for_proper_class", lambda *_: None)  # videos need torchvision
    template = TEMPLATES["qwen2_5_vl"]
    tokenizer = make_tokenizer(chat=template, special=("<bos>", "<eos>", *SPECIAL), size=330)
    tokenizer.pad_token = "<eos>"
    return Qwen2VLProcessor(Qwen2VLImageProcessorPil(), tokenizer, None, chat_template=template)


def make_model(tokenizer: Any) -> Any:
    ids = dict(zip(("vision_start", "vision_end", "image", "video"), SPECIAL[2:], strict=True))
    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    text = {**size, "vocab_size": len(tokenizer), "num_key_value_heads": 2, "rope_parameters": rope}
    torch.manual_seed(0)
    config = Qwen2VLConfig(
        text_config={**text, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "initializer_range": 0.3},
        vision_config={"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2},
        **{f"{name}_token_id": tokenizer.convert_tokens_to_ids(token) for name, token in ids.items()},
    )
    return Qwen2VLForConditionalGeneration(config)


def trainer_of(kind: Any, processor: Any, folder: Path, rows: Any, **settings: Any) -> Any:
    options = {"processing_class": processor}
    return tiny.make_trainer(kind, make_model(processor.tokenizer), folder, rows, options, max_length=None, **settings)


@pytest.mark.parametrize("is_stream", [False, True])
def test_images_are_trained_as_in_trl(is_stream: bool, processor: Any, tmp_path: Path) -> None:
    logged = []
    for kind, settings in ((SFTTrainer, {}), (TrimSFTTrainer, {"objective": "sft"})):
        rows = Dataset.from_list(ROWS)
        given = rows.to_iterable_dataset() if is_stream else rows
        trainer = trainer_of(kind, processor, tmp_path, given, **settings)
        with warnings.catch_warnings():
            trainer.train()
        logged.append((trainer.grads, tiny.logged(trainer, "loss")))
    (expected, losses), (gradients, ours) = logged
    assert ours == pytest.approx(losses, rel=1e-5)
    for got, wanted in zip(gradients, expected, strict=True):
        tiny.assert_same_gradients(got, wanted, tolerance=1e-4)


def test_weights_of_rows_with_images_are_refused(processor: Any, tmp_path: Path) -> None:
    messages = [{**ROWS[0]["messages"][0], "weight": 0}, ROWS[0]["messages"][1]]
    for rows in ([{**row, "weight": 0.5} for row in ROWS], [{**ROWS[0], "messages": messages}]):
        with pytest.raises(DataError, match="train_dataset: weights of rows with images are not read"):
            trainer_of(TrimSFTTrainer, processor, tmp_path, Dataset.from_list(rows))
