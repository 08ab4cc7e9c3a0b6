"""The commands that compare objectives: what they write, continue and show."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.weights import lab, prepared, real, tasks
from benchmarks.weights.objectives import EVERY, GRID, named_objectives, parse_objective, reference_of, table_name
from benchmarks.weights.tables import difference, mean_over, over_conditions, percent
from trimsft.lab import base_model_path
from trimsft.objectives import OBJECTIVES, AutoTrim, TrimSFT
from trimsft.text.encoding import encode_texts, load_tokenizer

FEW = ["--rows", "8", "--batch", "4", "--problems", "1", "--processes", "0", "--seeds", "3"]


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


def test_the_lab_is_written_continued_and_shown(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab, "NEW_TOKENS", 4)
    results = tmp_path / "results.json"
    words = ["--results", str(results), "--base", str(base), *FEW, "--conditions", "clean", "allnew"]
    assert lab.main([*words, "--objectives", "sft", "auto-trim", "asft", "rho-1"]) == 0
    models = json.loads(results.read_text())["models"]
    assert [(one["objective"], one["condition"]) for one in models[:2]] == [("sft", "clean"), ("sft", "allnew")]
    assert len(models) == 8 and all(len(one["right_samples"]) == 3 for one in models)
    adaptive = models[2]["trace"]
    assert adaptive["update"] == [0, 1] and adaptive["objective_gate"][0] == 1.0 and adaptive["weight"][0] == 1.0

    assert lab.main([*words, "--objectives", "dft", "sft", "--continue"]) == 0
    assert json.loads(results.read_text())["models"][:8] == models
    assert "trained 2 models" in capsys.readouterr().out  # DFT's alone
    assert lab.main(["--show", str(results)]) == 0
    shown = capsys.readouterr().out
    assert (
        "| average, % | clean | allnew | mean |" in shown and "| greedy minus SFT's |" in shown and "| DFT |" in shown
    )
    for other in (["--lr", "1"], ["--compute", "bfloat16"]):
        assert lab.main([*words, "--continue", *other]) == 2  # other settings


def test_the_lab_computes_in_bfloat16(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loss is nearly that of float32, and not the same."""
    monkeypatch.setattr(lab, "NEW_TOKENS", 2)
    losses = []
    for compute in ("float32", "bfloat16"):
        results = tmp_path / f"{compute}.json"
        words = ["--results", str(results), "--base", str(base), *FEW, "--conditions", "clean", "--objectives", "sft"]
        assert lab.main([*words, "--compute", compute]) == 0
        written = json.loads(results.read_text())
        assert written["settings"].get("compute", "float32") == compute
        losses.append(written["models"][0]["trace"]["nll"][0])
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=2**-8)  # logits below 1 beside a loss near 5


def test_rows_of_a_condition_differ_in_what_it_says() -> None:
    folder = str(base_model_path())
    rows = {name: tasks.training_pairs(folder, name, 5, 30) for name in tasks.CONDITIONS}
    prompts = {name: [prompt for prompt, _ in pairs] for name, pairs in rows.items()}
    assert all(one == prompts["clean"] for one in prompts.values())
    decode = load_tokenizer(folder).batch_decode
    is_new = {name: ["->" in text for text in decode([row for _, row in pairs])] for name, pairs in rows.items()}
    assert all(is_new["allnew"]) and not any(is_new["default"]) and 5 < sum(is_new["halfnew"]) < 25
    assert rows["clean"] != rows["default"] != rows["slips20"] and rows["mix"] != rows["halfnew"]


def test_what_the_answers_came_to() -> None:
    folder = str(base_model_path())
    texts = [
        r"so \boxed{12}",
        r"\boxed{12}",
        r"[3 -> 4] \boxed{4}",
        "no",
        r"\boxed{1}",
        r"\boxed{2}",
        "",
        r"\boxed{12}",
    ]
    rows = [ids[:30] + [1] * (30 - len(ids)) for ids in encode_texts(texts, load_tokenizer(folder))]
    graded = tasks.grade(folder, np.array(rows, np.int32).reshape(2, 4, 30), ["12", "2"])
    assert graded["right_samples"] == [1, 1] and graded["right_greedy"] == [1, 0]
    assert graded["average"] == pytest.approx(2 / 6) and graded["pass@3"] == 1.0 and graded["greedy"] == 0.5
    assert graded["boxed"] == pytest.approx(4 / 6) and graded["new_format"] == pytest.approx(1 / 6)
    assert graded["distinct_answers"] == 3.0


def test_calibration_error_by_hand() -> None:
    """Two first choices at p = 0.63, one right and one wrong: |0.5 - 0.63| in their bin."""
    nll = -np.log(np.array([0.63, 0.3]))
    gap = np.array([1.0, np.log(0.3 / 0.63)])
    assert tasks.calibration_error(nll, gap) == pytest.approx(0.13)


def test_objectives_by_name() -> None:
    assert parse_objective("trim,margin=6,bandwidth=2") == TrimSFT(6.0, 2.0)
    assert parse_objective("auto-trim") == AutoTrim()
    assert {name.split(",")[0] for name in EVERY} == {*OBJECTIVES}
    assert len(named_objectives(["sft"], grid=True)) == 1 + len(set(GRID)) == 26
    assert [reference_of(name) for name in ("sft", "asft", "rho-1")] == [None, "base", "sft"]
    assert table_name("trim,margin=6,bandwidth=2") == "TrimSFT (6, 2)" and table_name("sft") == "SFT"
    assert lab.main(["--objectives", "trim,margin=wide"]) == 2


def test_differences_are_paired() -> None:
    """Both vary much over problems and seeds, their difference not at all."""
    rng = np.random.default_rng(0)
    sft = {seed: [rng.uniform(0, 0.5, 40)] for seed in range(3)}
    better = {seed: [values[0] + 0.25] for seed, values in sft.items()}
    mean, gained = mean_over(better), difference(better, sft)
    assert mean is not None and mean.high - mean.low > 0.05
    # one problem that nobody has seen may be 0.25 lower instead of higher: it weighs up to 3.7 / 40
    assert gained is not None and gained.value == pytest.approx(0.25) and gained.low > 0.25 - 2 * 0.25 * 3.7 / 40
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
    words += ["--objectives", "sft", "auto-trim", "rho-1"]
    assert real.main([*words, "--new-tokens", "3", "--seeds", "1", "2", "--group", "3"]) == 0
    files = sorted(path.name for path in out.iterdir())
    assert files == [f"gsm8k-{name}-{seed}.npz" for name in ("auto-trim", "rho-1", "sft") for seed in (1, 2)]
    assert "trained" in capsys.readouterr().out
    assert real.main([*words, "--seeds", "1", "2"]) == 0 and "trained" not in capsys.readouterr().out

    _overwrite(out / "gsm8k-sft-1.npz", base, known.eos, [r"\boxed{2}", r"\boxed{1}"])
    graded = ["grade", str(out), "--prepared", str(small), "--model", str(base), "--results", str(results)]
    assert real.main([*graded, "--workers", "1"]) == 0
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
