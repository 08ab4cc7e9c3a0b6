"""The commands that compare objectives: what they write, continue and show."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.weights import arena, conditions, prepared, real, tasks
from benchmarks.weights.conditions import NAMED, Condition, condition
from benchmarks.weights.tables import difference, mean_over, over_conditions, percent
from trimsft.data.encode import encode_texts, load_tokenizer
from trimsft.lab import base_model_path

CHOOSE_0 = Condition(
    formats=("bullets", "lines", "arrows"), slip_rate=0.26, near=True, filler_rate=0.59, updates=60, rate=0.00037
)
FEW = ["--problems", "1", "--processes", "0", "--seeds", "3"]


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    """Give back the precision of matmuls that the commands lower for the whole process."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with the lab's tokenizer."""
    folder: Path = tmp_path_factory.mktemp("base")
    for file in base_model_path().glob("*"):
        if file.name.startswith(("tokenizer", "special", "chat")):
            shutil.copy(file, folder)
    torch.manual_seed(0)
    config = LlamaConfig.from_pretrained(base_model_path())
    config.update({"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8})
    config.update({"num_attention_heads": 2, "num_key_value_heads": 2})
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def test_the_arena_is_written_continued_and_shown(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(arena, "NEW_TOKENS", 4)
    small = {name: replace(NAMED[name], updates=2, batch=4) for name in ("clean", "new")}
    monkeypatch.setattr(conditions, "NAMED", small)
    out = tmp_path / "arena.json"
    words = ["--out", str(out), "--base", str(base), *FEW, "--conditions", "clean", "new"]
    assert arena.main([*words, "--objectives", "sft", "auto-trim", "talr"]) == 0
    models = json.loads(out.read_text())["models"]
    assert len(models) == 6 and {one["condition"] for one in models} == {"clean", "new"}
    assert all(set(one["right"]) == {"0", "1", "0.6", "0.3"} and len(one["right"]["1"]) == 3 for one in models)

    capsys.readouterr()
    assert arena.main([*words, "--objectives", "dft", "sft"]) == 0
    assert json.loads(out.read_text())["models"][:6] == models
    assert "8 of 4 models" in capsys.readouterr().out  # DFT's two were added
    assert arena.main(["--show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "| points above SFT, greedy |" in shown and "| DFT |" in shown


def record(objective: str, name: str, **right: Any) -> dict[str, Any]:
    return {"objective": objective, "condition": name, "seed": 0, **right}


def test_differences_by_temperature() -> None:
    """Of 10 problems: SFT is best at 0.3, with 3 of 4 samples right, where the other has all."""

    def digits(*right: int) -> dict[str, str]:
        return {at: str(count) * 10 for at, count in zip(("0.3", "0.6", "1", "0"), right, strict=True)}

    sft, dft = record("sft", "clean", right=digits(3, 2, 4, 0)), record("dft", "clean", right=digits(4, 4, 8, 1))
    points = {"temperature 1": 50.0, "SFT's best temperature": 25.0, "greedy": 100.0}
    assert arena.differences([sft, dft])["dft"] == {at: {"clean": value} for at, value in points.items()}
    # DFT is right in the format of the base, SFT in the one that the rows teach
    for name, gained in (("new", -100.0), ("half-new", 0.0), ("clean", 0.0)):
        right = {"right": dict.fromkeys("01", "1111")}
        sft = record("sft", name, **right, right_in_new=dict.fromkeys("01", "1111"))
        dft = record("dft", name, **right, right_in_new=dict.fromkeys("01", "0000"))
        assert arena.differences([sft, dft])["dft"]["greedy"] == {name: gained}


def test_conditions_are_drawn_once_for_all() -> None:
    """Results name conditions by their numbers, so a number must stay what it was."""
    few = [condition(f"choose-{number}") for number in range(200)]
    assert few[0] == CHOOSE_0 and few == [condition(f"choose-{number}") for number in range(200)]
    assert condition("judge-0") != few[0]


def test_what_the_answers_came_to() -> None:
    folder = str(base_model_path())
    boxes = [rf"\boxed{{{n}}}" for n in (12, 12, 4, 2, 12)]
    new = "[3 -> 4] "
    texts = [new + boxes[0], boxes[1], new + boxes[2], "Answer: no", "Answer: 1", boxes[3], "", boxes[4]]
    rows = [ids[:30] + [1] * (30 - len(ids)) for ids in encode_texts(texts, load_tokenizer(folder))]
    graded = tasks.grade(folder, np.array(rows, np.int32).reshape(2, 4, 30), ["12", "2"], (0.0, 1.0, 1.0, 1.0))
    assert graded["right"] == {"0": "10", "1": "11"}
    assert graded["right_in_new"] == {"0": "10", "1": "00"}
    assert [graded["answered"], graded["new_format"]] == pytest.approx([4 / 6, 1 / 6])
    assert graded["distinct_answers"] == 3.0


def test_differences_are_paired() -> None:
    """Both vary much over problems and seeds, their difference not at all."""
    rng = np.random.default_rng(0)
    sft = {seed: [rng.uniform(0, 0.5, 40)] for seed in range(3)}
    better = {seed: [values[0] + 0.25] for seed, values in sft.items()}
    mean, gained = mean_over(better), difference(better, sft)
    assert mean is not None and mean.high - mean.low > 0.05
    # one problem that nobody has seen may be 0.25 lower instead of higher: it weighs up to 3.7 / 40
    assert gained is not None and gained.value == pytest.approx(0.25)
    assert gained.low > 0.25 - 2 * 0.25 * 3.7 / 40
    assert difference(better, {}) is None and percent(None) == ""
    both = over_conditions([sft, better])
    assert both[1][0] == pytest.approx(sft[1][0] + 0.125)


@pytest.fixture
def small(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data of two rows and two problems, prepared."""
    rows = [{"problem": f"{n} and 1?", "solution": rf"\boxed{{{n + 1}}}", "answer": str(n + 1)} for n in (1, 2)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(prepared, "TRAINING", {"gsm8k": "data.jsonl"})
    monkeypatch.setattr(prepared, "BENCHMARKS", {"gsm8k": "data.jsonl"})
    file = tmp_path / "prepared.npz"
    assert real.main(["prepare", "--model", str(base), "--data", str(tmp_path), "--out", str(file)]) == 0
    return file


def test_a_real_model_is_trained_sampled_and_graded(
    small: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = prepared.Prepared.load(small)
    assert known.golds == {"gsm8k": ["2", "3"]} and len(known.training["gsm8k"]) == 2
    out, results = tmp_path / "out", tmp_path / "results.json"
    words = ["run", str(small), "--weights", str(base), "--out", str(out), "--benchmarks", "gsm8k", "--batch", "1"]
    words += ["--objectives", "sft", "auto-trim", "dft"]
    assert real.main([*words, "--new-tokens", "3", "--seeds", "1", "2", "--group", "3"]) == 0
    files = sorted(path.name for path in out.iterdir())
    assert files == [f"gsm8k-{name}-{seed}.npz" for name in ("auto-trim", "dft", "sft") for seed in (1, 2)]
    assert "trained" in capsys.readouterr().out
    assert real.main([*words, "--seeds", "1", "2"]) == 0 and "trained" not in capsys.readouterr().out

    _overwrite(out / "gsm8k-sft-1.npz", base, known.eos, [r"\boxed{2}", r"\boxed{1}"])
    graded = ["grade", str(out), "--prepared", str(small), "--model", str(base), "--results", str(results)]
    assert real.main(graded) == 0
    models = {one["file"]: one["benchmarks"]["gsm8k"] for one in json.loads(results.read_text())["models"]}
    assert models["gsm8k-sft-1.npz"]["right_samples"] == [8, 0] and models["gsm8k-sft-1.npz"]["no_answer"] == [0, 0]
    assert models["gsm8k-sft-1.npz"]["right_greedy"] == [1, 0] and "| AutoTrim | 2 |" in capsys.readouterr().out


def _overwrite(path: Path, base: Path, eos: int, texts: list[str]) -> None:
    """As if each problem's greedy row and samples had been this text."""
    with np.load(path) as arrays:
        facts: Any = arrays["facts"]
    ids = encode_texts(texts, load_tokenizer(base))
    rows = np.array([[row + [eos] * (20 - len(row))] * 9 for row in ids], np.uint16)
    np.savez_compressed(path, facts=facts, gsm8k=rows)
