"""Time of `write_token_table` against plain forward passes over the same batches, in one run; writes JSON.

    python benchmarks/tokens.py --out results/tokens_h200.json
    python benchmarks/tokens.py --tokens 20000 --shape tiny --device cpu --out /tmp/tiny.json     # does it run at all

A model of random weights in the shape of Qwen2.5-1.5B, rows of made-up words, `--tokens` trained tokens. The plain
passes are given batches that are tokenised, sorted and padded already, and throw their logits away; ours reads rows and
leaves a file, everything but the loading of the model included. The methods take turns, and the fastest of each counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import machine
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config

from trimsft.data.encode import Encoder
from trimsft.data.templates import choose_template
from trimsft.tokens.forward import Batch, make_batches
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import BATCH_TOKENS, write_token_table

SHAPES = {
    "qwen2.5-1.5b": {
        "hidden_size": 1536,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "intermediate_size": 8960,
        "vocab_size": 151_936,
    },
    "tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 5000,
    },
}
CHUNK = 4096
"""Trained tokens whose logits are made at once, where hidden states are sliced by hand."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-1.5b")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-tokens", type=int, default=None)
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    options.batch_tokens = options.batch_tokens or BATCH_TOKENS[options.device.partition(":")[0]]
    bench = Bench(options)
    results = bench.run()
    settings = {name: value for name, value in vars(options).items() if not isinstance(value, Path)}
    content = {
        "machine": machine(),
        "settings": settings,
        "rows": len(bench.rows),
        "trained_tokens": bench.trained,
        "tokens_with_prompts": bench.total,
        "agreement": bench.agreement(),
        "results": results,
    }
    options.out.write_text(json.dumps(content, indent=1) + "\n")


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device(options.device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device.index or 0)
        shape = SHAPES[options.shape]
        self.tokenizer = make_tokenizer(shape["vocab_size"])
        self.rows = make_rows(options.tokens, shape["vocab_size"])
        config = Qwen2Config(**shape, tie_word_embeddings=True, max_position_embeddings=4096)
        torch.manual_seed(0)
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        with self.device:
            self.model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        template = choose_template("auto", self.tokenizer)
        examples, pinned = Encoder(self.tokenizer, template).examples(self.rows), self.device.type == "cuda"
        self.batches: list[Batch] = list(make_batches(examples, options.batch_tokens, pinned=pinned))
        self.trained = sum(len(batch.labels) for batch in self.batches)
        self.total = sum(len(example) for batch in self.batches for example in batch.examples)

    def run(self) -> list[dict[str, Any]]:
        methods: dict[str, Callable[[], None]] = {
            "model(input_ids, attention_mask).logits": lambda: self.plain(masked=True),
            "model(input_ids).logits": lambda: self.plain(masked=False),
            "hidden states, logits of trained tokens": self.sliced,
            "trimsft tokens": self.ours,
        }
        self.warm_up()
        times: dict[str, list[float]] = {name: [] for name in methods}
        peaks: dict[str, float | None] = {}
        for turn in range(self.options.repeat):
            for name, work in methods.items():
                seconds, peaks[name] = self.measure(work)
                times[name].append(seconds)
                print(f"{turn + 1}/{self.options.repeat} {name}: {seconds:.2f} s", flush=True)
        fastest = {name: min(seconds) for name, seconds in times.items()}
        return [
            {
                "method": name,
                "seconds": times[name],
                "trained_tokens_per_second": self.trained / fastest[name],
                "times_plain": fastest[name] / fastest["model(input_ids, attention_mask).logits"],
                "times_sliced": fastest[name] / fastest["hidden states, logits of trained tokens"],
                "peak_gib": peaks[name],
            }
            for name in methods
        ]

    def measure(self, work: Callable[[], None]) -> tuple[float, float | None]:
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        return seconds, torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None

    def warm_up(self) -> None:
        """Run everything briefly, so that no method pays for kernels that are compiled once."""
        everything, self.batches = self.batches, [self.batches[0], self.batches[-1]]
        rows, self.rows = self.rows, self.rows[:256]
        for masked in (True, False):
            self.plain(masked=masked)
        self.sliced()
        self.ours()
        self.batches, self.rows = everything, rows

    @torch.inference_mode()
    def plain(self, *, masked: bool) -> None:
        """Compute all logits, as people write it."""
        for batch in self.batches:
            ids = batch.ids.to(self.device, non_blocking=True)
            mask = None
            if masked:
                lengths = torch.tensor([[len(example)] for example in batch.examples])
                mask = (torch.arange(ids.shape[1]) < lengths).long().to(self.device, non_blocking=True)
            self.model(input_ids=ids, attention_mask=mask, use_cache=False)

    @torch.inference_mode()
    def sliced(self) -> None:
        """Compute the logits of trained tokens alone, in the model's dtype."""
        for batch in self.batches:
            ids, places = (part.to(self.device, non_blocking=True) for part in (batch.ids, batch.places))
            hidden = self.model.model(input_ids=ids, use_cache=False).last_hidden_state.flatten(end_dim=-2)
            for part in places.split(CHUNK):
                self.model.lm_head(hidden[part])

    def ours(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_token_table(
                self.model,
                self.rows,
                Path(folder) / "tokens.parquet",
                tokenizer=self.tokenizer,
                batch_tokens=self.options.batch_tokens,
            )

    @torch.inference_mode()
    def agreement(self) -> dict[str, float]:
        """Compare nll and gap of the first rows with a float32 softmax of plain logits, row by row."""
        rows = self.rows[:16]
        with tempfile.TemporaryDirectory() as folder:
            path = write_token_table(self.model, rows, Path(folder) / "t.parquet", tokenizer=self.tokenizer)
            table = read_token_table(path)
        nll, gap = [], []
        for example in Encoder(self.tokenizer, template=choose_template("auto", self.tokenizer)).examples(rows):
            ids = torch.tensor([example.prompt + example.completion], device=self.device)
            logits = self.model(input_ids=ids).logits[0, len(example.prompt) - 1 : -1].float()
            gold = torch.tensor(example.completion, device=self.device)[:, None]
            nll.append(-logits.log_softmax(-1).gather(1, gold)[:, 0])
            others = logits.scatter(1, gold, -torch.inf).max(1).values
            gap.append(logits.gather(1, gold)[:, 0] - others)
        plain = {"nll": torch.cat(nll), "gap": torch.cat(gap)}
        return {
            f"mean_absolute_{name}_difference": float(np.abs(table[name] - values.cpu().numpy()).mean())
            for name, values in plain.items()
        }


def make_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token for each of so many made-up words."""
    words = {"<unk>": 0, "<eos>": 1, "a": 2} | {f"w{number}": number for number in range(3, vocabulary)}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="<eos>")


def make_rows(tokens: int, vocabulary: int) -> list[dict[str, str]]:
    """Problems of about 80 words, solutions of about 400, log-normal; few words are frequent, as in any language."""
    random = np.random.default_rng(0)
    rows: list[dict[str, str]] = []
    left = tokens
    while left > 0:
        lengths = [random.lognormal(np.log(mean) - 0.18, 0.6) for mean in (80, 400)]
        problem, solution = (int(np.clip(length, 8, 2000)) for length in lengths)
        solution = max(1, min(solution, left - 1))
        ids = 3 + np.minimum(random.zipf(1.3, problem + solution), 2**40) % (vocabulary - 3)
        words = [f"w{number}" for number in ids.tolist()]
        rows.append({"problem": " ".join(words[:problem]), "solution": " ".join(words[problem:])})
        left -= solution + 1  # with eos
    return rows


if __name__ == "__main__":
    main()
