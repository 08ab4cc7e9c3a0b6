"""`--template auto`: tiny tokenizers that carry the marks of each family, and what they are asked with."""

from dataclasses import replace
from typing import Any

import pytest

from tests.evaluate.tiny_model import make_tokenizer
from trimsft.evaluate.prompts import make_prompts
from trimsft.text.families import recognise
from trimsft.text.templates import SYSTEM_PROMPT, TEXT_TEMPLATES, ChatTemplate, TemplateError

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
LLAMA_CHAT = (
    "{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "[{{ messages[0]['content'] }}]"
)


def tokenizer_of(special: list[str], chat: str | None, bos: str | None = None, eos: str | None = None) -> Any:
    tokenizer = make_tokenizer(chat, special)
    tokenizer.bos_token, tokenizer.eos_token = bos, eos or special[-1]
    return tokenizer


@pytest.mark.parametrize(
    ("expected", "special", "chat", "bos"),
    [
        ("qwen-boxed", QWEN, DEFAULT + CHATML + ASSISTANT, None),
        ("chat", QWEN, CHATML + ASSISTANT, None),  # Qwen 3 writes no system message of its own
        ("chat", QWEN, DEFAULT + CHATML + ASSISTANT, "<|im_start|>"),  # ChatML, but SmolLM's bos
        ("chat", QWEN[1:], DEFAULT + CHATML + ASSISTANT, None),
        ("chat", QWEN, DEFAULT + CHATML + ASSISTANT + "<think>\n", None),
        ("plain", QWEN, None, None),
        ("llama-base-boxed", LLAMA, None, LLAMA[0]),
        ("chat", LLAMA, LLAMA_CHAT, LLAMA[0]),
        ("plain", LLAMA[:2], None, LLAMA[0]),
        ("deepseek", DEEPSEEK, None, DEEPSEEK[0]),
        ("deepseek", DEEPSEEK, USER, DEEPSEEK[0]),
        ("chat", DEEPSEEK, LLAMA_CHAT, DEEPSEEK[0]),
        ("plain", [*DEEPSEEK, "<\uff5cUser\uff5c>"], None, DEEPSEEK[0]),
        ("chat", ["<eos>"], USER, None),
        ("plain", ["<eos>"], None, None),
    ],
)
def test_each_family_is_known_by_its_tokenizer(
    expected: str, special: list[str], chat: str | None, bos: str | None
) -> None:
    tokenizer = tokenizer_of(special, chat, bos)
    assert recognise(tokenizer)[0] == expected
    prompts = make_prompts(["1+1?"], tokenizer)
    assert prompts.template == expected
    assert prompts.notes[0].startswith(f"template auto: {expected}, because ") and "\n" not in prompts.notes[0]
    assert SYSTEM_PROMPT in prompts.example
    if expected in TEXT_TEMPLATES:
        assert [prompts.example] == TEXT_TEMPLATES[expected].render(["1+1?"])
        named = make_prompts(["1+1?"], tokenizer, template=expected)
        assert replace(prompts, notes=named.notes) == named


def test_a_name_says_nothing() -> None:
    tokenizer = tokenizer_of(["<eos>"], None)
    tokenizer.name_or_path = "Qwen/Qwen2.5-Math-1.5B"
    assert recognise(tokenizer)[0] == "plain"


def test_a_system_prompt_of_ones_own_finds_a_template_that_has_a_place_for_it() -> None:
    prompts = make_prompts(["1+1?"], tokenizer_of(QWEN, DEFAULT + CHATML + ASSISTANT), system_prompt="Be brief.")
    assert prompts.template == "chat" and "system\nBe brief.<|im_end|>" in prompts.example
    assert "qwen-boxed would be the published one, but" in prompts.notes[0]
    assert make_prompts(["1+1?"], tokenizer_of(LLAMA, None), system_prompt="Be brief.").template == "plain"


@pytest.mark.parametrize("chat", [NO_SYSTEM, "[{{ messages[-1]['content'] }}]"])
def test_a_chat_without_system_messages_carries_the_instruction_in_the_users(chat: str) -> None:
    tokenizer = tokenizer_of(["<eos>"], chat)
    prompts = make_prompts(["1+1?"], tokenizer)
    assert prompts.example == f"[1+1?\n{SYSTEM_PROMPT}]"
    assert prompts.prompts[0].messages == ({"role": "user", "content": f"1+1?\n{SYSTEM_PROMPT}"},)
    assert "the instruction stands in the user's" in prompts.notes[0]
    with pytest.raises(TemplateError, match="system"):  # who names the chat template is told
        make_prompts(["1+1?"], tokenizer, template="chat")


def test_a_broken_chat_template_is_told_as_it_is() -> None:
    with pytest.raises(TemplateError, match=r"the chat template of .* fails"):
        make_prompts(["1+1?"], tokenizer_of(["<eos>"], "{% if %}"))


def test_the_request_is_part_of_every_rendering() -> None:
    template = ChatTemplate(tokenizer_of(["<eos>"], NO_SYSTEM), "", request="Box it.")
    assert template.render(["a", "b"]) == ["[a\nBox it.]", "[b\nBox it.]"]
