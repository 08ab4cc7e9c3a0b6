"""Training steps of TrimSFTTrainer against TRL's SFTTrainer, in one run: tokens a second, memory, utilisation.

    python benchmarks/train_step.py --out docs/results/train_step_h200.json
    python benchmarks/train_step.py --shape tiny --sizes 1 2 --out /tmp/tiny.json        # does it run at all

Random weights, sequences packed to one length, learning rate 0 so that every method sees the same model at every
step. A random model has its gaps far below any sensible margin; TrimSFT's band is put where it keeps the share of
rows that the paper's diagnostics imply for a real one (--kept). Every size is run with every method in turn, so that
a chip that slows down slows all of them.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, TrainerCallback
from trl import SFTConfig, SFTTrainer

import trimsft
from trimsft.bench.head import machine
from trimsft.head import DEFAULT_SKIP_BELOW
from trimsft.train import TrimSFTConfig, TrimSFTTrainer

SHAPES = {
    "qwen2.5-1.5b": {
        "vocab_size": 151_936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
}
PEAK_FLOPS = 989e12  # H200, dense bfloat16
WARM_UP = 3


@dataclass(frozen=True)
class Method:
    name: str
    ours: bool
    settings: dict[str, Any] = field(default_factory=dict)


def methods(band: dict[str, float]) -> list[Method]:
    liger = {"use_liger_kernel": True}
    trim = {"objective": "trim", **band}
    return [
        Method("TRL SFT", False),
        Method("TRL DFT", False, {"loss_type": "dft"}),
        Method("TRL SFT, Liger layers", False, liger),
        Method("TRL DFT, Liger layers", False, {"loss_type": "dft", **liger}),
        Method("trimsft SFT, exact", True, {"objective": "sft", "skip_below": 0.0}),
        Method("trimsft TrimSFT", True, trim),
        Method("trimsft TrimSFT, Liger layers", True, {**trim, **liger}),
        Method("trimsft TrimSFT, exact, Liger layers", True, {**trim, "skip_below": 0.0, **liger}),
    ]


def main() -> None:
    options = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    config = Qwen2Config(**SHAPES[options.shape], max_position_embeddings=2 * options.length)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        base = AutoModelForCausalLM.from_config(config, dtype=dtype).cpu()
    band = band_for(base, options, device)
    report: dict[str, Any] = {
        "machine": machine(),
        "shape": options.shape,
        "parameters": sum(p.numel() for p in base.parameters()),
        "sequence_length": options.length,
        "gradient_checkpointing": options.checkpointing,
        "band": band,
        "flops_per_token": flops_per_token(config, options.length),
        "peak_flops": PEAK_FLOPS,
        "results": [],
    }
    for result in cells(base, methods(band), options):
        result["utilisation"] = result.get("tokens_per_second", 0) * report["flops_per_token"] / PEAK_FLOPS
        report["results"].append(result)
        print(json.dumps(result), flush=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")  # a killed run keeps what it has


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-1.5b")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--steps", type=int, default=8, help="measured steps of each cell")
    parser.add_argument("--kept", type=float, default=0.39, help="share of rows TrimSFT keeps")
    parser.add_argument("--only", default="", help="only methods whose name contains this")
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing")
    parser.add_argument("--profile", action="store_true", help="time on the device too, at some cost to the rest")
    return parser.parse_args()


def cells(base: Any, chosen: list[Method], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    full = set()
    for size in options.sizes:
        for method in chosen:
            if options.only.lower() not in method.name.lower() or method.name in full:
                continue
            cell: dict[str, Any] = {"method": method.name, "micro_batch": size}
            try:
                cell |= train(base, method, size, options)
            except torch.OutOfMemoryError:
                cell["failed"] = "out of memory"
                full.add(method.name)
            except ImportError as error:
                cell["failed"] = str(error)
                full.add(method.name)
            gc.collect()
            torch.cuda.empty_cache()
            yield cell


class Clock(TrainerCallback):
    """Seconds and memory from the end of the warm-up to the last step; the device is waited for only there."""

    def __init__(self, steps: int, profiles: bool) -> None:
        self.steps = steps
        self.seconds = math.nan
        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) if profiles else None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step not in (WARM_UP, WARM_UP + self.steps):
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if state.global_step == WARM_UP:
            if self.profiler is not None:
                self.profiler.start()
            self.start = time.perf_counter()
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
        else:
            self.seconds = time.perf_counter() - self.start
            if self.profiler is not None:
                self.profiler.stop()

    def kernels(self) -> dict[str, float]:
        """How long the device was at work in a step, and on how many kernels."""
        if self.profiler is None:
            return {}
        averages = [average for average in self.profiler.key_averages() if average.self_device_time_total > 0]
        microseconds = sum(average.self_device_time_total for average in averages)
        return {
            "kernel_milliseconds": microseconds / 1000 / self.steps,
            "kernels": sum(average.count for average in averages) / self.steps,
        }


def train(base: Any, method: Method, size: int, options: argparse.Namespace) -> dict[str, Any]:
    clock = Clock(options.steps, options.profile)
    steps = WARM_UP + options.steps
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TRL announces the end of use_liger_kernel
        arguments = (TrimSFTConfig if method.ours else SFTConfig)(
            output_dir=folder,
            per_device_train_batch_size=size,
            max_steps=steps,
            learning_rate=0.0,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            bf16=torch.cuda.is_available(),
            gradient_checkpointing=options.checkpointing,
            dataset_kwargs={"skip_prepare_dataset": True},  # tokens of the right length already
            logging_steps=options.steps // 2,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
            **method.settings,
        )
        trainer = (TrimSFTTrainer if method.ours else SFTTrainer)(
            copy.deepcopy(base),
            arguments,
            train_dataset=sequences(base.config.vocab_size, options.length, size * steps),
            processing_class=tokenizer(),
            callbacks=[clock],
        )
        trainer.train()
    last = [record for record in trainer.state.log_history if "loss" in record][-1]
    result = {
        "tokens_per_second": size * options.length * options.steps / clock.seconds,
        "step_milliseconds": 1000 * clock.seconds / options.steps,
        "loss": last["loss"],
        "skipped": last.get("skipped"),
        **clock.kernels(),
    }
    if torch.cuda.is_available():
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return result


def sequences(vocabulary: int, length: int, count: int) -> Dataset:
    ids = torch.randint(4, vocabulary, (count, length), generator=torch.Generator().manual_seed(1)).tolist()
    return Dataset.from_dict({"input_ids": ids, "labels": ids})


def tokenizer() -> PreTrainedTokenizerFast:
    """The trainers ask for one; the sequences are tokens already."""
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")


@torch.no_grad()
def band_for(base: Any, options: argparse.Namespace, device: str) -> dict[str, float]:
    """The margin and bandwidth that keep the wanted share of the tokens of this random model."""
    ids = torch.tensor(sequences(base.config.vocab_size, options.length, 2)["input_ids"], device=device)
    model = trimsft.patch(copy.deepcopy(base).to(device), trimsft.SFT())
    gap = model(ids, labels=ids).tokens.gap
    margin = gap.median()
    reach = (gap - margin).abs().quantile(options.kept)
    return {"margin": float(margin), "bandwidth": float(reach) / math.sqrt(-2 * math.log(DEFAULT_SKIP_BELOW))}


def flops_per_token(config: Any, length: int) -> float:
    """Forward and backward, nothing recomputed, nothing skipped: 6 a weight, and causal attention."""
    hidden, layers = config.hidden_size, config.num_hidden_layers
    keys = hidden * config.num_key_value_heads // config.num_attention_heads
    weights = layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * config.intermediate_size)
    return 6.0 * (weights + hidden * config.vocab_size) + 6.0 * layers * hidden * length


if __name__ == "__main__":
    main()
