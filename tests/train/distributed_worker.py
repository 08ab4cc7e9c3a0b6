"""Trainings of 10 steps, on one process or on the ranks of several, and what they leave to compare.

Of every 8 rows in order, the first half goes to rank 0 and the second to rank 1; lengths run from 2 to 48. The last
tokens of the vocabulary are out of reach for this model: their gap is about -45, their weight exactly 0.

    rows 0-7    ordinary
    rows 8-11   the only label is that of the first token, which nothing predicts: a rank without a trained token
    rows 28-31  the only labels are out of reach: a rank without a kept row
"""

import json
import os
import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from tests.train.tiny import Evil, history_of, make_tokenizer
from trimsft.train import TrimSFTConfig, TrimSFTTrainer

VOCABULARY, OUT_OF_REACH = 64, 4
STEPS, BATCH = 10, 8
RATE = 0.09  # with it no token's gap comes within 6e-4 of a border by which tokens are counted


@dataclass(frozen=True, kw_only=True)
class Case:
    """How the same 80 rows are trained on."""

    tied: bool = True
    micro_batch: int = BATCH
    accumulation: int = 1
    fsdp: bool = False
    settings: tuple[tuple[str, Any], ...] = ()
    resumes: bool = False
    """Whether it loses its last checkpoint, and is trained on from the one in the middle."""


def train_all(cases: dict[str, Case], folder: Path) -> None:
    """One rank of several: every case in a folder of its own; those that are sharded come last."""
    rank = int(os.environ["RANK"])
    for name, case in sorted(cases.items(), key=lambda item: item[1].fsdp):
        place = folder / name
        place.mkdir(exist_ok=True)
        log = os.open(place / f"err-{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 2)
        if case.fsdp:
            _let_accelerate_shard_on_cpu()
        train(case, place)
    torch.distributed.destroy_process_group()


def train(case: Case, folder: Path) -> None:
    """Leaves logs and kept rows of each rank in `rank-N.json`, the final weights in `model/`."""
    trainer = _Recording(case, folder)
    trainer.train()
    if case.resumes:
        trainer.accelerator.wait_for_everyone()
        if trainer.is_world_process_zero():
            (folder / "train" / f"checkpoint-{STEPS}").rename(folder / "gone")
            for part in ("pytorch_model_fsdp_0", "optimizer_0"):  # as torch would read shards of elsewhere
                shard = folder / "train" / f"checkpoint-{STEPS // 2}" / part / ".metadata"
                shard.parent.mkdir(exist_ok=True)
                shard.write_bytes(pickle.dumps(Evil(folder / "mark")))
        trainer = _Recording(case, folder)
        trainer.train(resume_from_checkpoint=True)
    logs = [log for log in history_of(trainer) if "loss" in log]
    is_sharded = all(isinstance(weight, DTensor) for weight in trainer.model.parameters())
    facts = {"logs": logs, "kept": trainer.kept[:], "is_sharded": is_sharded}
    # rows that do not come out even: accelerate gives some of them to two ranks
    facts["evaluated"] = trainer.evaluate(trainer.train_dataset.select(range(11)))
    (folder / f"rank-{trainer.args.process_index}.json").write_text(json.dumps(facts))
    trainer.save_model(str(folder / "model"))


class _Recording(TrimSFTTrainer):
    """Notes of each micro-batch how many tokens were trained and kept."""

    def __init__(self, case: Case, folder: Path) -> None:
        rows = Dataset.from_list(make_rows())
        settings = _settings(case, folder)
        super().__init__(make_model(tied=case.tied), settings, train_dataset=rows, processing_class=make_tokenizer())
        self.kept: list[tuple[int, int]] = []
        self._count = self.telemetry.observe
        self.telemetry.observe = self._record

    def _record(self, outputs: Any, inputs: dict[str, Any]) -> None:
        self._count(outputs, inputs)
        self.kept.append((len(outputs.labels), outputs.kept))


def _settings(case: Case, folder: Path) -> TrimSFTConfig:
    usual: dict[str, Any] = {
        "per_device_train_batch_size": case.micro_batch, "gradient_accumulation_steps": case.accumulation,
        "per_device_eval_batch_size": 4,
        "max_steps": STEPS, "train_sampling_strategy": "sequential", "learning_rate": RATE, "max_grad_norm": 0.0,
        "optim": "sgd",  # unlike Adam it does not forgive a gradient of the wrong size
        "save_strategy": "steps" if case.resumes else "no", "save_steps": STEPS // 2, "logging_steps": 1,
        "report_to": "none", "disable_tqdm": True, "bf16": False, "use_cpu": True, "gradient_checkpointing": False,
    }  # fmt: skip
    if case.fsdp:
        usual |= {"fsdp": True, "fsdp_config": {"version": 2}}
    settings = usual | dict(case.settings)
    return TrimSFTConfig(output_dir=str(folder / "train"), **settings)


def _let_accelerate_shard_on_cpu() -> None:
    """It ignores FSDP without an accelerator; told that gloo is one, it shards on the CPU."""
    from accelerate.state import DistributedType, PartialState

    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)


def make_model(*, tied: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        tie_word_embeddings=tied, initializer_range=0.2, pad_token_id=0, bos_token_id=None, eos_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    for weight in {model.get_input_embeddings().weight, model.get_output_embeddings().weight}:
        # one direction that all hidden states share, and that speaks against the last tokens
        weight.data[:, 0] = 6.0
        weight.data[-OUT_OF_REACH:, 0] = -6.0
    return model


def make_rows() -> list[dict[str, list[int]]]:
    draw = random.Random(0)
    rows = []
    for number in range(STEPS * BATCH):
        length = draw.choice((2, 3, 5, 48))
        ids = [draw.randrange(2, VOCABULARY - OUT_OF_REACH) for _ in range(length)]
        labels = ids
        if 8 <= number < 12:
            labels = [ids[0]] + [-100] * (length - 1)
        if 28 <= number < 32:
            ids[-1] = draw.randrange(VOCABULARY - OUT_OF_REACH, VOCABULARY)
            labels = [-100] * (length - 1) + ids[-1:]
        rows.append({"input_ids": ids, "labels": labels})
    return rows
