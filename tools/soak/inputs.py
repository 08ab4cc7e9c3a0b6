"""Wrong input: a command takes it, or refuses in one line and leaves nothing that stands in the corrected one's way."""

import json
import math
import random
import shutil
from typing import Any

import yaml

from tools.soak.faults import DAMAGES
from tools.soak.trials import Lost, Trial, require_word

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**64, -(2**70), 1e308, -1e-320, math.nan, math.inf, -math.inf, "", " ", "\0",
    "nan", "1e400", "true", "../../..", "/", "-", "--help", "\x1b[2J\x07", "\ud800", "\u202e\ufeff", "x" * 70_000,
    "1" * 5_000, [], [None], [[[[]]]], {}, {"": None}, [1, "a", {}], {"$ref": "#"}, "${HOME}", "{{7*7}}",
    "!!python/object:os.system",
)  # fmt: skip
FIELDS_OF_TRL = """
learning_rate max_steps num_train_epochs per_device_train_batch_size seed warmup_steps max_grad_norm save_steps
max_length lr_scheduler_type optim packing bf16 report_to eval_strategy model_init_kwargs fsdp use_peft lora_r
"""
FIELDS = f"""{FIELDS_OF_TRL}
margin bandwidth objective skip_below dataset_name model_name_or_path template problem_column sample
resume_from_checkpoint env
"""


def mutate(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with one thing in it replaced, removed, added or wrapped."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key, change = rng.choice(list(value)), rng.randrange(6)
        if change == 0:
            return {name: entry for name, entry in value.items() if name != key}
        return {**value, **({str(rng.choice(NASTY))[:50]: key} if change == 1 else {key: mutate(value[key], rng)})}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], mutate(value[place], rng), *value[place + 1 :]]
    return rng.choice((*NASTY, [value], {"x": value}))


def mutate_bytes(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return what was done to a file, and the file."""
    half = len(content) // 2
    more = {
        "deeply nested": content + b'{"problem": ' + b"[" * 100_000,
        "not UTF-8": content[:half] + b"\xff\xfe\xc3\x28" + content[half:],
        "UTF-16": content.decode(errors="replace").encode("utf-16"),
        "CR for LF": content.replace(b"\n", b"\r"),
        "a line twice": content + content[: content.find(b"\n") + 1],
        "a very long line": content + b'{"problem": "' + b"7" * 3_000_000 + b'", "solution": "1"}\n',
        "a large number": content + b'{"problem": ' + b"9" * 10_000 + b', "solution": 1e999}\n',
    }
    how = rng.choice([*DAMAGES, *more])
    return how, more[how] if how in more else DAMAGES[how](content, rng)


def require_refusal(
    trial: Trial, words: list[str], what: str, *, must_refuse: bool = False, library_speaks: bool = False
) -> None:
    """Run a command on wrong input, and see what it says and leaves; a library may say it with its traceback."""
    trial.did.append(what)
    before = {*trial.folder.iterdir(), trial.out, trial.folder / "logs"}
    ended = trial.run(words)
    if not (library_speaks and ended.code == 1):
        require_word(ended, what, (1, 2) if must_refuse else (0, 1, 2))
    left = [path.name for path in trial.out.rglob("*") if path.is_file() and path.name != ".lock"]
    if ended.code == 2 and left:
        raise Lost(f"{what}: refused, but it left {', '.join(left[:5])}")
    if strays := set(trial.folder.iterdir()) - before:
        raise Lost(f"{what}: it wrote outside of its folder: {strays}")


def wrong_rows(trial: Trial) -> None:
    """Feed data or a benchmark with something wrong, in a row or as a whole."""
    bench, rng = trial.bench, trial.rng
    path, rows = rng.choice((bench.data, bench.benchmark)), []
    how, content = mutate_bytes(path.read_bytes(), rng)
    if rng.random() < 0.5:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        place = rng.randrange(len(rows))
        rows[place] = mutate(rows[place], rng)
        how = f"row {place} {json.dumps(rows[place])[:80]}"
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    ends = (".jsonl", ".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz", ".txt")
    name = rng.choice(("...jsonl", ".jsonl", "a b\n.jsonl", "x" * 240 + ".jsonl", *(f"rows{end}" for end in ends)))
    (trial.folder / name).write_bytes(content)
    words = bench.words("eval" if path == bench.benchmark else rng.choice(("train", "tokens")))
    words = [f"./{name}" if word == str(path) else word for word in words]
    require_refusal(trial, words, f"{words[0]} of {name[:20]!r}, {how}")


def wrong_settings(trial: Trial) -> None:
    """Train by a recipe with a field that cannot be, or by a damaged one."""
    words, rng = trial.bench.words("train"), trial.rng
    recipe = {word[2:]: yaml.safe_load(text) for word, text in zip(words[1::2], words[2::2], strict=True)}
    what, content = mutate_bytes(yaml.safe_dump(recipe).encode(), rng)
    is_trls = False
    if rng.random() < 0.8:
        name, value = rng.choice(FIELDS.split()), rng.choice([one for one in NASTY if one != "\ud800"])
        is_trls = name in FIELDS_OF_TRL.split()
        what, content = f"{name}: {str(value)[:40]!r}", yaml.safe_dump({**recipe, name: value}).encode()
    (trial.folder / "recipe.yaml").write_bytes(content)
    words = ["train", "--config", "recipe.yaml", "--output_dir", "out"]
    require_refusal(trial, words, f"a recipe, {what}", library_speaks=is_trls)


def wrong_model(trial: Trial) -> None:
    """Read a model folder in which a file is wrong, or a tensor of the weights."""
    from safetensors.torch import load_file, save_file

    folder, rng = trial.folder / "model", trial.rng
    shutil.copytree(trial.bench.base, folder)
    path = rng.choice([*folder.glob("*.json"), *[folder / "model.safetensors"] * 3])
    if path.suffix == ".safetensors" and rng.random() < 0.5:
        weights = load_file(path)
        name, how = rng.choice(sorted(weights)), rng.choice(("missing", "of another shape", "NaN", "infinite"))
        tensor = weights.pop(name)
        if how == "of another shape":
            weights[name] = tensor[..., :-1].contiguous()
        elif how != "missing":
            weights[name] = tensor * float(how[:3])
        save_file(weights, path, metadata={"format": "pt"})
        what, must_refuse = f"{name} {how}", True
    else:
        how, content = mutate_bytes(path.read_bytes(), rng)
        # other numbers in place of the weights are a model like any other
        must_refuse = path.suffix == ".safetensors" and len(content) != path.stat().st_size
        path.write_bytes(content)
        what = f"{path.name} {how}"
    words = trial.bench.words(rng.choice(("train", "eval", "tokens")), model="model")
    require_refusal(trial, words, f"{words[0]} of a model, {what}", must_refuse=must_refuse)
