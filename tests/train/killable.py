"""A training of six steps that kills itself where it is told to, and goes on when it is started again.

22 rows in batches of 2, accumulated by 4, make three updates an epoch, the last of them smaller; rows are shuffled
and attention drops out, so that data order and random numbers matter to the weights.
"""

import logging
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer
from trl import SFTConfig, SFTTrainer

from trimsft.train import checkpoints
from trimsft.train.checkpoints import AtomicCheckpoints, clear_staging, latest_checkpoint

WORDS = [f"w{index}" for index in range(60)]
POINTS: dict[str, tuple[Any, str]] = {
    "weights": (Trainer, "save_model"),
    "optimizer": (Trainer, "_save_optimizer_and_scheduler"),
    "random numbers": (Trainer, "_save_rng_state"),
    "seal": (checkpoints, "_seal"),
    "name": (checkpoints, "_publish"),
    "everything": (AtomicCheckpoints, "_save_checkpoint"),
}
"""What has just been written when the process dies."""


class AtomicTrainer(AtomicCheckpoints, SFTTrainer):
    pass


def make_trainer(folder: Path, **settings: Any) -> AtomicTrainer:
    vocabulary = {word: index for index, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        attention_dropout=0.1,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    args = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "save_steps": 1,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
        "max_length": 32,
    }
    return AtomicTrainer(
        LlamaForCausalLM(config),
        SFTConfig(output_dir=str(folder), **args | settings),
        train_dataset=_rows(22),
        eval_dataset=_rows(4),
        processing_class=fast,
    )


def train(folder: Path, kill_step: int = 0, kill_after: str = "", **settings: Any) -> None:
    """Train, or go on training, to `final.safetensors`; or die in the save at `kill_step`, after a part of it."""
    logging.basicConfig(filename=folder.with_suffix(".log"))
    trainer = make_trainer(folder, **settings)
    if kill_after:
        owner, name = POINTS[kill_after]
        setattr(owner, name, _deadly(getattr(owner, name), trainer, kill_step))
    clear_staging(folder)
    newest = latest_checkpoint(folder)
    trainer.train(str(newest) if newest else None)
    save_file(dict(trainer.model.named_parameters()), folder / "final.safetensors")


def _deadly(function: Callable[..., Any], trainer: AtomicTrainer, step: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if trainer.state.global_step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


def _rows(count: int) -> Dataset:
    draw = random.Random(count)
    sentences = [" ".join(draw.choices(WORDS, k=9)) for _ in range(count)]
    return Dataset.from_list([{"prompt": text[:11], "completion": text[11:]} for text in sentences])
