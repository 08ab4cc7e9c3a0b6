"""Prompts of an evaluation: what is asked, what ends an answer, and what looks wrong."""

import json
from pathlib import Path

import pytest

from trimsft.data.templates import SYSTEM_PROMPT, TemplateError
from trimsft.errors import DataError, UsageError
from trimsft.evaluate.prompts import Shot, make_prompts, read_shots

from .tiny_model import CHAT, make_tokenizer

EOS, START, END = 0, 1, 2
QWEN = f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"


def test_auto_takes_the_chat_template_of_an_unknown_family() -> None:
    tokenizer = make_tokenizer()
    prompts = make_prompts(["1+1?", "2+2?"], tokenizer)
    assert prompts.template == "chat" and prompts.example == QWEN
    first = prompts.prompts[0]
    assert tokenizer.decode(first.tokens) == QWEN
    assert first.messages == ({"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": "1+1?"})
    assert make_prompts(["1+1?"], make_tokenizer(chat=None)).template == "plain"
    assert make_prompts(["1+1?"], make_tokenizer(), template="qwen25-math-cot").example == QWEN  # as published


@pytest.mark.parametrize(
    ("template", "chat", "stop", "stop_tokens"),
    [
        ("auto", CHAT, (), (EOS, END)),  # the turn ends with a token that is not eos
        ("qwen-boxed", None, (), (EOS, END)),
        ("plain", None, ("\n\nProblem:",), (EOS,)),
        ("deepseek", None, (), (EOS,)),
        ("llama-base-boxed", None, ("<|end_of_text|>",), (EOS,)),
        ("chat", "{{ messages[0]['content'] }} and so on", (), (EOS,)),  # words of a template end nothing
        ("chat", "{{ messages[0]['content'] }}{% if messages|length > 2 %}{{ 1/0 }}{% endif %}", (), (EOS,)),
    ],
)
def test_what_ends_an_answer(
    template: str, chat: str | None, stop: tuple[str, ...], stop_tokens: tuple[int, ...]
) -> None:
    prompts = make_prompts(["1+1?"], make_tokenizer(chat=chat), template=template)
    assert (prompts.stop, prompts.stop_tokens) == (stop, stop_tokens)


def test_a_template_of_another_model_is_noticed() -> None:
    notes = make_prompts(["1+1?"], make_tokenizer(), template="llama-base-boxed").notes
    assert any("<|start_header_id|> is no token of this tokenizer" in note for note in notes)
    assert make_prompts(["1+1?"], make_tokenizer(), template="qwen-boxed").notes == ()


def test_without_a_tokenizer_the_server_renders_the_chat() -> None:
    prompts = make_prompts(["1+1?"], system_prompt="Be brief.")
    assert prompts.template == "chat" and prompts.prompts[0].tokens is None
    assert prompts.example == "[system] Be brief.\n[user] 1+1?"
    plain = make_prompts(["1+1?"], template="plain")
    assert plain.template == "plain" and plain.example.endswith("Problem:\n1+1?\n\nSolution:\n")
    assert plain.stop == ("\n\nProblem:",)


def test_fingerprints_tell_prompts_apart() -> None:
    chats = make_prompts(["1+1?", "2+2?"]).prompts
    texts = make_prompts(["1+1?", "2+2?"], make_tokenizer()).prompts
    assert len({prompt.sha for prompt in (*chats, *texts)}) == 4


def test_refusals() -> None:
    with pytest.raises(TemplateError, match="unknown name 'qwen'"):
        make_prompts(["?"], template="qwen")
    with pytest.raises(TemplateError, match="system_prompt: has no effect with template='deepseek'"):
        make_prompts(["?"], make_tokenizer(), template="deepseek", system_prompt="Be brief.")
    with pytest.raises(TemplateError, match="there are none"):
        make_prompts([], make_tokenizer())


SHOTS = (Shot("1+1?", "It is \\boxed{2}."), Shot("2+2?", "It is \\boxed{4}."))


def test_solved_problems_stand_before_the_one_that_is_asked() -> None:
    plain = make_prompts(["3+3?"], make_tokenizer(chat=None), template="plain", shots=SHOTS)
    assert plain.example.endswith(
        "Problem:\n1+1?\n\nSolution:\nIt is \\boxed{2}.\n\nProblem:\n2+2?\n\nSolution:\nIt is \\boxed{4}.\n\n"
        "Problem:\n3+3?\n\nSolution:\n"
    )
    assert plain.example.count(SYSTEM_PROMPT) == 1 and plain.stop == ("\n\nProblem:",)
    for tokenizer in (make_tokenizer(), None):
        chat = make_prompts(["3+3?"], tokenizer, template="chat", shots=SHOTS).prompts[0].messages or ()
        assert [m["role"] for m in chat] == ["system", "user", "assistant", "user", "assistant", "user"]
        assert [m["content"] for m in chat[1:]] == ["1+1?", SHOTS[0].solution, "2+2?", SHOTS[1].solution, "3+3?"]
    rendered = make_prompts(["3+3?"], make_tokenizer(), template="chat", shots=SHOTS).example
    assert "<|im_start|>assistant\nIt is \\boxed{4}.<|im_end|>\n<|im_start|>user\n3+3?<|im_end|>" in rendered
    with pytest.raises(UsageError, match="few_shot: has no place in the template 'qwen-boxed', whose text is fixed"):
        make_prompts(["?"], make_tokenizer(), template="qwen-boxed", shots=SHOTS)


def test_a_file_of_solved_problems(tmp_path: Path) -> None:
    path = tmp_path / "shots.jsonl"
    path.write_text("".join(json.dumps(shot._asdict()) + "\n" for shot in SHOTS))
    assert read_shots(path) == SHOTS
    for content, says in (("", "holds no solved"), ('{"problem": "?"}', "line 1: 'solution' must be a text")):
        path.write_text(content)
        with pytest.raises(DataError, match=says):
            read_shots(path)
    with pytest.raises(DataError, match="few_shot: no such file"):
        read_shots(tmp_path / "gone.jsonl")
