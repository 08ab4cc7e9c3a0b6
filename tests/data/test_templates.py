"""Prompts: the published texts, the model's own chat template, and what a template refuses."""

from typing import Any

import pytest

from tests.evaluate import tiny_model
from trimsft.data.templates import TEXT_TEMPLATES, TemplateError, choose_template, recognise
from trimsft.evaluate.prompts import make_prompts

from .toys import make_tokenizer

ASK = "Please reason step by step, and put your final answer within \\boxed{}."


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("plain", f"{ASK}\n\nProblem:\nIs {{0}} 1%s?\n\nSolution:\n"),
        (
            "qwen-boxed",
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
            f"<|im_start|>user\nIs {{0}} 1%s?\n{ASK}<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "llama-base-boxed",
            "<|start_header_id|>system<|end_header_id|>\n\nYou are a helpful assistant.<|end_of_text|>\n"
            f"<|start_header_id|>user<|end_header_id|>\n\nIs {{0}} 1%s?\n{ASK}<|end_of_text|>\n"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("deepseek", f"User: Is {{0}} 1%s?\n{ASK}\n\nAssistant:"),
    ],
)
def test_texts(name: str, prompt: str) -> None:
    assert TEXT_TEMPLATES[name].render(["Is {0} 1%s?"]) == [prompt]  # nothing in a problem is a placeholder
    assert choose_template(name, make_tokenizer()).render(["Is {0} 1%s?"]) == [prompt]


@pytest.mark.parametrize(
    ("name", "chat", "system_prompt", "says"),
    [
        ("chat", None, None, "template: 'chat' needs a chat template, which the tokenizer lacks"),
        ("qwen-boxed", None, "Be brief.", "system_prompt: has no effect with template='qwen-boxed'"),
        ("chat", "{{ raise_exception('no system role') }}", None, "fails: no system role; try system_prompt=''"),
        ("chat", "{{ messages[-1]['content'] }}", None, "system_prompt: .* leaves system messages out"),
    ],
)
def test_refusals(name: str, chat: str | None, system_prompt: str | None, says: str) -> None:
    with pytest.raises(TemplateError, match=says):
        choose_template(name, make_tokenizer(chat=chat), system_prompt)


QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
DEEPSEEK = ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"]
CHATML = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
ASSISTANT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
DEFAULT = "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are Qwen.<|im_end|>\n{% endif %}"
USER = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}User: {{ m['content'] }}\n\n"
    "{% elif m['role'] == 'assistant' %}Assistant: {{ m['content'] }}{{ eos_token }}"
    "{% else %}{{ m['content'] }}\n\n{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "[{{ messages[0]['content'] }}]"
)


def tokenizer_of(special: list[str], chat: str | None, bos: str | None = None, eos: str | None = None) -> Any:
    tokenizer = tiny_model.make_tokenizer(chat, special)
    tokenizer.bos_token, tokenizer.eos_token = bos, eos or special[-1]
    return tokenizer


@pytest.mark.parametrize(
    ("expected", "special", "chat", "bos"),
    [
        ("qwen-boxed", QWEN, DEFAULT + CHATML + ASSISTANT, None),
        ("chat", QWEN, CHATML + ASSISTANT, None),  # Qwen 3 writes no system message of its own
        ("chat", QWEN, DEFAULT + CHATML + ASSISTANT, "<|im_start|>"),  # ChatML, but SmolLM's bos
        ("llama-base-boxed", LLAMA, None, LLAMA[0]),
        ("deepseek", DEEPSEEK, None, DEEPSEEK[0]),
        ("deepseek", DEEPSEEK, USER, DEEPSEEK[0]),
        ("chat", DEEPSEEK, CHATML + ASSISTANT, DEEPSEEK[0]),
        ("plain", [*DEEPSEEK, "<\uff5cUser\uff5c>"], None, DEEPSEEK[0]),
        ("plain", ["<eos>"], None, None),
    ],
)
def test_each_family_is_known_by_its_tokenizer(
    expected: str, special: list[str], chat: str | None, bos: str | None
) -> None:
    tokenizer = tokenizer_of(special, chat, bos)
    tokenizer.name_or_path = "Qwen/Qwen2.5-Math-1.5B"  # a name says nothing
    assert recognise(tokenizer) == expected
    prompts = make_prompts(["1+1?"], tokenizer)
    assert prompts.template == expected
    assert ASK in prompts.example
    if expected in TEXT_TEMPLATES:
        assert [prompts.example] == TEXT_TEMPLATES[expected].render(["1+1?"])
        assert prompts == make_prompts(["1+1?"], tokenizer, template=expected)


def test_a_given_system_prompt_needs_a_template_with_a_place() -> None:
    prompts = make_prompts(["1+1?"], tokenizer_of(QWEN, DEFAULT + CHATML + ASSISTANT), system_prompt="Be brief.")
    assert prompts.template == "chat" and "system\nBe brief.<|im_end|>" in prompts.example
    assert make_prompts(["1+1?"], tokenizer_of(LLAMA, None), system_prompt="Be brief.").template == "plain"


@pytest.mark.parametrize("chat", [NO_SYSTEM, "[{{ messages[-1]['content'] }}]"])
def test_without_system_messages_the_user_gives_the_instruction(chat: str) -> None:
    tokenizer = tokenizer_of(["<eos>"], chat)
    prompts = make_prompts(["1+1?"], tokenizer)
    assert prompts.example == f"[1+1?\n{ASK}]"
    assert prompts.prompts[0].messages == ({"role": "user", "content": f"1+1?\n{ASK}"},)
    with pytest.raises(TemplateError, match="system"):  # who names the chat template is told
        make_prompts(["1+1?"], tokenizer, template="chat")
