"""From problems to prompts, in training and in evaluation alike; imports nothing heavy.

The published recipe (the DFT code that the paper follows, read at commit e153181) trains on the bare problem as the
only message of the tokenizer's own chat template, whose default system message stays (for Qwen2.5-Math it is
`SYSTEM_PROMPT`, which gives other models the same instruction). It evaluates with other, fixed texts, the instruction
at the end of the user's message: `qwen-boxed`, `llama-base-boxed` and `deepseek`. `plain` is ours, for base models
without a chat template.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from trimsft.data.weights import parse_weights
from trimsft.errors import UsageError, one_line
from trimsft.options import check_options, option, unknown_name
from trimsft.runs import RunDirectory
from trimsft.runs.parsing import checked

SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."
_ASSISTANT = "You are a helpful assistant."


class TemplateError(UsageError):
    """A template that cannot render prompts as the settings say."""


@dataclass(frozen=True)
class TextTemplate:
    """A prompt that is text around the problem; the tokenizer's own start (bos) belongs before it."""

    before: str
    after: str
    end: str = ""  # what closes the answer, beside eos: the end of the turn, or the beginning of another problem

    def render(self, problems: Sequence[str]) -> list[str]:
        # not str.format: problems and instructions are full of braces
        return [self.before + problem + self.after for problem in problems]


@dataclass(frozen=True)
class ChatTemplate:
    """The tokenizer's own chat template, which writes all special tokens itself, bos included."""

    tokenizer: Any
    system_prompt: str = SYSTEM_PROMPT
    """Empty: no system message is passed, and the template's default, if it has one, stays."""
    request: str = ""  # stands after the problem in the user's message, for templates that take no system message

    def __post_init__(self) -> None:
        if not getattr(self.tokenizer, "chat_template", None):
            problem = "'chat' needs a chat template, which the tokenizer lacks"
            raise TemplateError(problem, field="template", hint="use 'plain' or 'auto'")
        try:
            rendered = self.render(["?"])[0]
        except Exception as error:  # templates raise whatever they like, such as a refusal of system messages
            hint = "try system_prompt='' to pass no system message" if self.system_prompt else None
            problem = f"the chat template of the tokenizer fails: {one_line(error)}"
            raise TemplateError(problem, field="template", hint=hint) from error
        if self.system_prompt.strip() not in rendered:
            problem = "the chat template of the tokenizer leaves system messages out"
            raise TemplateError(problem, field="system_prompt", hint="pass system_prompt='' or use template='plain'")

    def render(self, problems: Sequence[str]) -> list[str]:
        prompts: list[str] = self.tokenizer.apply_chat_template(
            [self.messages(problem) for problem in problems], tokenize=False, add_generation_prompt=True
        )
        return prompts

    def messages(self, problem: str) -> list[dict[str, str]]:
        """Return the chat that asks a problem."""
        return messages_of(f"{problem}\n{self.request}" if self.request else problem, self.system_prompt)

    @property
    def end(self) -> str:
        """The text that the template writes after an answer; empty where it refuses such a chat."""
        answer = "\u2603"  # nothing that a template writes itself
        chat = [*self.messages("?"), {"role": "assistant", "content": answer}]
        try:
            rendered: str = self.tokenizer.apply_chat_template(chat, tokenize=False)
        except Exception:  # templates raise whatever they like
            return ""
        return rendered.rpartition(answer)[2] if answer in rendered else ""


def messages_of(problem: str, system_prompt: str = SYSTEM_PROMPT) -> list[dict[str, str]]:
    """Return the chat that asks a problem."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": problem}]


PromptTemplate: TypeAlias = TextTemplate | ChatTemplate


def plain_template(instruction: str = SYSTEM_PROMPT) -> TextTemplate:
    """Return the prompt of instruction, problem and solution in words only."""
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
    "llama-base-boxed": TextTemplate(
        f"<|start_header_id|>system<|end_header_id|>\n\n{_ASSISTANT}<|end_of_text|>\n"
        "<|start_header_id|>user<|end_header_id|>\n\n",
        f"\n{SYSTEM_PROMPT}<|end_of_text|>\n<|start_header_id|>assistant<|end_header_id|>\n\n",
        end="<|end_of_text|>",
    ),
    "deepseek": TextTemplate("User: ", f"\n{SYSTEM_PROMPT}\n\nAssistant:"),
}

TEMPLATE_NAMES = ("auto", "chat", *TEXT_TEMPLATES)
"""Names that `template` takes; in evaluation auto follows the family of the tokenizer."""


def choose_template(name: str, tokenizer: Any, system_prompt: str | None = None) -> PromptTemplate:
    """Return the template of that name; `system_prompt` None stands for `SYSTEM_PROMPT`, "" for none."""
    name = resolve_template_name(name, tokenizer)
    instruction = SYSTEM_PROMPT if system_prompt is None else system_prompt
    if name == "chat":
        return ChatTemplate(tokenizer, instruction)
    if name == "plain":
        return plain_template(instruction)
    if system_prompt is not None:
        problem = f"has no effect with template={name!r}, whose text is fixed"
        raise TemplateError(problem, field="system_prompt", hint="remove it")
    return TEXT_TEMPLATES[name]


def resolve_template_name(name: str, tokenizer: Any) -> str:
    """Return the name of the template that is used: never auto."""
    check_template_name(name)
    has_chat = bool(getattr(tokenizer, "chat_template", None))
    return name if name != "auto" else "chat" if has_chat else "plain"


def check_template_name(name: str) -> None:
    """Refuse a name that no template has."""
    if name not in TEMPLATE_NAMES:
        raise unknown_name("template", name, TEMPLATE_NAMES)


# ---- the template that suits a tokenizer

_QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LLAMA_3 = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>")
_DEEPSEEK_BOS = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
_DEEPSEEK_CHAT = "<\uff5cUser\uff5c>"  # later models have it, whose prompts differ


def choose_for_family(tokenizer: Any, system_prompt: str | None) -> tuple[str, PromptTemplate]:
    """Choose for `--template auto` in evaluation; return the template's name and the template.

    The recipe evaluates each family of base models with a fixed text. A family is known by its tokenizer, never by a
    name or a path, which change when a model is trained or moved.
    """
    name = recognise(tokenizer)
    if system_prompt is not None and name not in ("chat", "plain"):  # their text has no place for it
        name = "chat" if tokenizer.chat_template else "plain"
    try:
        template = choose_template(name, tokenizer, system_prompt)
    except TemplateError as refused:
        try:
            template = ChatTemplate(tokenizer, "", SYSTEM_PROMPT if system_prompt is None else system_prompt)
        except TemplateError:
            raise refused from None
    return name, template


def recognise(tokenizer: Any) -> str:
    """Return the name of the template that a tokenizer gives away: by its special tokens and its chat template."""
    has_chat = bool(getattr(tokenizer, "chat_template", None))
    vocabulary = tokenizer.get_vocab()
    has_qwen_tokens = tokenizer.bos_token is None and all(mark in vocabulary for mark in _QWEN)
    has_deepseek_tokens = tokenizer.bos_token == _DEEPSEEK_BOS and _DEEPSEEK_CHAT not in vocabulary
    if has_chat and has_qwen_tokens and _is_chatml(tokenizer):
        return "qwen-boxed"
    if has_deepseek_tokens and (not has_chat or _rendered(tokenizer, []).endswith("User: ?\n\nAssistant:")):
        return "deepseek"
    if not has_chat and all(mark in vocabulary for mark in _LLAMA_3):
        return "llama-base-boxed"
    return "chat" if has_chat else "plain"


def _is_chatml(tokenizer: Any) -> bool:
    """Return whether it is ChatML with a system message of its own; Qwen 3 writes none."""
    question = "<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    system = [{"role": "system", "content": "Be brief."}]
    takes_system = _rendered(tokenizer, system) == f"<|im_start|>system\nBe brief.<|im_end|>\n{question}"
    alone = _rendered(tokenizer, [])
    return takes_system and alone.startswith("<|im_start|>system\n") and alone.endswith(question)


def _rendered(tokenizer: Any, before: list[dict[str, str]]) -> str:
    chat = [*before, {"role": "user", "content": "?"}]
    try:
        return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    except Exception:  # templates raise whatever they like
        return ""


# ---- how rows of any form become tokens

TrainOn = Literal["assistant", "last", "all"]
TRAIN_ON = ("assistant", "last", "all")
"""The turns of messages that are trained."""
TRAINED_LENGTH = 1024
"""The maximum length of a training that names none: TRL's default."""
Keep = Literal["start", "end"]
"""Which end of a long row truncation leaves; TRL's `truncation_mode` without its "keep_"."""


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """The rendering of rows; what is not set is taken from a run's training."""

    template: str = option("auto", metavar="NAME", help="How a problem becomes a prompt (auto: as trained).")
    system_prompt: str | None = option(None, help="System prompt, '' for none (default: as trained).")
    max_length: int | None = option(None, help="Cut rows to so many tokens, 0: never.", least=0)
    train_on: str | None = option(None, choices=TRAIN_ON, help="Turns of messages (default: as trained).")
    weights: str | None = option(None, metavar="RULES", help='Weights by role or span: "prompt=0.1, thinking=0.5".')
    truncation_mode: str | None = None
    """keep_start or keep_end; None stands for keep_start, unless a run was trained otherwise."""
    completion_only_loss: bool | None = None  # of prompts and completions; None masks prompts

    def __post_init__(self) -> None:
        check_options(self)
        check_template_name(self.template)
        parse_weights(self.weights)

    @property
    def keep(self) -> Keep:
        """The end of a long row that is left."""
        return "end" if self.truncation_mode == "keep_end" else "start"

    def as_trained(self, models: Iterable[Any]) -> Rendering:
        """Return the rendering alone, with what is not set as the runs among the models, if they agree."""
        named = {one.name: getattr(self, one.name) for one in fields(Rendering)}
        trained = {_trained(model) for model in models if isinstance(model, str | Path)} - {None}
        was = trained.pop() if len(trained) == 1 else None
        if was is not None:
            # another template's text may have no place for its system prompt
            lost = {"system_prompt"} if self.template not in ("auto", was.template) else set()
            unset = {name for name, value in named.items() if value == getattr(Rendering, name)} - lost
            named |= {name: getattr(was, name) for name in unset}
        return Rendering(**named)


def _trained(model: str | Path) -> Rendering | None:
    """Return how a run directory rendered its rows; None for any other model."""
    run = RunDirectory(model)
    config = run.read_config() if run.is_run() else None
    if config is None:
        return None
    packs = bool(config.get("packing"))
    splits = packs and config.get("packing_strategy", "bfd") != "bfd"  # then nothing is cut
    rendering = {
        "template": config.get("template", "auto"),
        "system_prompt": config.get("system_prompt"),
        "max_length": None if splits else config.get("max_length", TRAINED_LENGTH),
        # packing cuts at the end, whatever the mode
        "truncation_mode": "keep_start" if packs else config.get("truncation_mode", "keep_start"),
        "train_on": config.get("train_on") or ("assistant" if config.get("assistant_only_loss") else None),
        "weights": config.get("weights"),
        "completion_only_loss": config.get("completion_only_loss"),
    }
    return checked(Rendering, rendering, where=str(run.config_path))
