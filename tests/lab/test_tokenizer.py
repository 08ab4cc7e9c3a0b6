import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from trimsft.lab.arithmetic import TIERS, draw_problems
from trimsft.lab.styles import STYLES, write_solution
from trimsft.lab.tokenizer import build_backend, build_tokenizer, render_prompt, save_tokenizer, split
from trimsft.text.templates import SYSTEM_PROMPT, choose_template, encode_prompts, encode_texts


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder)


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
    ids = encode_texts([text], tokenizer)[0]
    assert tokenizer.decode(ids) == text


def test_digits_stand_alone(tokenizer):
    pieces = [tokenizer.decode([token]) for token in encode_texts(["Add 105. 12 + 30 = 42."], tokenizer)[0]]
    assert [piece for piece in pieces if any(c.isdigit() for c in piece)] == list("105123042")


def test_the_chat_template_is_the_prompt_of_pretraining(tokenizer):
    problem = "Start with 7. Add 5. What is the result?"
    template = choose_template("auto", tokenizer)
    assert template.render([problem]) == [render_prompt(problem)]
    assert template.end == tokenizer.eos_token
    ids = encode_prompts([problem], tokenizer, template)[0]
    assert ids == build_backend().encode(render_prompt(problem)).ids
    assert tokenizer.decode(ids[:1]) == SYSTEM_PROMPT


def test_prompt_and_solution_do_not_melt_together(tokenizer):
    for style in STYLES:
        problem = next(draw_problems("lab-medium", 0, "training"))
        prompt, solution = render_prompt(problem.problem), write_solution(problem, style).text
        apart = [ids for text in (prompt, solution) for ids in encode_texts([text], tokenizer)[0]]
        assert encode_texts([prompt + solution], tokenizer)[0] == apart


def test_building_repeats(tokenizer):
    assert build_tokenizer().get_vocab() == tokenizer.get_vocab()
    assert build_backend().to_str() == build_backend().to_str()
    assert len(tokenizer) < 600
