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
from safetensors.torch import save
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from trimsft.head import IGNORED
from trimsft.runs.files import write_whole

from .corpus import Corpus, Pool, build_pool
from .tokenizer import build_tokenizer

CONTEXT = 256


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

    size: str = "small"
    steps: int = 5000
    batch_tokens: int = 32_768  # padding included
    learning_rate: float | None = None  # highest of the cosine; None: what suits the size
    warmup_share: float = 0.05  # of the steps
    weight_decay: float = 0.1  # of the matrices
    seed: int = 0  # of data, weights and order
    device: str = "cpu"

    @property
    def rate(self) -> float:
        return self.learning_rate or SIZES[self.size].learning_rate

    def rate_at(self, step: int) -> float:
        """Return the rate of a step: linear warm-up, then a cosine to a hundredth."""
        warmup = max(1, round(self.warmup_share * self.steps))
        if step < warmup:
            return self.rate * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        return self.rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


Report = Callable[[dict[str, Any]], None]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes that make the data")
    for field in {field.name: field for field in (*fields(Corpus), *fields(Pretraining))}.values():
        kind = {"int": int, "str": str}.get(str(field.type), float)
        choices = list(SIZES) if field.name == "size" else None
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default, choices=choices)
    chosen = parser.parse_args(arguments)
    folder: Path = chosen.out
    corpus = Corpus(**{field.name: getattr(chosen, field.name) for field in fields(Corpus)})
    settings = Pretraining(**{field.name: getattr(chosen, field.name) for field in fields(Pretraining)})
    if (folder / "model.safetensors").exists() and not chosen.overwrite:
        parser.error(f"{folder} holds a model already; name another folder or add --overwrite")
    log: list[dict[str, Any]] = []

    def report(record: dict[str, Any]) -> None:
        log.append(record)
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()

    words = ["python -m tools.lab_base.pretrain --out DIR"]
    for name, value in vars(chosen).items():
        if name not in ("out", "overwrite", "processes") and value != parser.get_default(name):
            words.append(f"--{name.replace('_', '-')} {value}")
    model, tokenizer = pretrain(settings, corpus, report, chosen.processes)
    sheet = data_sheet(model, " ".join(words), settings, corpus, log[-1])
    write_folder(folder, model, tokenizer, sheet, log)


# ---- training


def pretrain(settings: Pretraining, corpus: Corpus, report: Report, processes: int = 1) -> tuple[Any, Any]:
    """Return model and tokenizer after pre-training, the weights rounded to bfloat16 as they will be stored."""
    torch.manual_seed(settings.seed)
    tokenizer = build_tokenizer()
    model = make_model(SIZES[settings.size], tokenizer).to(settings.device)
    groups = [[p for p in model.parameters() if (p.ndim > 1) == is_matrix] for is_matrix in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": settings.weight_decay}, {"params": groups[1], "weight_decay": 0.0}],
        lr=settings.rate,
        betas=(0.9, 0.95),
        fused=settings.device.startswith("cuda"),
    )
    started = time.perf_counter()
    pool = build_pool(corpus, processes)
    seconds = round(time.perf_counter() - started, 1)
    report({"pool": len(pool.lengths), "tokens": len(pool.tokens), "seconds": seconds})
    started, seen, losses = time.perf_counter(), 0, []
    for step, (ids_BL, labels_BL) in zip(range(settings.steps), batches(pool, settings), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = settings.rate_at(step)
        with torch.autocast("cuda", torch.bfloat16, enabled=settings.device.startswith("cuda")):
            logits_BLV = model(input_ids=ids_BL, use_cache=False).logits
            predicted, gold = logits_BLV[:, :-1].flatten(0, 1).float(), labels_BL[:, 1:].flatten()
            loss = cross_entropy(predicted, gold, ignore_index=IGNORED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        seen += ids_BL.numel()
        if (step + 1) % 100 == 0 or step + 1 == settings.steps:
            mean, seconds = torch.stack(losses).mean().item(), round(time.perf_counter() - started, 1)
            report({"step": step + 1, "loss": round(mean, 4), "tokens": seen, "seconds": seconds})
            losses.clear()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    return model, tokenizer


def batches(pool: Pool, settings: Pretraining) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and labels without end, on the device; an epoch meets every example once, in an order of its own."""
    device = settings.device
    # int32 on the device: gathering from 16 bits is not offered everywhere
    flat = torch.from_numpy(pool.tokens.astype("int32")).to(device)
    starts = torch.from_numpy(pool.starts).to(device)
    lengths = torch.from_numpy(pool.lengths.astype("int64"))
    ends = starts + lengths.to(device)
    prompts = torch.from_numpy(pool.prompt_lengths.astype("int64")).to(device)
    generator = torch.Generator().manual_seed(settings.seed)
    while True:
        for rows, longest in group_rows(lengths, settings.batch_tokens, generator):
            rows = rows.to(device)
            at_L = torch.arange(longest, device=device)
            place_BL = starts[rows, None] + at_L
            ids_BL = flat[place_BL.clamp(max=len(flat) - 1)].long()
            is_prompt_BL = at_L < prompts[rows, None]
            is_past_BL = place_BL >= ends[rows, None]
            yield ids_BL.masked_fill(is_past_BL, 0), ids_BL.masked_fill(is_prompt_BL | is_past_BL, IGNORED)


def group_rows(lengths: Tensor, batch_tokens: int, generator: torch.Generator) -> list[tuple[Tensor, int]]:
    """Return rows of like length within the token budget, and their longest, in random order."""
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


def make_model(size: Size, tokenizer: Any) -> Any:
    """Return a Llama with tied embeddings, fresh from torch's generator."""
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


# ---- the folder

SHEET = """\
# A base model of the lab

A Llama of {parameters:,} parameters ({layers} layers of width {width}), pre-trained on procedural arithmetic alone: it
is to the lab what a large base model is to real data, able when greedy, scattered at temperature 1. It knows nothing
else. `trimsft eval` says how able.

Built by

    {command}

- seed: {settings.seed}
- examples: {corpus.examples:,} of all three tiers, none of them on the benchmarks' side
- styles: {styles}
- wrong steps: {corpus.noise:.0%} of the steps, off by one or ten, carried on
- filler: after {corpus.filler_rate:.0%} of the steps
- optimizer: AdamW, {settings.steps:,} steps of at most {settings.batch_tokens:,} tokens, learning rate
  {settings.rate:g} with warm-up and cosine, weight decay {settings.weight_decay:g}
- versions: torch {torch}, transformers {transformers}, {settings.device}
- tokens seen: {last[tokens]:,}
- loss at the end: {last[loss]}

Stored in bfloat16, loaded as float32. Licence: Apache-2.0; all of its data was generated by this package.
"""


def data_sheet(model: Any, command: str, settings: Pretraining, corpus: Corpus, last: dict[str, Any]) -> str:
    """Return what a reader has to know of a base model, in Markdown."""
    return SHEET.format(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        layers=model.config.num_hidden_layers,
        width=model.config.hidden_size,
        command=command,
        settings=settings,
        corpus=corpus,
        styles=", ".join(f"{style} {share:.1%}" for style, share in corpus.shares.items()),
        torch=torch.__version__,
        transformers=transformers.__version__,
        last=last,
    )


def write_folder(folder: Path, model: Any, tokenizer: Any, sheet: str, log: list[dict[str, Any]]) -> None:
    """Write everything; the weights last, so that a folder without them is no model yet."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    write_whole(folder / "README.md", sheet.encode())
    write_whole(folder / "log.jsonl", "".join(json.dumps(record) + "\n" for record in log).encode())
    # the head is the embedding: stored once
    state = {name: weight for name, weight in model.state_dict().items() if name != "lm_head.weight"}
    weights = {name: weight.to("cpu", torch.bfloat16).contiguous() for name, weight in state.items()}
    write_whole(folder / "model.safetensors", save(weights, {"format": "pt"}))


if __name__ == "__main__":
    main()
