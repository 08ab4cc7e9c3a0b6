"""Training steps of TrimSFTTrainer against TRL's SFTTrainer: tokens a second, peak memory, utilisation.

    python benchmarks/train_step.py --out steps.json                                     # every method, plain
    python benchmarks/train_step.py --out steps.json --only "TRL SFT, compile" --sizes 1 4 16
    python benchmarks/train_step.py --out steps.json --variant lora --only "TRL SFT" TrimSFT
    python benchmarks/train_step.py --out /tmp/tiny.json --tiny --only TrimSFT           # does it run at all, on a CPU

Every method has a process of its own, because Liger's layers and compiled ones stay in the one that made them; its
results are appended to the file. Random weights, sequences of one length, every token trained, learning rate 0 so that
every method sees the same model at every step. A random model has its gaps far below any sensible margin; TrimSFT's
band is put where it keeps the share of rows that --kept says.
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
LISTED = 30  # kernels that take longest, with --profile
REGIONAL = {"ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "true"}
VARIANTS = ("plain", "padding", "lengths", "lora", "checkpointing", "packing", "packing, flash")
PADDED = (1.0, 0.75, 0.5, 0.75)  # of the width, the lengths of rows in the variant "padding"
SHORTEST = (
    0.15  # likewise in the variant "lengths", where they are drawn, so that most batches have a width of their own
)


@dataclass(frozen=True)
class Method:
    name: str
    ours: bool
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    whole: bool = False  # all layers are compiled as one graph, not one by one


def methods() -> list[Method]:
    liger, compiled = {"use_liger_kernel": True}, {"torch_compile": True}
    graphs = {**compiled, "torch_compile_mode": "reduce-overhead"}
    both = {**liger, **compiled}
    layers: dict[str, dict[str, Any]] = {"": {}, ", Liger": liger, ", compile": compiled, ", Liger, compile": both}
    objectives = {"SFT, exact": "sft", "TrimSFT": "trim", "AutoTrim": "auto-trim"}
    return [
        *(Method(f"TRL SFT{name}", False, settings) for name, settings in layers.items()),
        Method("TRL SFT, compile regional", False, compiled, REGIONAL),
        Method("TRL SFT, compile, CUDA graphs", False, graphs),
        Method("TRL DFT", False, {"loss_type": "dft"}),
        *(
            Method(f"{title}{name}", True, {"objective": objective, **settings})
            for title, objective in objectives.items()
            for name, settings in layers.items()
        ),
        Method("TrimSFT, compile whole", True, {"objective": "trim"}, whole=True),
        Method("TrimSFT, compile, CUDA graphs", True, {"objective": "trim", **graphs}),
        Method("AutoTrim, compile, CUDA graphs", True, {"objective": "auto-trim", **graphs}),
    ]


def main() -> None:
    options = parse()
    by_name = {method.name: method for method in methods()}
    if options.list:
        print("\n".join(by_name))
    elif options.alone is not None:
        measure(by_name[options.alone], options)
    else:
        for name in options.only or by_name:
            run_alone(by_name[name], options)


def parse() -> argparse.Namespace:
    names = [method.name for method in methods()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("train_step.json"), help="results are appended to it")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="these methods, in this order")
    parser.add_argument("--list", action="store_true", help="print the names of the methods")
    parser.add_argument("--variant", choices=VARIANTS, default="plain", help="what all of them are trained with")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="sequences in a micro-batch")
    parser.add_argument("--steps", type=int, default=6, help="measured steps of each cell")
    parser.add_argument("--kept", type=float, default=0.39, help="share of rows TrimSFT keeps")
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-1.5b")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--tiny", action="store_true", help="a tiny model, short sequences, 2 steps")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a method is stopped")
    parser.add_argument("--profile", action="store_true", help="time on the device too, at some cost to the rest")
    parser.add_argument("--waits", action="store_true", help="count where the host waits for the device, likewise")
    parser.add_argument("--alone", choices=names, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tiny:
        options.shape, options.length, options.steps, options.sizes = "tiny", 64, 2, [1, 2]
    return options


def run_alone(method: Method, options: argparse.Namespace) -> None:
    """Measure a method in a process of its own, and record it if that dies."""
    words = [sys.executable, __file__, *sys.argv[1:], "--alone", method.name]
    environment = {**os.environ, **method.environment}
    try:
        code = subprocess.run(words, env=environment, timeout=options.limit, check=False).returncode
        failed = f"ended with code {code}" if code else None
    except subprocess.TimeoutExpired:
        failed = f"took more than {options.limit:.0f} s"
    if failed:
        cell = {"method": method.name, "variant": options.variant, "failed": failed}
        append(options, *({**cell, "micro_batch": size} for size in options.sizes))


def append(options: argparse.Namespace, *cells: dict[str, Any], **facts: Any) -> None:
    """Add results to the file, which is whole at any time; facts are what it says of all of them."""
    report = json.loads(options.out.read_text()) if options.out.exists() else {}
    report = {**report, **facts, "results": [*report.get("results", []), *cells]}
    beside = options.out.with_suffix(".part")
    beside.write_text(json.dumps(report, indent=1) + "\n")
    beside.replace(options.out)
    for cell in cells:
        print(json.dumps(cell), flush=True)


# ---- one method, in its own process


def measure(method: Method, options: argparse.Namespace) -> None:
    import torch
    from measuring import machine
    from transformers import AutoModelForCausalLM, Qwen2Config

    if options.variant == "packing, flash" and not importlib.util.find_spec("flash_attn"):
        append(options, {"method": method.name, "variant": options.variant, "failed": "flash_attn is not there"})
        return
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and (options.profile or options.waits):
        raise SystemExit("--profile and --waits look at a CUDA device, and there is none")
    config = Qwen2Config(**SHAPES[options.shape], max_position_embeddings=2 * options.length)
    attention = "flash_attention_2" if options.variant == "packing, flash" else "sdpa"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        base = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention).cpu()
    facts = {
        "shape": options.shape,
        "parameters": sum(p.numel() for p in base.parameters()),
        "sequence_length": options.length,
        "peak_flops": PEAK_FLOPS,
        "machine": machine(),
    }
    if method.settings.get("objective") == "trim":
        facts["band"] = band = band_for(base, options, device)
        method = replace(method, settings={**method.settings, **band})
    for cell in cells(base, method, options):
        append(options, cell, **facts)


def cells(base: Any, method: Method, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    import torch

    for size in options.sizes:
        cell: dict[str, Any] = {"method": method.name, "variant": options.variant, "micro_batch": size}
        torch.compiler.reset()  # compiled for this size, as for the first
        began = time.perf_counter()
        try:
            cell |= train(base, method, size, options)
        except torch.OutOfMemoryError:
            yield cell | {"failed": "out of memory"}
            return
        except ImportError as error:
            yield cell | {"failed": str(error)}
            return
        cell["seconds_in_all"] = time.perf_counter() - began
        gc.collect()
        torch.cuda.empty_cache()
        yield cell


def train(base: Any, method: Method, size: int, options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    from trimsft.train import TrimSFTConfig, TrimSFTTrainer

    on_cuda = torch.cuda.is_available()
    warm_up = 3
    clock, steps = clock_for(options, warm_up), warm_up + options.steps
    packing = options.variant.startswith("packing")
    settings = {
        "per_device_train_batch_size": size,
        "max_steps": steps,
        "learning_rate": 0.0,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch_fused",
        "bf16": on_cuda,
        "use_cpu": not on_cuda,
        "gradient_checkpointing": options.variant == "checkpointing",
        "max_length": options.length,
        "packing": packing,
        "dataset_kwargs": None if packing else {"skip_prepare_dataset": True},  # tokens of the right length already
        "logging_steps": max(1, options.steps // 2),
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": on_cuda,
        **method.settings,
    }
    if settings.get("torch_compile") and not on_cuda:
        settings["torch_compile_backend"] = "aot_eager"  # a CPU's compiler takes minutes
    rows = sequences(base.config.vocab_size, options.length, size * steps, options.variant)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TRL announces the end of use_liger_kernel
        trainer = (TrimSFTTrainer if method.ours else SFTTrainer)(
            copy.deepcopy(base),
            (TrimSFTConfig if method.ours else SFTConfig)(output_dir=folder, **settings),
            train_dataset=rows,
            processing_class=tokenizer(),
            callbacks=[clock],
            peft_config=adapter() if options.variant == "lora" else None,
        )
        for callback in [one for one in trainer.callback_handler.callbacks if isinstance(one, PrinterCallback)]:
            trainer.remove_callback(callback)
        if method.whole:
            trainer.model.model.compile(backend="inductor" if on_cuda else "aot_eager")
        trainer.train()
    last = [record for record in trainer.state.log_history if "loss" in record][-1]
    tokens = sum(map(len, rows["input_ids"])) / steps  # of a step, without padding
    tokens_per_second = tokens * options.steps / clock.seconds
    lora = options.variant == "lora"
    of_all, of_kept = (
        flops_per_token(base.config, options.length, kept=kept, lora=lora) * tokens_per_second / PEAK_FLOPS
        for kept in (1.0, 1 - last.get("trim/skipped", 0.0))
    )
    result = {
        "steps": options.steps,
        "tokens_per_second": tokens_per_second,
        "step_milliseconds": 1000 * clock.seconds / options.steps,
        "utilisation": of_all,  # skipped work counted as if it were done
        "utilisation_done": of_kept,
        "loss": last["loss"],
        "skipped": last.get("trim/skipped"),
        **clock.details(),
    }
    if on_cuda:
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        result["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30  # graphs have theirs from before
    return result


def clock_for(options: argparse.Namespace, warm_up: int) -> Any:
    import torch
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        """Seconds and memory from the end of the warm-up to the last step; the device is waited for only there."""

        seconds = math.nan
        activities = (torch.profiler.ProfilerActivity.CUDA,)
        profiler = torch.profiler.profile(activities=activities) if options.profile else None

        def __init__(self) -> None:
            self.waits: Counter[str] = Counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == warm_up:
                self._begin()
            elif state.global_step == warm_up + options.steps:
                self._end()

        def _begin(self) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            if options.waits:
                torch.cuda.set_sync_debug_mode("warn")
                warnings.simplefilter("always")
                warnings.showwarning = self._count
            if self.profiler is not None:
                self.profiler.start()
            self.start = time.perf_counter()

        def _end(self) -> None:
            if options.waits:
                torch.cuda.set_sync_debug_mode("default")
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.seconds = time.perf_counter() - self.start
            if self.profiler is not None:
                self.profiler.stop()

        def _count(self, message: Any, category: Any, file: str, line: int, *_: Any, **__: Any) -> None:
            if "synchronizing" in str(message):
                self.waits[f"{'/'.join(Path(file).parts[-3:])}:{line}"] += 1

        def details(self) -> dict[str, Any]:
            """Return how long the device worked in a step, on what, and where the host waited for it."""
            found: dict[str, Any] = {}
            if options.waits:
                found["host_waits"] = self.waits.total() / options.steps
                found["host_waits_at"] = {place: count / options.steps for place, count in self.waits.most_common()}
            if self.profiler is not None:
                averages = [one for one in self.profiler.key_averages() if one.self_device_time_total > 0]
                microseconds = {one.key: one.self_device_time_total for one in averages}
                found["kernel_milliseconds"] = sum(microseconds.values()) / 1000 / options.steps
                found["kernels"] = sum(one.count for one in averages) / options.steps
                found["milliseconds_of_kernels"] = longest(microseconds, options.steps)
                found["milliseconds_idle_between"] = longest(idle(self.profiler.events()), options.steps)
            return found

    return Clock()


def longest(microseconds: Mapping[str, float], steps: int) -> dict[str, float]:
    """Milliseconds of a step, of those that take longest."""
    ordered = sorted(microseconds.items(), key=lambda one: -one[1])
    return {name: total / 1000 / steps for name, total in ordered[:LISTED]}


def idle(events: Any) -> dict[str, float]:
    """Microseconds in which the device had nothing to do, by the kernels before and after."""
    spans = sorted((one.time_range.start, one.time_range.end, one.name) for one in events)
    found: defaultdict[str, float] = defaultdict(float)
    until, before = math.inf, ""
    for start, end, name in spans:
        if start > until:
            found[f"{before[:60]} > {name[:60]}"] += start - until
        if before == "" or end > until:
            until, before = end, name
    return found


def sequences(vocabulary: int, length: int, count: int, variant: str = "plain") -> Any:
    """Rows of that length; to be padded, of `PADDED` of it, or of any; to be packed, of quarters, which fill rows."""
    import torch
    from datasets import Dataset

    rows = torch.randint(4, vocabulary, (count, length), generator=torch.Generator().manual_seed(1)).tolist()
    if variant == "padding":
        rows = [row[: int(length * PADDED[number % len(PADDED)])] for number, row in enumerate(rows)]
    if variant == "lengths":
        lengths = random.Random(1).choices(range(int(SHORTEST * length), length + 1), k=count)
        rows = [row[:kept] for row, kept in zip(rows, lengths, strict=True)]
    if not variant.startswith("packing"):
        return Dataset.from_dict({"input_ids": rows, "labels": rows})
    cuts = [length // 2, length // 4]
    parts = [part for number, row in enumerate(rows) for part in (row[: cuts[number % 2]], row[cuts[number % 2] :])]
    return Dataset.from_dict({"input_ids": parts})


def tokenizer() -> Any:
    """Return what the trainers ask for; the sequences are tokens already."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")


def adapter() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


def band_for(base: Any, options: argparse.Namespace, device: str) -> dict[str, float]:
    """Return the margin and bandwidth that keep the wanted share of this random model's tokens."""
    import torch

    import trimsft
    from trimsft.head import DEFAULT_SKIP_BELOW

    ids = torch.tensor(sequences(base.config.vocab_size, options.length, 2)["input_ids"], device=device)
    model = trimsft.patch(copy.deepcopy(base).to(device), trimsft.SFT())
    with torch.no_grad():
        gap = model(ids, labels=ids).tokens.gap
    margin = gap.median()
    reach = (gap - margin).abs().quantile(options.kept)
    return {"margin": float(margin), "bandwidth": float(reach) / math.sqrt(-2 * math.log(DEFAULT_SKIP_BELOW))}


def flops_per_token(config: Any, length: int, *, kept: float, lora: bool) -> float:
    """Count forward and backward, nothing recomputed: 6 a weight (4 if it is frozen), and causal attention.

    Of the head 2 in the forward pass, and 4 (2 if it is frozen) for the share of rows that are kept.
    """
    hidden, layers, backward = config.hidden_size, config.num_hidden_layers, 2.0 if lora else 4.0
    keys = hidden * config.num_key_value_heads // config.num_attention_heads
    weights = layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * config.intermediate_size)
    head = (2 + kept * backward) * hidden * config.vocab_size
    return (2 + backward) * weights + head + 6.0 * layers * hidden * length


if __name__ == "__main__":
    main()
