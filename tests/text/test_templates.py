"""Prompts: the published texts, the model's own chat template, and what a template refuses."""

import subprocess
import sys

import pytest

from trimsft.text.templates import SYSTEM_PROMPT, TEXT_TEMPLATES, ChatTemplate, TemplateError, choose_template

from .toys import CHAT, make_tokenizer

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
            "qwen25-math-cot",
            f"<|im_start|>system\n{ASK}<|im_end|>\n<|im_start|>user\nIs {{0}} 1%s?<|im_end|>\n<|im_start|>assistant\n",
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


def test_auto_takes_the_chat_template_where_there_is_one() -> None:
    chat = choose_template("auto", make_tokenizer(chat=CHAT))
    assert chat.render(["a", "b"]) == [f"<bos>[system]{ASK}<end>[user]{p}<end>[assistant]" for p in "ab"]
    assert choose_template("auto", make_tokenizer()) == TEXT_TEMPLATES["plain"]
    assert choose_template("boxed", make_tokenizer(chat=CHAT)) == TEXT_TEMPLATES["plain"]


@pytest.mark.parametrize(
    ("system_prompt", "chat", "plain"),
    [
        (None, f"[system]{ASK}<end>", f"{ASK}\n\n"),
        ("Be brief.", "[system]Be brief.<end>", "Be brief.\n\n"),
        ("", "", ""),
    ],
)
def test_system_prompt(system_prompt: str | None, chat: str, plain: str) -> None:
    tokenizer = make_tokenizer(chat=CHAT)
    assert choose_template("chat", tokenizer, system_prompt).render(["?"]) == [f"<bos>{chat}[user]?<end>[assistant]"]
    assert choose_template("plain", tokenizer, system_prompt).render(["?"]) == [f"{plain}Problem:\n?\n\nSolution:\n"]


@pytest.mark.parametrize(
    ("name", "chat", "system_prompt", "says"),
    [
        ("chat", None, None, "template: 'chat' needs a chat template, which the tokenizer 'given' lacks"),
        ("qwenboxed", None, None, "unknown name 'qwenboxed'; did you mean 'qwen-boxed'"),
        ("qwen-boxed", None, "Be brief.", "system_prompt: has no effect with template='qwen-boxed'"),
        ("chat", "{{ raise_exception('no system role') }}", None, "fails: no system role; try system_prompt=''"),
        ("chat", "{{ messages[-1]['content'] }}", None, "system_prompt: .* leaves system messages out"),
        ("chat", "{% if %}", "", "template: the chat template of .* fails"),
    ],
)
def test_refusals(name: str, chat: str | None, system_prompt: str | None, says: str) -> None:
    with pytest.raises(TemplateError, match=says) as error:
        choose_template(name, make_tokenizer(chat=chat), system_prompt)
    assert "\n" not in str(error.value)


def test_a_template_without_system_messages_can_be_used_without_one() -> None:
    template = ChatTemplate(make_tokenizer(chat="{{ messages[-1]['content'] }}"), system_prompt="")
    assert template.render(["?"]) == ["?"]


def test_default_is_the_recipe() -> None:
    assert SYSTEM_PROMPT == ASK


def test_light_to_import() -> None:
    """Evaluation renders prompts without loading what training needs."""
    code = (
        "import sys, trimsft; before = set(sys.modules); import trimsft.text.templates; "
        "heavy = {'trl', 'datasets', 'transformers', 'pyarrow'} & {m.partition('.')[0] for m in sys.modules}; "
        "assert not heavy, heavy; "
        "assert 'torch' not in {m.partition('.')[0] for m in set(sys.modules) - before}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
