"""Inputs that are wrong in every way: data, settings, benchmarks, model folders, numbers that are none.

A command takes them, or refuses in one line and leaves nothing behind.
"""

import json
import math
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.soak.campaign import Kind, Lost, Trial, require_refused, require_told
from tools.soak.children import Ended
from tools.soak.damage import DAMAGES

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**64, -(2**70), 1e308, -1e-320, math.nan, math.inf, -math.inf, "", " ", "\0",
    "nan", "1e400", "true", "../../..", "/", "-", "--help", "\x1b[2J\x07", "\ud800", "\u202e\ufeff", "x" * 70_000,
    "1" * 5_000, [], [None], [[[[]]]], {}, {"": None}, [1, "a", {}], {"$ref": "#"}, "${HOME}", "{{7*7}}",
    "!!python/object:os.system",
)  # fmt: skip
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def mutate(value: Any, rng: random.Random, nasty: Sequence[Any] = NASTY) -> Any:
    """A copy of a JSON value with one thing in it replaced, removed, added or wrapped."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        change = rng.randrange(6)
        if change == 0:
            return {name: entry for name, entry in value.items() if name != key}
        if change == 1:
            return {**value, str(rng.choice(nasty))[:50]: rng.choice(nasty)}
        return {**value, key: mutate(value[key], rng, nasty)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], mutate(value[place], rng, nasty), *value[place + 1 :]]
    return rng.choice((*nasty, [value], {"x": value}))


def mutate_bytes(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A file with something wrong with it, and what."""
    nested = b'{"problem": ' + b"[" * 100_000
    more = {
        "deeply nested": lambda: content + nested,
        "not UTF-8": lambda: content[: len(content) // 2] + b"\xff\xfe\xc3\x28" + content[len(content) // 2 :],
        "UTF-16": lambda: content.decode(errors="replace").encode("utf-16"),
        "a byte order mark": lambda: b"\xef\xbb\xbf" + content,
        "CR for LF": lambda: content.replace(b"\n", b"\r"),
        "a line twice": lambda: content + content[: content.find(b"\n") + 1],
        "a very long line": lambda: content + b'{"problem": "' + b"7" * 3_000_000 + b'", "solution": "1"}\n',
        "a large number": lambda: content + b'{"problem": ' + b"9" * 10_000 + b', "solution": 1e999}\n',
        "only blanks": lambda: b" \n\n\t\n",
    }
    how = rng.choice([*DAMAGES, *more])
    changed = more[how]() if how in more else DAMAGES[how](content, rng)
    return how, b"" if changed is None else changed


def mutated_lines(path: Path, rng: random.Random) -> tuple[str, bytes]:
    """A file of JSON lines in which one row is not what it should be."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    place = rng.randrange(len(rows))
    rows[place] = mutate(rows[place], rng)
    return f"row {place} {json.dumps(rows[place])[:80]}", "".join(json.dumps(row) + "\n" for row in rows).encode()


def mutated(path: Path, rng: random.Random) -> tuple[str, bytes]:
    """A file of JSON lines with something wrong, in a row or as a whole."""
    return mutated_lines(path, rng) if rng.random() < 0.5 else mutate_bytes(path.read_bytes(), rng)


def require_no_trace(trial: Trial, ended: Ended, what: str) -> None:
    """What was refused as it stood has left nothing that would stand in the way of the corrected command."""
    if ended.code == 2:
        left = [path for path in sorted((trial.folder / "out").rglob("*")) if path.is_file() and path.name != ".lock"]
        if left:
            raise Lost(
                f"{what}: refused, but it left {', '.join(str(path.relative_to(trial.folder)) for path in left[:5])}"
            )


def wrong_data(trial: Trial) -> None:
    bench, rng = trial.bench, trial.rng
    how, content = mutated(bench.data, rng)
    end = rng.choice((".jsonl", ".jsonl", ".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz", ".txt", ""))
    path = trial.folder / f"data{end}"
    path.write_bytes(content)
    words = {
        "train": [*bench.words("train"), "--dataset_name", str(path), "--max_steps", "1"],
        "preview": ["tokens", str(bench.base), "--data", str(path), "--show", "3"],
        "tokens": ["tokens", str(bench.base), "--data", str(path), "--limit", "8", "--out", "out"],
    }
    command = rng.choice(list(words))
    what = f"{command} of data{end}, {how}"
    trial.note(what)
    ended = trial.run(words[command])
    require_told(ended, what)
    require_no_trace(trial, ended, what)


FIELDS = (
    "learning_rate", "max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps",
    "seed", "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    "save_steps", "save_total_limit", "logging_steps", "margin", "bandwidth", "gamma", "objective", "skip_below",
    "max_length", "lr_scheduler_type", "optim", "dataset_name", "model_name_or_path", "template", "packing", "bf16",
    "report_to", "eval_strategy", "eval_steps", "problem_column", "sample", "resume_from_checkpoint",
    "lr_scheduler_kwargs", "model_init_kwargs", "env", "neftune_noise_alpha",
    "label_smoothing_factor", "save_strategy", "fsdp", "fsdp_config", "deepspeed", "torch_compile",
    "gradient_checkpointing", "use_peft", "lora_r", "lora_alpha", "metric_for_best_model", "load_best_model_at_end",
    "ddp_timeout",
)  # fmt: skip


def wrong_settings(trial: Trial) -> None:
    """A recipe with a field that cannot be, in YAML or on the command line."""
    bench, rng = trial.bench, trial.rng
    words = [*bench.words("train"), "--max_steps", "1"]
    kind = rng.choice(("recipe", "recipe", "words", "text"))
    if kind == "words":
        values = [value for value in NASTY if isinstance(value, str | int | float) and value not in ("\0", "\ud800")]
        name, value = rng.choice(FIELDS), str(rng.choice(values))
        extra, what = [f"--{name}", value], f"--{name} {value[:40]!r}"
    else:
        fields = dict(zip([word[2:] for word in words[1::2]], words[2::2], strict=True))
        what, text = _wrong_recipe(fields, kind, rng)
        (trial.folder / "recipe.yaml").write_bytes(text)
        words, extra = ["train"], ["--config", "recipe.yaml", "--output_dir", "out"]
    trial.note(what)
    ended = trial.run([*words, *extra], timeout=60)
    require_told(ended, what)
    require_no_trace(trial, ended, what)


def _wrong_recipe(fields: dict[str, str], kind: str, rng: random.Random) -> tuple[str, bytes]:
    import yaml

    plain: dict[str, Any] = {name: yaml.safe_load(value) for name, value in fields.items()}
    if kind == "text":
        how, text = mutate_bytes(yaml.safe_dump(plain).encode(), rng)
        return rng.choice(
            [(f"a recipe, {how}", text), ("an alias bomb", BOMB.encode()), ("an alias in itself", b"a: &a [*a]")]
        )
    name, value = rng.choice(FIELDS), rng.choice([value for value in NASTY if value != "\ud800"])
    return f"{name}: {str(value)[:40]!r}", yaml.safe_dump({**plain, name: value}, allow_unicode=True).encode(
        "utf-8", "replace"
    )


def wrong_benchmark(trial: Trial) -> None:
    bench, rng = trial.bench, trial.rng
    how, content = mutated(bench.benchmark, rng)
    name = rng.choice(
        ("sums.jsonl", "sums.jsonl", "sums.jsonl", "...jsonl", ".jsonl", "a b\n.jsonl", "x" * 240 + ".jsonl")
    )
    (trial.folder / name).write_bytes(content)
    what = f"eval of {name[:20]!r}, {how}"
    trial.note(what)
    ended = trial.run(
        ["eval", str(bench.base), "-b", f"./{name}", "--samples", "1", "--max-tokens", "8", "--out", "out"]
    )
    require_told(ended, what)
    require_no_trace(trial, ended, what)
    strays = [path.name for path in trial.folder.iterdir() if path.name not in ("out", "logs", name)]
    if strays:
        raise Lost(f"{what}: it wrote outside of its folder: {strays}")


def wrong_model(trial: Trial) -> None:
    """A model folder in which something is wrong: a file, a setting, a tensor."""
    bench, rng = trial.bench, trial.rng
    folder = trial.folder / "model"
    shutil.copytree(bench.base, folder)
    make_wrong = rng.choice((_wrong_file, _wrong_json, _wrong_tensor))
    what = make_wrong(folder, rng)
    weights = "model.safetensors"
    words = {
        "train": [*bench.words("train"), "--model_name_or_path", "model", "--max_steps", "1"],
        "eval": ["eval", "model", "-b", str(bench.benchmark), "--samples", "1", "--max-tokens", "8", "--out", "out"],
        "tokens": ["tokens", "model", "--data", str(bench.data), "--limit", "8", "--out", "out"],
    }
    command = rng.choice(list(words))
    what = f"{command} of a model, {what}"
    trial.note(what)
    ended = trial.run(words[command])
    require_told(ended, what)
    # randomly initialised weights, or NaN, are no model; other bytes in their place are one like any other
    is_other_size = (folder / weights).stat().st_size != (bench.base / weights).stat().st_size
    if make_wrong is _wrong_tensor or is_other_size:
        require_refused(ended, what)


def _wrong_file(folder: Path, rng: random.Random) -> str:
    path = rng.choice([path for path in sorted(folder.iterdir()) if path.name not in ("README.md", "log.jsonl")])
    how, content = mutate_bytes(path.read_bytes(), rng)
    path.write_bytes(content)
    return f"{path.name} {how}"


def _wrong_json(folder: Path, rng: random.Random) -> str:
    path = folder / rng.choice(
        ("config.json", "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
    )
    before = json.loads(path.read_text())
    after = mutate(before, rng)
    path.write_text(json.dumps(after))
    changed = [name for name in before if not isinstance(after, dict) or after.get(name) != before[name]]
    return f"{path.name} with other {', '.join(changed)[:100]}"


def _wrong_tensor(folder: Path, rng: random.Random) -> str:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    name = rng.choice(sorted(weights))
    how = rng.choice(
        ("missing tensor", "tensor of another shape", "tensor of NaN", "tensor of infinity", "surplus tensor")
    )
    if how == "missing tensor":
        del weights[name]
    elif how == "tensor of another shape":
        weights[name] = weights[name][..., :-1].contiguous()
    elif how == "surplus tensor":
        weights["model.layers.99.mlp.up_proj.weight"] = weights[name].clone()
        how = "one more in the file"
    else:
        weights[name] = weights[name] * (math.nan if "NaN" in how else math.inf)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return f"{how} {name}"


KINDS = [
    Kind("wrong-data", wrong_data, weight=2),
    Kind("wrong-settings", wrong_settings, weight=3),
    Kind("wrong-benchmark", wrong_benchmark, weight=1.5),
    Kind("wrong-model", wrong_model, weight=2),
]
