"""Build a base model of the lab from nothing but a seed.

    python -m tools.lab_base.pretrain --out DIR [--device cuda] [--size small] [--steps 5000] [--noise 0.12]

Writes an ordinary model folder (model.safetensors in bfloat16, loaded as float32; config.json, tokenizer), `log.jsonl`
and `README.md`, its data sheet. The loss is plain cross-entropy on the solutions; examples of like length share a
batch and are padded on the right, where causal attention never looks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from trimsft.errors import UsageError
from trimsft.head import IGNORED
from trimsft.options import check_options, option, options_of
from trimsft.runs.files import write_whole

from .corpus import Corpus, Pool, build_pool
from .folder import save_folder
from .probe import probe
from .tokenizer import build_tokenizer

CONTEXT = 256
FINAL_LOOK = {"problems": 200, "samples": 8}
PASSING_LOOK = {"problems": 64, "samples": 2}


@dataclass(frozen=True)
class Size:
    """A Llama: width, depth, heads, inner width of the MLP; and the learning rate that suits it."""

    hidden: int
    layers: int
    heads: int
    inner: int
    learning_rate: float


SIZES: dict[str, Size] = {
    "tiny": Size(32, 2, 2, 64, 1e-2),
    "mini": Size(128, 4, 4, 384, 3e-3),
    "small": Size(256, 3, 4, 704, 2e-3),
    "medium": Size(512, 10, 8, 1408, 1e-3),
    "large": Size(768, 18, 12, 2048, 6e-4),
}
"""tiny for tests, small is shipped (2.5 M parameters), medium (32 M) and large (128 M) are for a GPU."""


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """How long, how large, how fast."""

    size: str = option("small", help="Size of the model.", choices=tuple(SIZES))
    steps: int = option(5000, help="Optimizer steps.", least=1)
    batch_tokens: int = option(32_768, help="Tokens in a batch, padding included.", least=CONTEXT)
    learning_rate: float | None = option(None, help="Highest rate of the cosine (default: what suits the size).")
    warmup_share: float = option(0.05, help="Share of the steps that warm up.")
    weight_decay: float = option(0.1, help="Weight decay of the matrices.")
    seed: int = option(0, help="Seed of data, weights and order.")
    device: str = option("cpu", help="Where to train.")
    compile: bool = option(False, help="Compile the model first.")
    look_every: int = option(2000, help="Steps between looks at accuracy; the end is looked at in any case.", least=1)

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def rate(self) -> float:
        return self.learning_rate or SIZES[self.size].learning_rate

    def rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine to a hundredth."""
        warmup = max(1, round(self.warmup_share * self.steps))
        if step < warmup:
            return self.rate * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        return self.rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


Report = Callable[[dict[str, Any]], None]


def pretrain(settings: Pretraining, corpus: Corpus, report: Report, processes: int = 1) -> tuple[Any, Any]:
    """Model and tokenizer after pre-training, with weights rounded to bfloat16 as they will be stored."""
    torch.manual_seed(settings.seed)
    tokenizer = build_tokenizer()
    model = make_model(SIZES[settings.size], tokenizer).to(settings.device)
    started = time.perf_counter()
    pool = build_pool(corpus, processes)
    report({"pool": len(pool.lengths), "tokens": len(pool.tokens), "seconds": _since(started)})
    _train(model, tokenizer, pool, settings, report)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    _look(model, tokenizer, settings.steps, report, **FINAL_LOOK)
    return model, tokenizer


def _train(model: Any, tokenizer: Any, pool: Pool, settings: Pretraining, report: Report) -> None:
    forward = torch.compile(model, dynamic=True) if settings.compile else model
    optimizer = make_optimizer(model, settings)
    started, seen, losses = time.perf_counter(), 0, []
    for step, (ids_BL, labels_BL) in zip(range(settings.steps), batches(pool, settings), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = settings.rate_at(step)
        with torch.autocast("cuda", torch.bfloat16, enabled=settings.device.startswith("cuda")):
            loss = _loss(forward(input_ids=ids_BL, use_cache=False).logits, labels_BL)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        seen += ids_BL.numel()
        if (step + 1) % 100 == 0 or step + 1 == settings.steps:
            mean = torch.stack(losses).mean().item()
            report({"step": step + 1, "loss": round(mean, 4), "tokens": seen, "seconds": _since(started)})
            losses.clear()
        if (step + 1) % settings.look_every == 0 and step + 1 < settings.steps:
            _look(model, tokenizer, step + 1, report, **PASSING_LOOK)


def batches(pool: Pool, settings: Pretraining) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and labels without end, on the device; each epoch meets every example once, in another order."""
    device = settings.device
    # int32 on the device: gathering from 16 bits is not offered everywhere
    flat = torch.from_numpy(pool.tokens.astype("int32")).to(device)
    starts = torch.from_numpy(pool.starts).to(device)
    lengths = torch.from_numpy(pool.lengths.astype("int64"))
    ends = starts + lengths.to(device)
    prompts = torch.from_numpy(pool.prompt_lengths.astype("int64")).to(device)
    generator = torch.Generator().manual_seed(settings.seed)
    while True:
        for rows, longest in _group(lengths, settings.batch_tokens, generator):
            rows = rows.to(device)
            at_L = torch.arange(longest, device=device)
            place_BL = starts[rows, None] + at_L
            ids_BL = flat[place_BL.clamp(max=len(flat) - 1)].long()
            is_prompt_BL = at_L < prompts[rows, None]
            is_past_BL = place_BL >= ends[rows, None]
            yield ids_BL.masked_fill(is_past_BL, 0), ids_BL.masked_fill(is_prompt_BL | is_past_BL, IGNORED)


def _group(lengths: Tensor, batch_tokens: int, generator: Any) -> list[tuple[Tensor, int]]:
    """Rows of like length within the token budget, in random order."""
    order = torch.randperm(len(lengths), generator=generator)
    order = order[lengths[order].sort(stable=True).indices]
    groups, begin = [], 0
    ordered = lengths[order].tolist()
    while begin < len(ordered):
        end = begin + 1
        while end < len(ordered) and (end + 1 - begin) * ordered[end] <= batch_tokens:
            end += 1
        groups.append((order[begin:end], ordered[end - 1]))
        begin = end
    return [groups[i] for i in torch.randperm(len(groups), generator=generator).tolist()]


def _loss(logits_BLV: Tensor, labels_BL: Tensor) -> Tensor:
    return cross_entropy(logits_BLV[:, :-1].flatten(0, 1).float(), labels_BL[:, 1:].flatten(), ignore_index=IGNORED)


def make_model(size: Size, tokenizer: Any) -> Any:
    """A Llama with tied embeddings, fresh from torch's generator."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-len(tokenizer) // 16) * 16,
            hidden_size=size.hidden,
            intermediate_size=size.inner,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
            dtype="float32",
            architectures=["LlamaForCausalLM"],
        )
    )


def make_optimizer(model: Any, settings: Pretraining) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=settings.rate,
        betas=(0.9, 0.95),
        fused=settings.device.startswith("cuda"),
    )


def _look(model: Any, tokenizer: Any, step: int, report: Report, *, problems: int, samples: int) -> None:
    model.eval()
    report({"look": step, **probe(model, tokenizer, problems=problems, samples=samples)})
    model.train()


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 1)


def main(arguments: list[str] | None = None) -> int:
    """The command; 0, or 2 for settings that cannot be used."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    folder = chosen.out
    try:
        corpus = Corpus(**{field.name: getattr(chosen, field.name) for field in fields(Corpus)})
        settings = Pretraining(**{field.name: getattr(chosen, field.name) for field in fields(Pretraining)})
        if (folder / "model.safetensors").exists() and not chosen.overwrite:
            raise UsageError(
                f"{folder} holds a model already", field="out", hint="name another folder or add --overwrite"
            )
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    log: list[dict[str, Any]] = []

    def report(record: dict[str, Any]) -> None:
        log.append(record)
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()

    model, tokenizer = pretrain(settings, corpus, report, chosen.processes)
    save_folder(folder, model, tokenizer, command=_command(parser, chosen), facts=_facts(settings, corpus), log=log)
    write_whole(folder / "log.jsonl", "".join(json.dumps(record) + "\n" for record in log).encode())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.lab_base.pretrain",
        description="Pre-train a base model of the lab and write its folder.",
        epilog="example: python -m tools.lab_base.pretrain --out base --device cuda --noise 0.12",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes that make the data")
    kinds = {"int": int, "float": float, "float | None": float, "str": str}
    known = options_of(Corpus) | options_of(Pretraining)
    for field in {field.name: field for field in (*fields(Corpus), *fields(Pretraining))}.values():
        flag, text = "--" + field.name.replace("_", "-"), known[field.name].help
        if field.type == "bool":
            parser.add_argument(flag, action="store_true", help=text)
        else:
            parser.add_argument(flag, type=kinds[str(field.type)], default=field.default, help=text)
    return parser


def _command(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> str:
    """The command that repeats this, less what does not matter to the result."""
    words = ["python -m tools.lab_base.pretrain --out DIR"]
    for name, value in vars(chosen).items():
        if name not in ("out", "overwrite", "processes", "look_every") and value != parser.get_default(name):
            words.append(f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}"))
    return " ".join(words)


def _facts(settings: Pretraining, corpus: Corpus) -> dict[str, str]:
    shares = ", ".join(f"{style} {share:.1%}" for style, share in corpus.shares.items())
    return {
        "seed": str(settings.seed),
        "examples": f"{corpus.examples:,} of all three tiers, none of them on the benchmarks' side",
        "styles": shares,
        "wrong steps": f"{corpus.noise:.0%} of the steps, off by one or ten, carried on",
        "filler": f"after {corpus.filler_rate:.0%} of the steps",
        "optimizer": f"AdamW, {settings.steps:,} steps of at most {settings.batch_tokens:,} tokens, learning rate "
        f"{settings.rate:g} with warm-up and cosine, weight decay {settings.weight_decay:g}",
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}, {settings.device}",
    }


if __name__ == "__main__":
    sys.exit(main())
