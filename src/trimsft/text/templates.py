"""How a problem becomes a prompt, in training and in evaluation alike; imports nothing heavy.

What the published recipe does (the DFT code that the paper follows, read at commit e153181):

- Training takes the bare problem as the only message, with no instruction added (its data script builds one, but the
  training command reads the field without it), renders it with the tokenizer's own chat template and generation
  prompt, and appends solution and eos_token. Prompt and response are tokenised apart, without special tokens.
- No system message is passed, so what stands there is the template's default. For Qwen2.5-Math that is
  "Please reason step by step, and put your final answer within \\boxed{}." (`SYSTEM_PROMPT`). Passing it explicitly
  changes nothing for those models and gives the others the same instruction.
- Evaluation uses fixed texts instead, and other ones: the system message is "You are a helpful assistant." and the
  instruction stands at the end of the user's message. They are `qwen-boxed`, `llama-base-boxed` and `deepseek`
  (called deepseek-math there) below; `qwen25-math-cot` is the text published for Qwen2.5-Math's instruction models,
  the same as their chat template with `SYSTEM_PROMPT`. So the recipe evaluates with a prompt it has not trained on;
  to train on the prompt of evaluation, name that template.
- Llama's base models have no chat template, and the code contains none for them. The evaluation text for them uses
  Llama's headers, with every message closed by <|end_of_text|>, their eos.

`plain` is ours, for base models without a chat template:

    Please reason step by step, and put your final answer within \\boxed{}.

    Problem:
    What is 1+1?

    Solution:
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trimsft.errors import UsageError, one_line
from trimsft.options import unknown_name

SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."
_ASSISTANT = "You are a helpful assistant."


class TemplateError(UsageError):
    """A template that cannot render prompts as the settings say."""


@dataclass(frozen=True)
class TextTemplate:
    """A prompt that is text around the problem; the tokenizer's own start (bos) belongs before it."""

    before: str
    after: str
    end: str = ""
    """What closes the answer, beside eos: the end of the turn, or the beginning of another problem."""

    def render(self, problems: Sequence[str]) -> list[str]:
        # not str.format: problems and instructions are full of braces
        return [self.before + problem + self.after for problem in problems]


@dataclass(frozen=True)
class ChatTemplate:
    """The tokenizer's own chat template, which writes all special tokens itself, bos included."""

    tokenizer: Any
    system_prompt: str = SYSTEM_PROMPT
    """Empty: no system message is passed, and the template's default, if it has one, stays."""
    request: str = ""
    """Stands after the problem in the user's message, for templates that take no system message."""

    def __post_init__(self) -> None:
        if not getattr(self.tokenizer, "chat_template", None):
            raise TemplateError(
                f"'chat' needs a chat template, which {_name(self.tokenizer)} lacks",
                field="template",
                hint="use 'plain' or 'auto'",
            )
        try:
            rendered = self.render(["?"])[0]
        except Exception as error:  # templates raise whatever they like, such as a refusal of system messages
            raise TemplateError(
                f"the chat template of {_name(self.tokenizer)} fails: {one_line(error)}",
                field="template",
                hint="try system_prompt='' to pass no system message" if self.system_prompt else None,
            ) from error
        if self.system_prompt.strip() not in rendered:
            raise TemplateError(
                f"the chat template of {_name(self.tokenizer)} leaves system messages out",
                field="system_prompt",
                hint="pass system_prompt='' or use template='plain'",
            )

    def render(self, problems: Sequence[str]) -> list[str]:
        prompts: list[str] = self.tokenizer.apply_chat_template(
            [self.messages(problem) for problem in problems], tokenize=False, add_generation_prompt=True
        )
        return prompts

    def messages(self, problem: str) -> list[dict[str, str]]:
        """The chat that asks a problem."""
        return messages_of(f"{problem}\n{self.request}" if self.request else problem, self.system_prompt)

    @property
    def end(self) -> str:
        """What the template writes after an answer; empty where it refuses such a chat."""
        answer = "\u2603"  # nothing that a template writes itself
        chat = [*self.messages("?"), {"role": "assistant", "content": answer}]
        try:
            rendered: str = self.tokenizer.apply_chat_template(chat, tokenize=False)
        except Exception:  # templates raise whatever they like
            return ""
        return rendered.rpartition(answer)[2] if answer in rendered else ""


def messages_of(problem: str, system_prompt: str = SYSTEM_PROMPT) -> list[dict[str, str]]:
    """The chat that asks a problem."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": problem}]


PromptTemplate: TypeAlias = TextTemplate | ChatTemplate


def plain_template(instruction: str = SYSTEM_PROMPT) -> TextTemplate:
    """Instruction, problem, solution, in words only."""
    start = f"{instruction}\n\n" if instruction else ""
    # a base model that has answered goes on with a problem of its own
    return TextTemplate(f"{start}Problem:\n", "\n\nSolution:\n", end="\n\nProblem:")


TEXT_TEMPLATES: dict[str, TextTemplate] = {
    "plain": plain_template(),
    "qwen-boxed": TextTemplate(
        f"<|im_start|>system\n{_ASSISTANT}<|im_end|>\n<|im_start|>user\n",
        f"\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>assistant\n",
        end="<|im_end|>",
    ),
    "qwen25-math-cot": TextTemplate(
        f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n<|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
        end="<|im_end|>",
    ),
    "llama-base-boxed": TextTemplate(
        f"<|start_header_id|>system<|end_header_id|>\n\n{_ASSISTANT}<|end_of_text|>\n"
        "<|start_header_id|>user<|end_header_id|>\n\n",
        f"\n{SYSTEM_PROMPT}<|end_of_text|>\n<|start_header_id|>assistant<|end_header_id|>\n\n",
        end="<|end_of_text|>",
    ),
    "deepseek": TextTemplate("User: ", f"\n{SYSTEM_PROMPT}\n\nAssistant:"),
}

TEMPLATE_NAMES = ("auto", "chat", "boxed", *TEXT_TEMPLATES)
"""What `template` may be; boxed is plain. In training, auto is chat where the tokenizer has a chat template, else
plain; in evaluation it follows the family of the tokenizer, see `trimsft.text.families`."""


def choose_template(name: str, tokenizer: Any, system_prompt: str | None = None) -> PromptTemplate:
    """The template of that name; `system_prompt` None stands for `SYSTEM_PROMPT`, "" for none."""
    name = resolve_template_name(name, tokenizer)
    instruction = SYSTEM_PROMPT if system_prompt is None else system_prompt
    if name == "chat":
        return ChatTemplate(tokenizer, instruction)
    if name == "plain":
        return plain_template(instruction)
    if system_prompt is not None:
        raise TemplateError(
            f"has no effect with template={name!r}, whose text is fixed", field="system_prompt", hint="remove it"
        )
    return TEXT_TEMPLATES[name]


def resolve_template_name(name: str, tokenizer: Any) -> str:
    """The name of the template that is used: never auto, nor boxed."""
    check_template_name(name)
    if name == "auto":
        return "chat" if getattr(tokenizer, "chat_template", None) else "plain"
    return "plain" if name == "boxed" else name


def check_template_name(name: str) -> None:
    """Refuse a name that no template has."""
    if name not in TEMPLATE_NAMES:
        unknown = unknown_name("template", name, TEMPLATE_NAMES)
        raise TemplateError(unknown.problem, field=unknown.field, hint=unknown.hint)


def _name(tokenizer: Any) -> str:
    return f"the tokenizer {getattr(tokenizer, 'name_or_path', None) or 'given'!r}"
