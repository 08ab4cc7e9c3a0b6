"""How a problem becomes a prompt. Imports nothing heavy, so that evaluation can use the same prompts.

What the published recipe does (the DFT code that the paper follows, read at commit e153181):

- Training takes the bare problem as the only message, with no instruction added (its data script builds one, but the
  training command reads the field without it), renders it with the tokenizer's own chat template and generation
  prompt, and appends solution and eos_token. Prompt and response are tokenised apart, without special tokens.
- No system message is passed, so what stands there is the template's default. For Qwen2.5-Math that is
  "Please reason step by step, and put your final answer within \\boxed{}." (`SYSTEM_PROMPT`). Passing it explicitly
  changes nothing for those models and gives the others the same instruction.
- Evaluation uses fixed texts instead, and other ones: the system message is "You are a helpful assistant." and the
  instruction stands at the end of the user's message. They are `qwen-boxed`, `llama-base-boxed` and `deepseek`
  (called deepseek-math there) below. So the recipe evaluates with a prompt it has not trained on; to train on the
  prompt of evaluation, name that template.
- Llama's base models have no chat template, and the code contains none for them. The evaluation text for them uses
  Llama's headers, with every message closed by <|end_of_text|>, their eos.

`plain` is ours, for base models without a chat template:

    Please reason step by step, and put your final answer within \\boxed{}.

    Problem:
    What is 1+1?

    Solution:
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trimsft.train.readers import DataError, one_line

SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."
_ASSISTANT = "You are a helpful assistant."


@dataclass(frozen=True)
class TextTemplate:
    """A prompt that is text around the problem; the tokenizer's own start (bos) belongs before it."""

    before: str
    after: str

    def render(self, problems: Sequence[str]) -> list[str]:
        # not str.format: problems and instructions are full of braces
        return [self.before + problem + self.after for problem in problems]


@dataclass(frozen=True)
class ChatTemplate:
    """The tokenizer's own chat template, which writes all special tokens itself, bos included."""

    tokenizer: Any
    system_prompt: str = SYSTEM_PROMPT
    """Empty: no system message is passed, and the template's default, if it has one, stays."""

    def __post_init__(self) -> None:
        if not getattr(self.tokenizer, "chat_template", None):
            raise DataError(
                f"template: 'chat' needs a chat template, which {_name(self.tokenizer)} lacks; use 'plain' or 'auto'"
            )
        try:
            rendered = self.render(["?"])[0]
        except Exception as error:  # templates raise whatever they like, such as a refusal of system messages
            advice = "; try system_prompt='' to pass no system message" if self.system_prompt else ""
            raise DataError(
                f"template: the chat template of {_name(self.tokenizer)} fails: {one_line(error)}{advice}"
            ) from error
        if self.system_prompt.strip() not in rendered:
            raise DataError(
                f"system_prompt: the chat template of {_name(self.tokenizer)} leaves system messages out; "
                "pass system_prompt='' or use template='plain'"
            )

    def render(self, problems: Sequence[str]) -> list[str]:
        system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        chats = [[*system, {"role": "user", "content": problem}] for problem in problems]
        prompts: list[str] = self.tokenizer.apply_chat_template(
            chats, tokenize=False, add_generation_prompt=True
        )
        return prompts


PromptTemplate: TypeAlias = TextTemplate | ChatTemplate


def plain_template(instruction: str = SYSTEM_PROMPT) -> TextTemplate:
    """Instruction, problem, solution, in words only."""
    start = f"{instruction}\n\n" if instruction else ""
    return TextTemplate(f"{start}Problem:\n", "\n\nSolution:\n")


TEXT_TEMPLATES: dict[str, TextTemplate] = {
    "plain": plain_template(),
    "qwen-boxed": TextTemplate(
        f"<|im_start|>system\n{_ASSISTANT}<|im_end|>\n<|im_start|>user\n",
        f"\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama-base-boxed": TextTemplate(
        f"<|start_header_id|>system<|end_header_id|>\n\n{_ASSISTANT}<|end_of_text|>\n"
        "<|start_header_id|>user<|end_header_id|>\n\n",
        f"\n{SYSTEM_PROMPT}<|end_of_text|>\n<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "deepseek": TextTemplate("User: ", f"\n{SYSTEM_PROMPT}\n\nAssistant:"),
}

TEMPLATE_NAMES = ("auto", "chat", "boxed", *TEXT_TEMPLATES)
"""What `template` may be; auto is chat where the tokenizer has a chat template, else plain; boxed is plain."""


def choose_template(name: str, tokenizer: Any, system_prompt: str | None = None) -> PromptTemplate:
    """The template of that name; `system_prompt` None stands for `SYSTEM_PROMPT`, "" for none."""
    check_template_name(name)
    instruction = SYSTEM_PROMPT if system_prompt is None else system_prompt
    if name == "auto":
        name = "chat" if getattr(tokenizer, "chat_template", None) else "plain"
    if name == "chat":
        return ChatTemplate(tokenizer, instruction)
    if name in ("plain", "boxed"):
        return plain_template(instruction)
    if system_prompt is not None:
        raise DataError(
            f"system_prompt: has no effect with template={name!r}, whose text is fixed; remove it"
        )
    return TEXT_TEMPLATES[name]


def check_template_name(name: str) -> None:
    """Refuse a name that no template has."""
    if name not in TEMPLATE_NAMES:
        near = difflib.get_close_matches(str(name).lower(), TEMPLATE_NAMES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise DataError(f"template: unknown name {name!r}; {hint}known: {', '.join(TEMPLATE_NAMES)}")


def _name(tokenizer: Any) -> str:
    return f"the tokenizer {getattr(tokenizer, 'name_or_path', None) or 'given'!r}"
