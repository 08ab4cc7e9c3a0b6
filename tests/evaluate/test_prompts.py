"""Prompts of an evaluation: what is asked, what ends an answer, and what looks wrong."""

import pytest

from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.evaluate.prompts import make_prompts

from .tiny_model import CHAT, make_tokenizer

EOS, START, END = 0, 1, 2
QWEN = f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "chat", "stop", "stop_tokens"),
    [
        ("auto", CHAT, (), (EOS, END)),  # the turn ends with a token that is not eos
        ("qwen-boxed", None, (), (EOS, END)),
        ("plain", None, ("\n\nProblem:",), (EOS,)),
        ("deepseek", None, (), (EOS,)),
        ("llama-base-boxed", None, ("<|end_of_text|>",), (EOS,)),
        ("chat", "{{ messages[0]['content'] }} and so on", (), (EOS,)),  # words of a template end nothing
    ],
)
def test_what_ends_an_answer(
    template: str, chat: str | None, stop: tuple[str, ...], stop_tokens: tuple[int, ...]
) -> None:
    prompts = make_prompts(["1+1?"], make_tokenizer(chat=chat), template=template)
    assert (prompts.stop, prompts.stop_tokens) == (stop, stop_tokens)


def test_without_a_tokenizer_the_server_renders_the_chat() -> None:
    prompts = make_prompts(["1+1?"], system_prompt="Be brief.")
    assert prompts.template == "chat" and prompts.prompts[0].tokens == ()
    assert prompts.example == "[system] Be brief.\n[user] 1+1?"
    plain = make_prompts(["1+1?"], template="plain")
    assert plain.template == "plain" and plain.example.endswith("Problem:\n1+1?\n\nSolution:\n")
    assert plain.stop == ("\n\nProblem:",)
