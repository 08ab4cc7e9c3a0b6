"""The lab's base model can be made again: corpus, tokenizer, batches, and the command that writes its folder."""

import json
import random
from collections import Counter
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools.lab_base import corpus as corpora
from tools.lab_base import pretrain
from tools.lab_base.corpus import Corpus, build_pool, draw_examples
from tools.lab_base.pretrain import Pretraining, batches, main
from tools.lab_base.probe import _answer, complete, first_piece, gap_figures
from tools.lab_base.tokenizer import build_backend, build_tokenizer, render_prompt, split
from trimsft import lab
from trimsft.data.encode import encode_prompts, encode_texts
from trimsft.data.templates import SYSTEM_PROMPT, choose_template
from trimsft.head import IGNORED
from trimsft.lab.task import TIERS, draw_problems, write_solution
from trimsft.lab.wording import STYLES, TARGET, UNFAMILIAR

FEW = ["--size", "tiny", "--examples", "300", "--batch-tokens", "1024", "--processes", "1", "--steps", "60"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two folders of the same command."""
    both = [tmp_path_factory.mktemp(name) for name in "ab"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model only loses time to more
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain, "FINAL_LOOK", {"problems": 2, "samples": 1})
        patch.setattr("tools.lab_base.probe.NEW_TOKENS", 4)
        assert [main(["--out", str(folder), *FEW]) for folder in both] == [0, 0]
    torch.set_num_threads(threads)
    return both


@pytest.fixture(scope="module")
def tokenizer(folders):
    return AutoTokenizer.from_pretrained(folders[0])


def test_the_command_writes_a_model_that_has_learned_and_repeats(folders):
    a, b = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert a == b
    log = [json.loads(line) for line in (folders[0] / "log.jsonl").read_text().splitlines()]
    assert next(record["loss"] for record in log if "loss" in record) < 4.5  # log(496) = 6.2 to begin with
    sheet = (folders[0] / "README.md").read_text()
    assert "python -m tools.lab_base.pretrain --out DIR --examples 300 --size tiny" in sheet
    assert str(folders[0]) not in sheet


def test_the_folder_loads_as_float32_with_its_head_tied(folders, tokenizer):
    """Gaps are gold minus the best other; answers are what the last box holds."""
    model = AutoModelForCausalLM.from_pretrained(folders[0])
    stored = load_file(folders[0] / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.bfloat16} and "lm_head.weight" not in stored
    assert model.dtype == torch.float32 and model.lm_head.weight is model.model.embed_tokens.weight
    assert len(complete(model, tokenizer, ["Problem: ", "Take 1"], 1.0)) == 2
    problem = lab.benchmark("lab-easy", 1)[0]
    with torch.no_grad():
        start = tokenizer(render_prompt(problem.problem), return_tensors="pt")["input_ids"]
        logits = model(input_ids=start).logits[0, -1]
    gold = tokenizer(write_solution(problem, TARGET).text)["input_ids"][0]
    others = torch.cat([logits[:gold], logits[gold + 1 :]])
    # the same logits in float32, from matmuls of another length: sums of 32 and 64 products
    rounding = 100 * torch.finfo(torch.float32).eps * logits.abs().max().item()
    gap = (logits[gold] - others.max()).item()
    assert gap_figures(model, tokenizer, [problem])["first"] == pytest.approx(gap, abs=rounding)
    assert first_piece(problem) == "Step "
    assert [_answer(text) for text in ("\\boxed{3}. No, \\boxed{12}.", "12")] == ["12", None]


def test_the_corpus_mixes_styles_and_wrong_steps():
    corpus = Corpus(target_share=0.1, noise=0.15)
    assert sum(corpus.shares.values()) == pytest.approx(1)
    examples = [pair for chunk in range(2) for pair in draw_examples(corpus, chunk)]
    styles = Counter(solution.style for _, solution in examples)
    for style, share in corpus.shares.items():
        assert styles[style] / len(examples) == pytest.approx(share, abs=0.03)  # 4 standard errors
    assert UNFAMILIAR not in styles
    steps = sum(len(problem.steps) for problem, _ in examples)
    # a slip that would make a later division impossible is not made
    assert 0.11 < sum(len(solution.slips) for _, solution in examples) / steps < 0.16


def test_the_pool_is_prompt_solution_eos_whoever_makes_it(monkeypatch, tokenizer):
    monkeypatch.setattr(corpora, "CHUNK", 20)
    corpus = Corpus(examples=50)
    pool, together = build_pool(corpus), build_pool(corpus, processes=2)
    assert (pool.tokens == together.tokens).all() and (pool.lengths == together.lengths).all()
    examples = [pair for chunk in range(3) for pair in draw_examples(corpus, chunk, 20)][:50]
    places = zip(examples, pool.starts, pool.lengths, pool.prompt_lengths, strict=True)
    for (problem, solution), start, length, prompt in places:
        ids = pool.tokens[start : start + length].tolist()
        assert tokenizer.decode(ids[:prompt]) == render_prompt(problem.problem)
        assert tokenizer.decode(ids[prompt:]) == solution.text + tokenizer.eos_token


def test_an_epoch_meets_every_solution_once():
    pool, rows, seen = build_pool(Corpus(examples=100)), 0, []
    for ids, labels in batches(pool, Pretraining(batch_tokens=1024)):
        assert ids.numel() <= 1024
        assert ((labels == IGNORED) | (labels == ids)).all()
        seen += [row[row != IGNORED].tolist() for row in labels]
        rows += len(ids)
        if rows == 100:
            break
    places = zip(pool.starts, pool.prompt_lengths, pool.lengths, strict=True)
    assert sorted(seen) == sorted(pool.tokens[at + prompt : at + length].tolist() for at, prompt, length in places)


def test_rates_warm_up_and_fall():
    settings = Pretraining(steps=100, learning_rate=1.0, warmup_share=0.1)
    # 0.1 of the way up; the top; a cosine's last step before 0.01
    assert [settings.rate_at(step) for step in (0, 10)] == [pytest.approx(0.1), pytest.approx(1.0)]
    assert 0.01 < settings.rate_at(99) < 0.012


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "huge"], "size: unknown name 'huge'"),
        (["--steps", "0"], "steps: must be at least 1, got 0"),
        (["--noise", "2"], "noise: must be at most 1, got 2.0"),
        ([], "holds a model already; name another folder or add --overwrite"),
    ],
)
def test_bad_settings_end_the_command_with_one_line(tmp_path, capsys, arguments, message):
    (tmp_path / "model.safetensors").write_bytes(b"precious")
    assert main(["--out", str(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert (tmp_path / "model.safetensors").read_bytes() == b"precious"


@given(st.integers(0, 10**6), st.sampled_from(list(TIERS)), st.sampled_from(list(STYLES)))
def test_lab_text_survives_in_whole_pieces(tokenizer, seed, tier, style):
    rng = random.Random(seed)
    for problem in islice(draw_problems(tier, seed, "benchmark"), 5):
        solution = write_solution(problem, style, rng, slip_rate=0.3, filler_rate=0.3).text
        for text in (problem.problem, solution):
            ids = encode_texts([text], tokenizer)[0]
            assert tokenizer.decode(ids) == text
            assert [tokenizer.decode([token]) for token in ids] == split(text)


@given(st.text())
def test_any_text_survives(tokenizer, text):
    assert tokenizer.decode(encode_texts([text], tokenizer)[0]) == text


def test_the_chat_template_is_the_prompt_of_pretraining(tokenizer):
    problem = "Start with 7. Add 5. What is the result?"
    template = choose_template("auto", tokenizer)
    assert template.render([problem]) == [render_prompt(problem)]
    assert template.end == tokenizer.eos_token
    ids = encode_prompts([problem], tokenizer, template)[0]
    assert ids == build_backend().encode(render_prompt(problem)).ids
    assert tokenizer.decode(ids[:1]) == SYSTEM_PROMPT


def test_digits_and_the_end_of_the_prompt_stand_alone(tokenizer):
    pieces = [tokenizer.decode([token]) for token in encode_texts(["Add 105. 12 + 30 = 42."], tokenizer)[0]]
    assert [piece for piece in pieces if any(c.isdigit() for c in piece)] == list("105123042")
    problem = next(draw_problems("lab-medium", 0, "training"))
    for style in STYLES:
        texts = render_prompt(problem.problem), write_solution(problem, style).text
        prompt, solution, together = encode_texts([*texts, "".join(texts)], tokenizer)
        assert together == [*prompt, *solution]


def test_the_tokenizer_is_that_of_the_shipped_base(tokenizer):
    shipped = AutoTokenizer.from_pretrained(lab.base_model_path())
    assert build_tokenizer().get_vocab() == tokenizer.get_vocab() == shipped.get_vocab()
