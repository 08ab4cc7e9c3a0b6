"""Tokens a second of `trimsft eval`, of `generate` and of `generate_batch` of transformers, in one run; writes JSON.

    python benchmarks/generate.py --model MODEL --problems gsm8k.jsonl --out results/generate_h200.json
    python benchmarks/generate.py --model smollm2-135m --device cuda --limit 128 --batches 128 --max-tokens 320 \
        --out generate.json                                   # random weights and prompts: needs no file
    python benchmarks/generate.py --model tiny --limit 16 --samples 4 --batches 16 --max-tokens 32 --dtype float32 \
        --repeat 3 --out tiny.json                                               # does it run at all

MODEL is a folder, a GGUF file, or a shape of `SHAPES`. Every method answers the same prompts, `--samples` times each,
at temperature 1; tokens count up to and with the one that ends a text. All draw from the same distribution: the mean
log-probability of what each wrote, scored by one plain pass, is in the JSON with its standard error. `agreement` is the
share of greedy texts, in float32, that equal those of `generate` for one prompt at a time. `--all-limit` is what only
ours answers, to see it with less of a tail. What fails is recorded with its message, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from measuring import machine
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from trimsft.evaluate.engines import Request, Sampling
from trimsft.evaluate.engines.transformers_engine import CPU_ROWS, TransformersEngine, bare_generation

SCORED = 1024
"""Texts of each method whose log-probability is computed."""

GREEDY_PROMPTS, GREEDY_TOKENS = 8, 32
TRIED_SHARE = 4
"""`generate_batch` is tried with one in so many prompts first, which takes at least this share of the time for all."""

SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    | {"num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True},
    "tiny": {"vocab_size": 1024, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    | {"num_attention_heads": 4, "num_key_value_heads": 2},
}
"""Llamas with random weights. Their texts end with any of so many tokens that the mean length is MEAN_LENGTH."""
MEAN_LENGTH = 200

Prompts = Sequence[tuple[int, ...]]
Texts = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--problems", type=Path, default=None, help="needed but for a shape")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--limit", type=int, default=512, help="problems")
    parser.add_argument("--all-limit", type=int, default=None, help="all problems unless given")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 256, 512], help="problems at once")
    parser.add_argument("--rows", type=int, nargs="*", default=[], help="slots, beside what it chooses itself")
    parser.add_argument("--repeat", type=int, default=2, help="rounds; the first loads kernels")
    parser.add_argument(
        "--patience", type=float, default=60, help="seconds for generate_batch, by its speed in a trial"
    )
    options = parser.parse_args()
    if options.problems is None and options.model not in SHAPES:
        parser.error(f"--problems is needed, unless --model is a shape: {', '.join(SHAPES)}")
    bench = Bench(options)
    results = bench.agreement(bench.prompts[:GREEDY_PROMPTS])
    bench.model.to(getattr(torch, options.dtype))
    prompts = bench.prompts[: options.limit]
    methods: dict[str, Callable[[], Texts]] = {
        f"trimsft, {rows or 'chosen'} slots": partial(bench.slots, prompts, rows=rows) for rows in (None, *options.rows)
    }
    for size in options.batches:
        methods[f"generate, {size} x {options.samples} rows"] = partial(bench.plain, prompts, at_once=size)
    if bench.has_time_for_continuous(prompts, results):
        methods["generate_batch"] = partial(bench.continuous, prompts)
    for round_number in range(options.repeat):
        results += [bench.measure(name, work, prompts, round_number) for name, work in methods.items()]
    everything = bench.prompts[: options.all_limit]
    results.append(bench.measure("trimsft, all problems", lambda: bench.slots(everything), everything))
    results += bench.variation(prompts[:32])
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    versions = {"transformers": transformers.__version__, "attention": bench.model.config._attn_implementation}
    content = {"machine": machine() | versions, "settings": settings, "results": results}
    options.out.write_text(json.dumps(content, indent=1) + "\n")


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        if options.model in SHAPES:
            torch.manual_seed(0)
            config = LlamaConfig(**SHAPES[options.model], max_position_embeddings=2048, eos_token_id=0)
            model: Any = LlamaForCausalLM(config)
            self.stops = list(range(max(1, config.vocab_size // MEAN_LENGTH)))
            self.tokenizer: Any = _NoTokenizer()
            self.prompts = make_random_prompts(config.vocab_size)
        else:
            path = Path(options.model)
            source = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
            folder = path.parent if source else path
            self.tokenizer = AutoTokenizer.from_pretrained(folder, **source)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", **source)
            self.stops = [int(self.tokenizer.eos_token_id)]
            self.prompts = read_prompts(options.problems, self.tokenizer)
        self.ends = set(self.stops)
        self.model = model.to(options.device).eval()

    def measure(self, name: str, work: Callable[[], Texts], prompts: Prompts, round_number: int = 0) -> dict[str, Any]:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        start, cpu_start = time.perf_counter(), time.process_time()
        result: dict[str, Any] = {"method": name, "round": round_number}
        try:
            texts = work()
        except Exception as failure:  # one of them may not know this model or this machine
            result |= {"error": f"{type(failure).__name__}: {failure}"}
        else:
            seconds, count = time.perf_counter() - start, sum(map(len, texts))
            result |= {
                "samples": len(texts),
                "seconds": seconds,
                "cpu_seconds": time.process_time() - cpu_start,
                "samples_per_second": len(texts) / seconds,
                "tokens_per_second": count / seconds,
                "mean_tokens": count / len(texts),
                "cut_off": sum(text[-1] not in self.ends for text in texts) / len(texts),
                "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None,
                **self.score(texts, prompts),
            }
        print(json.dumps(result), flush=True)
        return result

    def config(self, greedy: int | None) -> GenerationConfig:
        """Return a config with all sampling explicit; `greedy` is the number of greedy tokens, None for samples."""
        sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
        new = greedy or self.options.max_tokens
        return GenerationConfig(max_new_tokens=new, eos_token_id=self.stops, pad_token_id=self.stops[0], **sampling)

    def plain(self, prompts: Prompts, at_once: int, greedy: int | None = None) -> Texts:
        """Generate as people write it: sorted by length, padded on the left."""
        order = sorted(range(len(prompts)), key=lambda at: -len(prompts[at]))
        samples = 1 if greedy else self.options.samples
        config = self.config(greedy)
        config.num_return_sequences = samples
        texts: dict[int, Texts] = {}
        for start in range(0, len(order), at_once):
            part = order[start : start + at_once]
            rows = [prompts[at] for at in part]
            padded = [[*[self.stops[0]] * (len(rows[0]) - len(row)), *row] for row in rows]
            masks = [[*[0] * (len(rows[0]) - len(row)), *[1] * len(row)] for row in rows]
            tensors = (torch.tensor(one, device=self.model.device) for one in (padded, masks))
            batch = dict(zip(("input_ids", "attention_mask"), tensors, strict=True))
            with bare_generation(self.model):
                new = self.model.generate(**batch, generation_config=config)[:, len(padded[0]) :].tolist()
            for number, at in enumerate(part):
                texts[at] = [self.until_stop(row) for row in new[number * samples : (number + 1) * samples]]
        return [text for at in range(len(prompts)) for text in texts[at]]

    def continuous(self, prompts: Prompts, greedy: int | None = None) -> Texts:
        """Generate by `generate_batch`, which shares what prompts have in common."""
        rows = [list(prompt) for prompt in prompts for _ in range(1 if greedy else self.options.samples)]
        limits: dict[str, Any] = {}
        if self.model.device.type == "cpu":  # where it would take nine tenths of all memory for its cache
            longest, block = max(map(len, rows)) + self.options.max_tokens, 32
            blocks = 2 + math.ceil(longest / block)
            limits = {"block_size": block, "num_blocks": CPU_ROWS * blocks, "max_batch_tokens": 2048}
            limits["max_requests_per_batch"] = CPU_ROWS
        from transformers.generation import ContinuousBatchingConfig

        settings = ContinuousBatchingConfig(seed=0, **limits)
        made = self.model.generate_batch(rows, self.config(greedy), settings, progress_bar=False)
        problems = [output.error for output in made.values() if output.error]
        if problems or len(made) != len(rows):
            raise RuntimeError(
                f"{len(made)} of {len(rows)} texts; {problems[0] if problems else 'its thread has ended'}"
            )
        return [list(output.generated_tokens) for output in made.values()]

    def has_time_for_continuous(self, prompts: Prompts, results: list[dict[str, Any]]) -> bool:
        """Return whether `generate_batch` would answer all within the patience; records the trial."""
        some = prompts[:: min(TRIED_SHARE, len(prompts))]
        trial = self.measure(f"generate_batch, trial of {len(some)} prompts", lambda: self.continuous(some), some)
        results.append(trial)
        return bool(trial.get("seconds", math.inf) * len(prompts) / len(some) <= self.options.patience)

    def slots(self, prompts: Prompts, rows: int | None = None, greedy: int | None = None) -> Texts:
        """Generate by our engine, but for the decoding of texts: it is made to hand out tokens."""
        engine = _TokenEngine(self.model, self.tokenizer, batch_size=rows)
        engine._model_eos = self.stops
        sampling = Sampling(max_tokens=greedy or self.options.max_tokens, temperature=0.0 if greedy else 1.0)
        samples = 1 if greedy else self.options.samples
        numbered = [(samples * at + number, prompt) for at, prompt in enumerate(prompts) for number in range(samples)]
        for _ in engine.generate([Request("", seed, sampling, prompt) for seed, prompt in numbered]):
            pass
        return [self.until_stop(engine.rows[index]) for index in range(len(numbered))]

    def agreement(self, prompts: Prompts) -> list[dict[str, Any]]:
        """Count the greedy texts that are those of one prompt at a time."""
        wanted = self.plain(prompts, at_once=1, greedy=GREEDY_TOKENS)
        methods: dict[str, Callable[[], Texts]] = {
            "trimsft": lambda: self.slots(prompts, greedy=GREEDY_TOKENS),
            "generate": lambda: self.plain(prompts, at_once=len(prompts), greedy=GREEDY_TOKENS),
            "generate_batch": lambda: self.continuous(prompts, greedy=GREEDY_TOKENS),
        }
        results: list[dict[str, Any]] = []
        for name, work in methods.items():
            result: dict[str, Any] = {"method": f"agreement, {name}", "samples": len(prompts)}
            try:
                result["same"] = sum(a == b for a, b in zip(work(), wanted, strict=True)) / len(wanted)
            except Exception as failure:
                result["error"] = f"{type(failure).__name__}: {failure}"
            print(json.dumps(result), flush=True)
            results.append(result)
        return results

    def variation(self, prompts: Prompts) -> list[dict[str, Any]]:
        """Return the share of samples that other batches change: rounding depends on the batch."""
        whole = self.slots(prompts)
        results = []
        for rows in (len(whole) // 4, len(whole) // 16):
            other = self.slots(prompts, max(1, rows))
            same = sum(a == b for a, b in zip(whole, other, strict=True)) / len(whole)
            results.append({"method": f"variation, {rows} slots", "samples": len(whole), "same": same})
            print(json.dumps(results[-1]), flush=True)
        return results

    def until_stop(self, row: list[int]) -> list[int]:
        end = next((at for at, token in enumerate(row) if token in self.ends), len(row))
        return row[: end + 1]

    def score(self, texts: Texts, prompts: Prompts) -> dict[str, float]:
        """Return the mean log-probability of a text's tokens, by a plain pass over some of them."""
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


class _NoTokenizer:
    """For tokens that stand for nothing."""

    eos_token_id = None

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return ""


def make_random_prompts(vocabulary: int, count: int = 1319) -> list[tuple[int, ...]]:
    """Return as many prompts as GSM8K has, of lengths like those of its chats."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(60, 180, (count,), generator=generator).tolist()
    return [tuple(torch.randint(vocabulary // 2, vocabulary, (n,), generator=generator).tolist()) for n in lengths]


def read_prompts(problems: Path, tokenizer: Any) -> list[tuple[int, ...]]:
    from trimsft.evaluate.prompts import make_prompts

    rows = [json.loads(line) for line in problems.read_text().splitlines()]
    made = make_prompts([row["problem"] for row in rows], tokenizer)
    return [tuple(prompt.tokens or ()) for prompt in made.prompts]


if __name__ == "__main__":
    main()
