import json
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from trimsft import lab
from trimsft.lab import corpus as corpora
from trimsft.lab.corpus import Corpus, build_pool, draw_examples
from trimsft.lab.pretrain import IGNORED, Pretraining, batches, main
from trimsft.lab.probe import _answer, complete, first_piece, gap_figures
from trimsft.lab.styles import TARGET, UNFAMILIAR, write_solution
from trimsft.lab.tokenizer import build_tokenizer, render_prompt

FEW = ["--size", "tiny", "--examples", "300", "--batch-tokens", "1024", "--processes", "1", "--steps", "60"]


@pytest.fixture(autouse=True)
def small_and_single(monkeypatch):
    """So small a model only loses time to more threads, and to a long look at the end."""
    monkeypatch.setattr("trimsft.lab.pretrain.FINAL_LOOK", {"problems": 2, "samples": 1})
    monkeypatch.setattr("trimsft.lab.probe.NEW_TOKENS", 4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_corpus_mixes_styles_and_wrong_steps():
    corpus = Corpus(target_share=0.1, noise=0.15)
    assert sum(corpus.shares.values()) == pytest.approx(1)
    examples = [pair for chunk in range(2) for pair in draw_examples(corpus, chunk)]
    styles = Counter(solution.style for _, solution in examples)
    for style, share in corpus.shares.items():
        assert styles[style] / len(examples) == pytest.approx(share, abs=0.03)
    assert UNFAMILIAR not in styles
    steps = sum(len(problem.steps) for problem, _ in examples)
    assert 0.11 < sum(len(solution.slips) for _, solution in examples) / steps < 0.16


def test_the_pool_is_prompt_solution_eos(monkeypatch):
    monkeypatch.setattr(corpora, "CHUNK", 20)
    corpus, tokenizer = Corpus(examples=50), build_tokenizer()
    pool = build_pool(corpus)
    examples = [pair for chunk in range(3) for pair in draw_examples(corpus, chunk, 20)][:50]
    assert len(pool.lengths) == 50
    for (problem, solution), start, length, prompt in zip(
        examples, pool.starts, pool.lengths, pool.prompt_lengths, strict=True
    ):
        ids = pool.tokens[start : start + length].tolist()
        assert tokenizer.decode(ids[:prompt]) == render_prompt(problem.problem)
        assert tokenizer.decode(ids[prompt:]) == solution.text + tokenizer.eos_token


def test_processes_make_the_same_pool(monkeypatch):
    corpus = Corpus(examples=corpora.CHUNK + 10)
    alone, together = build_pool(corpus), build_pool(corpus, processes=2)
    assert (alone.tokens == together.tokens).all() and (alone.lengths == together.lengths).all()


def test_an_epoch_meets_every_solution_once():
    pool = build_pool(Corpus(examples=100))
    settings = Pretraining(batch_tokens=1024)
    rows, seen = 0, []
    for ids, labels in batches(pool, settings):
        assert ids.numel() <= 1024
        assert ((labels == IGNORED) | (labels == ids)).all()
        seen += [row[row != IGNORED].tolist() for row in labels]
        rows += len(ids)
        if rows == 100:
            break
    expected = [
        pool.tokens[start + prompt : start + length].tolist()
        for start, prompt, length in zip(pool.starts, pool.prompt_lengths, pool.lengths, strict=True)
    ]
    assert sorted(seen) == sorted(expected)


def test_the_command_writes_a_model_that_has_learned_and_repeats(tmp_path, capsys):
    for name in ("a", "b"):
        assert main(["--out", str(tmp_path / name), *FEW]) == 0
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert a == b
    log = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert next(record["loss"] for record in log if "loss" in record) < 4.5  # log(496) = 6.2 to begin with
    sheet = (tmp_path / "a" / "README.md").read_text()
    assert "python -m trimsft.lab.pretrain --out DIR --examples 300 --size tiny" in sheet
    assert str(tmp_path) not in sheet


def test_the_folder_loads_as_float32_with_head_tied(tmp_path, capsys):
    main(["--out", str(tmp_path), *FEW, "--steps", "2"])
    stored = load_file(tmp_path / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.bfloat16}
    assert "lm_head.weight" not in stored
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.dtype == torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(complete(model, tokenizer, ["Problem: ", "Take 1"], 1.0)) == 2


def test_gaps_are_gold_minus_the_best_other(tmp_path, capsys):
    main(["--out", str(tmp_path), *FEW, "--steps", "2"])
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    problem = lab.benchmark("lab-easy", 1)[0]
    text = render_prompt(problem.problem)
    start = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=start).logits[0, -1]
    gold = tokenizer(write_solution(problem, TARGET).text)["input_ids"][0]
    others = torch.cat([logits[:gold], logits[gold + 1 :]])
    figures = gap_figures(model, tokenizer, [problem])
    assert figures["first"] == pytest.approx((logits[gold] - others.max()).item(), abs=1e-5)


def test_small_parts_of_the_probe():
    assert first_piece(lab.benchmark("lab-easy", 1)[0]) == "Step "
    assert _answer("\\boxed{3}. No, \\boxed{12}.") == "12"
    assert _answer("12") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "huge"], "size: unknown name 'huge'; known: tiny"),
        (["--steps", "0"], "steps: must be at least 1, got 0"),
        (["--noise", "2"], "noise: must be a number from 0 to 1, got 2.0"),
        (["--examples", "0"], "examples: must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_settings_end_the_command_with_one_line(tmp_path, capsys, arguments, message):
    assert main(["--out", str(tmp_path / "new"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_model_is_not_written_over(tmp_path, capsys):
    (tmp_path / "model.safetensors").write_bytes(b"precious")
    assert main(["--out", str(tmp_path)]) == 2
    assert "holds a model already; name another folder or add --overwrite" in capsys.readouterr().err
    assert (tmp_path / "model.safetensors").read_bytes() == b"precious"


def test_rates_warm_up_and_fall():
    settings = Pretraining(steps=100, learning_rate=1.0, warmup_share=0.1)
    assert settings.rate_at(0) == pytest.approx(0.1)
    assert settings.rate_at(10) == pytest.approx(1.0)
    assert settings.rate_at(99) == pytest.approx(0.01, abs=0.002)


def test_a_missing_base_model_says_how_to_build_it(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(lab.LabError, match=r"base holds no model.safetensors; build it with python -m trimsft"):
        lab.base_model_path()
