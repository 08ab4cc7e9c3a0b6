"""The lab's base model can be made again: corpus, tokenizer, batches, and the command that writes its folder."""

import json
import random
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools.lab_base import corpus as corpora
from tools.lab_base.corpus import Corpus, build_pool, draw_examples
from tools.lab_base.pretrain import Pretraining, batches, main
from tools.lab_base.tokenizer import build_tokenizer, render_prompt, split
from trimsft import lab
from trimsft.data.encode import encode_prompts, encode_texts
from trimsft.data.templates import choose_template
from trimsft.head import IGNORED
from trimsft.lab.task import TIERS, draw_problems, write_solution
from trimsft.lab.wording import STYLES, UNFAMILIAR

FEW = ["--size", "tiny", "--examples", "300", "--batch-tokens", "1024", "--processes", "1", "--steps", "60"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return two folders of the same command."""
    both = [tmp_path_factory.mktemp(name) for name in "ab"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model only loses time to more
    for folder in both:
        main(["--out", str(folder), *FEW])
    torch.set_num_threads(threads)
    return both


@pytest.fixture(scope="module")
def tokenizer(folders):
    return AutoTokenizer.from_pretrained(folders[0])


def test_the_command_repeats_and_learns(folders) -> None:
    a, b = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert a == b
    stored = load_file(folders[0] / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.bfloat16} and "lm_head.weight" not in stored
    model = AutoModelForCausalLM.from_pretrained(folders[0])
    assert model.dtype == torch.float32 and model.lm_head.weight is model.model.embed_tokens.weight
    log = [json.loads(line) for line in (folders[0] / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 60 and log[-1]["loss"] < 4.5  # log(496) = 6.2 to begin with
    sheet = (folders[0] / "README.md").read_text()
    assert "python -m tools.lab_base.pretrain --out DIR --examples 300 --size tiny" in sheet
    assert str(folders[0]) not in sheet


def test_an_epoch_meets_every_solution_once(monkeypatch, tokenizer) -> None:
    """The pool is prompt, solution, eos, however many processes make it; the labels are the solutions."""
    monkeypatch.setattr(corpora, "CHUNK", 20)
    corpus = Corpus(examples=50)
    assert sum(corpus.shares.values()) == pytest.approx(1) and UNFAMILIAR not in corpus.shares
    pool, together = build_pool(corpus), build_pool(corpus, processes=2)
    assert (pool.tokens == together.tokens).all() and (pool.lengths == together.lengths).all()
    examples = [pair for chunk in range(3) for pair in draw_examples(corpus, chunk, 20)][:50]
    seen: list[str] = []
    for ids, labels in islice(batches(pool, Pretraining(batch_tokens=1024)), 50):
        assert ids.numel() <= 1024 and ((labels == IGNORED) | (labels == ids)).all()
        seen += [tokenizer.decode(row[row != IGNORED]) for row in labels]
        if len(seen) == 50:
            break
    assert sorted(seen) == sorted(solution.text + tokenizer.eos_token for _, solution in examples)


def test_a_model_that_is_there_is_not_replaced(tmp_path, capsys) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"precious")
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path)])
    assert "holds a model already" in capsys.readouterr().err
    assert (tmp_path / "model.safetensors").read_bytes() == b"precious"


@given(st.integers(0, 10**6), st.sampled_from(list(TIERS)), st.sampled_from(list(STYLES)))
def test_lab_text_is_whole_pieces(tokenizer, seed, tier, style) -> None:
    rng = random.Random(seed)
    for problem in islice(draw_problems(tier, seed, "benchmark"), 5):
        solution = write_solution(problem, style, rng, slip_rate=0.3, filler_rate=0.3).text
        for text in (problem.problem, solution):
            ids = encode_texts([text], tokenizer)[0]
            assert [tokenizer.decode([token]) for token in ids] == split(text)
    assert [piece for piece in split("Add 105. 12 + 30 = 42.") if piece.isdigit()] == list("105123042")


def test_prompts_are_those_of_pretraining(tokenizer) -> None:
    """So are the pieces of the shipped base; a solution is encoded as it is behind its prompt."""
    shipped = AutoTokenizer.from_pretrained(lab.base_model_path())
    assert build_tokenizer().get_vocab() == tokenizer.get_vocab() == shipped.get_vocab()
    problem = next(draw_problems("lab-medium", 0, "training"))
    prompt, solution = render_prompt(problem.problem), write_solution(problem, "steps").text
    template = choose_template("auto", tokenizer)
    assert template.render([problem.problem]) == [prompt] and template.end == tokenizer.eos_token
    first, second, together = encode_texts([prompt, solution, prompt + solution], tokenizer)
    assert encode_prompts([problem.problem], tokenizer, template)[0] == first and together == first + second
