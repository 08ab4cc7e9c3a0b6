"""Samples a second of `trimsft eval` against plain `generate` of transformers, in one run; writes JSON.

    python benchmarks/generate.py --model MODEL --problems gsm8k.jsonl --out docs/results/generate_h200.json
    python benchmarks/generate.py --model MODEL --problems gsm8k.jsonl --limit 4 --batches 4 --max-tokens 16 \
        --out /tmp/tiny.json                                                      # does it run at all

Every method answers the same problems, `--samples` times each, at temperature 1; tokens count up to and with the eos.
Both draw from the same distribution: the mean log-probability of what each wrote, scored by one plain pass, is in the
JSON with its standard error. `--all-limit` is what only ours answers, to see it with less of a tail.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trimsft.bench.head import machine
from trimsft.evaluate.engines.base import Request, Sampling
from trimsft.evaluate.engines.transformers_engine import TransformersEngine
from trimsft.evaluate.prompts import make_prompts

SCORED = 1024
"""Texts of each method whose log-probability is computed."""

Texts = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=512)
    parser.add_argument("--all-limit", type=int, default=None, help="all problems unless given")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 256, 512], help="problems at once")
    parser.add_argument("--rows", type=int, nargs="*", default=[], help="slots, beside what it chooses itself")
    options = parser.parse_args()
    bench = Bench(options)
    prompts = bench.prompts[: options.limit]
    results = [
        bench.measure(f"generate, {n} x {options.samples} rows", lambda n=n: bench.plain(prompts, n), prompts)
        for n in options.batches
    ]
    for rows in (None, None, *options.rows):  # the first of them compiles
        name = f"trimsft, {rows or 'chosen'} slots"
        results.append(bench.measure(name, lambda rows=rows: bench.slots(prompts, rows), prompts))
    everything = bench.prompts[: options.all_limit]
    results.append(bench.measure("trimsft, all problems", lambda: bench.slots(everything), everything))
    results += bench.variation(prompts[:32])
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    content = {"machine": machine(), "settings": settings, "results": results}
    options.out.write_text(json.dumps(content, indent=1) + "\n")


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(options.model)
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=options.dtype)
        self.model: Any = model.to(device).eval()
        self.eos = int(self.tokenizer.eos_token_id)
        rows = [json.loads(line) for line in options.problems.read_text().splitlines()]
        made = make_prompts([row["problem"] for row in rows], self.tokenizer)
        self.prompts = [tuple(prompt.tokens or ()) for prompt in made.prompts]

    def measure(self, name: str, work: Callable[[], Texts], prompts: list[tuple[int, ...]]) -> dict[str, Any]:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        texts = work()
        seconds = time.perf_counter() - start
        count = sum(map(len, texts))
        result = {
            "method": name,
            "samples": len(texts),
            "seconds": seconds,
            "samples_per_second": len(texts) / seconds,
            "tokens_per_second": count / seconds,
            "mean_tokens": count / len(texts),
            "cut_off": sum(text[-1] != self.eos for text in texts) / len(texts),
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None,
            **self.score(texts, prompts),
        }
        print(json.dumps(result), flush=True)
        return result

    def plain(self, prompts: list[tuple[int, ...]], at_once: int) -> Texts:
        """What people write: sorted by length, padded on the left, all sampling explicit."""
        order = sorted(range(len(prompts)), key=lambda at: -len(prompts[at]))
        texts: dict[int, Texts] = {}
        self.tokenizer.padding_side, self.tokenizer.pad_token_id = "left", self.eos
        for start in range(0, len(order), at_once):
            part = order[start : start + at_once]
            batch = self.tokenizer.pad({"input_ids": [list(prompts[at]) for at in part]}, return_tensors="pt")
            with torch.inference_mode():
                rows = self.model.generate(
                    **batch.to(self.model.device),
                    max_new_tokens=self.options.max_tokens,
                    do_sample=True,
                    temperature=1.0,
                    top_p=1.0,
                    top_k=0,
                    num_return_sequences=self.options.samples,
                    eos_token_id=self.eos,
                    pad_token_id=self.eos,
                )[:, batch["input_ids"].shape[1] :].tolist()
            for number, at in enumerate(part):
                own = rows[number * self.options.samples : (number + 1) * self.options.samples]
                texts[at] = [self.until_eos(row) for row in own]
        return [text for at in range(len(prompts)) for text in texts[at]]

    def slots(self, prompts: list[tuple[int, ...]], rows: int | None = None) -> Texts:
        """Our engine, but for the decoding of texts: it is made to hand out tokens."""
        engine = _TokenEngine(self.model, self.tokenizer, batch_size=rows)
        sampling = Sampling(max_tokens=self.options.max_tokens)
        requests = [
            Request("", self.options.samples * at + number, sampling, prompt)
            for at, prompt in enumerate(prompts)
            for number in range(self.options.samples)
        ]
        for _ in engine.generate(requests):
            pass
        return [engine.rows[index] for index in range(len(requests))]

    def variation(self, prompts: list[tuple[int, ...]]) -> list[dict[str, Any]]:
        """Share of the samples that come out otherwise in other company: rounding that depends on the batch."""
        whole = self.slots(prompts)
        results = []
        for rows in (len(whole) // 4, len(whole) // 16):
            other = self.slots(prompts, max(1, rows))
            same = sum(a == b for a, b in zip(whole, other, strict=True)) / len(whole)
            results.append({"method": f"variation, {rows} slots", "samples": len(whole), "same": same})
            print(json.dumps(results[-1]), flush=True)
        return results

    def until_eos(self, row: list[int]) -> list[int]:
        return row[: row.index(self.eos) + 1] if self.eos in row else row

    def score(self, texts: Texts, prompts: list[tuple[int, ...]]) -> dict[str, float]:
        """Mean log-probability of a text's tokens, by a plain pass over some of them."""
        chosen = sorted(range(0, len(texts), max(1, len(texts) // SCORED)), key=lambda at: len(texts[at]))
        means = []
        for start in range(0, len(chosen), 32):
            part = [(prompts[at // self.options.samples], texts[at]) for at in chosen[start : start + 32]]
            width = max(len(prompt) + len(text) for prompt, text in part)
            rows = [[*prompt, *text, *[0] * (width - len(prompt) - len(text))] for prompt, text in part]
            ids = torch.tensor(rows, device=self.model.device)
            with torch.inference_mode():
                logits = self.model(input_ids=ids).logits
            for row, (prompt, text) in enumerate(part):
                said = slice(len(prompt) - 1, len(prompt) + len(text) - 1)
                shares = logits[row, said].float().log_softmax(-1)
                means.append(shares.gather(1, torch.tensor(text, device=ids.device)[:, None]).mean())
        values = torch.stack(means)
        error = float(values.std() / math.sqrt(len(values)))
        return {"log_probability": float(values.mean()), "log_probability_error": error}


class _TokenEngine(TransformersEngine):
    """Keeps the tokens of each text."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.rows: dict[int, list[int]] = {}

    def _completion(self, index: int, row: list[int], sampling: Sampling) -> Any:
        self.rows[index] = row
        return super()._completion(index, row, sampling)


if __name__ == "__main__":
    main()
