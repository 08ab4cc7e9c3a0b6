"""The prompts of a benchmark: the same templates as in training, with what ends an answer.

prompts = make_prompts(["What is 1+1?"], tokenizer, template="auto")
prompts.template         # "qwen-boxed" for a tokenizer of Qwen 2.5; never auto
prompts.prompts[0]       # .text as the model sees it, .tokens, .messages (chat only)
prompts.stop_tokens      # what ends the answer, beside the model's own eos
prompts.notes            # why auto chose what it did, and what looks wrong, each in one line

Few-shot examples are solved problems that stand before the one that is asked. A file of them is JSON Lines, one solved
problem a line; all of them are shown, in order:

    {"problem": "What is 1+1?", "solution": "Two. \\\\boxed{2}"}

In the template `plain` they are text, in `chat` earlier turns; the other templates have a fixed text.

`auto` asks each family of models as published evaluations do (`families`), whatever it was trained on.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trimsft.data.encode import encode_prompts, encode_texts
from trimsft.data.load import is_text
from trimsft.data.templates import (
    SYSTEM_PROMPT,
    ChatTemplate,
    PromptTemplate,
    TemplateError,
    TextTemplate,
    check_template_name,
    choose_for_family,
    choose_template,
    messages_of,
    resolve_template_name,
)
from trimsft.errors import DataError, UsageError
from trimsft.evaluate.problems import read_rows

_SERVER_RENDERS = (
    "template auto: chat, because the server renders it itself; other engines go by the tokenizer, which for Qwen, "
    "DeepSeek and Llama's base models means another template: name the folder of the model, or its tokenizer"
)
_MARKER = re.compile(r"<\|[a-z_]+\|>")


class Shot(NamedTuple):
    """A solved problem."""

    problem: str
    solution: str


@dataclass(frozen=True)
class Prompt:
    """One prompt in the forms that engines take."""

    text: str
    tokens: tuple[int, ...] | None = None  # None without a tokenizer
    messages: tuple[dict[str, str], ...] | None = None  # None for a template that is no chat

    @property
    def sha(self) -> str:
        """Return a short fingerprint of what is asked, for the record."""
        content = self.text or json.dumps(self.messages)
        return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Prompts:
    """All prompts of a benchmark, and what ends an answer to them."""

    template: str  # the name of the template used: never auto
    system_prompt: str | None
    prompts: tuple[Prompt, ...]
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def example(self) -> str:
        """Return the first prompt, to be shown and recorded."""
        first = self.prompts[0]
        return first.text or "\n".join(f"[{m['role']}] {m['content']}" for m in first.messages or ())


def make_prompts(
    problems: Sequence[str],
    tokenizer: Any = None,
    *,
    template: str = "auto",
    system_prompt: str | None = None,
    shots: tuple[Shot, ...] = (),
) -> Prompts:
    """Render problems; without a tokenizer (a server that has one) `auto` is a chat that the server renders."""
    if not problems:
        raise TemplateError("problems: there are none to make prompts of")
    if tokenizer is None:
        return _without_tokenizer(problems, template, system_prompt, shots)
    why: tuple[str, ...] = ()
    if template == "auto":
        name, chosen, reason = choose_for_family(tokenizer, system_prompt)
        why = (reason,)
    else:
        name = resolve_template_name(template, tokenizer)
        chosen = choose_template(template, tokenizer, system_prompt)
    chosen = with_shots(name, chosen, shots)
    texts = chosen.render(problems)
    tokens = encode_prompts(problems, tokenizer, chosen)
    chats: list[tuple[dict[str, str], ...] | None] = [None] * len(problems)
    if isinstance(chosen, ChatTemplate):
        chats = [tuple(chosen.messages(problem)) for problem in problems]
    prompts = tuple(Prompt(text, tuple(ids), chat) for text, ids, chat in zip(texts, tokens, chats, strict=True))
    stop, stop_tokens = _ends(chosen, tokenizer)
    notes = (*why, *_unknown_markers(name, chosen, tokenizer))
    return Prompts(name, system_prompt, prompts, stop, stop_tokens, notes)


def _without_tokenizer(
    problems: Sequence[str], template: str, system_prompt: str | None, shots: tuple[Shot, ...]
) -> Prompts:
    check_template_name(template)
    if template in ("auto", "chat"):
        instruction = SYSTEM_PROMPT if system_prompt is None else system_prompt
        before = [*messages_of("", instruction)[:-1], *turns_of(shots)]
        chats = ((*before, {"role": "user", "content": problem}) for problem in problems)
        why = (_SERVER_RENDERS,) if template == "auto" else ()
        return Prompts("chat", system_prompt, tuple(Prompt("", None, chat) for chat in chats), notes=why)
    name = resolve_template_name(template, None)
    chosen = with_shots(name, choose_template(template, None, system_prompt), shots)
    prompts = tuple(Prompt(text) for text in chosen.render(problems))
    return Prompts(name, system_prompt, prompts, stop=(chosen.end,) if chosen.end else ())


def _ends(template: PromptTemplate, tokenizer: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return texts and tokens that end an answer: eos, and the end of the turn, which is not the eos of base models."""
    tokens = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    end = template.end
    if not end.strip():
        return (), tuple(tokens)
    marker = encode_texts([end], tokenizer)[0][0]
    if tokenizer.decode([marker]) == end or marker in tokenizer.all_special_ids:
        return (), tuple(dict.fromkeys([*tokens, marker]))
    # of a chat template only a special token counts: its words may be anybody's
    return ((end,) if isinstance(template, TextTemplate) else ()), tuple(tokens)


def _unknown_markers(name: str, template: PromptTemplate, tokenizer: Any) -> tuple[str, ...]:
    """Return a note for each marker of a text template that the tokenizer does not know: it is the wrong template."""
    if not isinstance(template, TextTemplate):
        return ()
    markers = dict.fromkeys(_MARKER.findall(template.before + template.after))
    lengths = {marker: len(encode_texts([marker], tokenizer)[0]) for marker in markers}
    return tuple(
        f"template {name!r}: {marker} is no token of this tokenizer, which reads it as {length} tokens; "
        "is it the template of another model?"
        for marker, length in lengths.items()
        if length > 1
    )


# ---- few-shot examples


def read_shots(path: Path) -> tuple[Shot, ...]:
    """Read the solved problems of a file; an error names the line."""
    if not path.expanduser().is_file():
        raise DataError("no such file", field="few_shot", value=str(path))
    shots = []
    for number, row in read_rows(path.expanduser()):
        for name in Shot._fields:
            if not is_text(row.get(name)):
                raise DataError(f"{path}, line {number}: {name!r} must be a text", field="few_shot")
        shots.append(Shot(row["problem"], row["solution"]))
    if not shots:
        raise DataError(f"{path}: holds no solved problems", field="few_shot")
    return tuple(shots)


def describe_shots(shots: Sequence[Shot]) -> dict[str, Any]:
    """Return what is recorded of them: how many, and which."""
    digest = hashlib.sha256(json.dumps(shots).encode()).hexdigest()
    return {"few_shot": len(shots) or None, "few_shot_sha256": digest if shots else None}


@dataclass(frozen=True)
class _ChatWithShots(ChatTemplate):
    shots: tuple[Shot, ...] = ()

    def messages(self, problem: str) -> list[dict[str, str]]:
        *system, asked = super().messages(problem)
        return [*system, *turns_of(self.shots, self.request), asked]


def turns_of(shots: Sequence[Shot], request: str = "") -> list[dict[str, str]]:
    """Return the examples as turns of a chat; `request` stands after each problem."""
    turns = []
    for problem, solution in shots:
        turns.append({"role": "user", "content": f"{problem}\n{request}" if request else problem})
        turns.append({"role": "assistant", "content": solution})
    return turns


def with_shots(name: str, template: PromptTemplate, shots: tuple[Shot, ...]) -> PromptTemplate:
    """Return the template with the examples in it."""
    if not shots:
        return template
    if isinstance(template, ChatTemplate):
        return _ChatWithShots(template.tokenizer, template.system_prompt, template.request, shots)
    if name != "plain":
        problem = f"has no place in the template {name!r}, whose text is fixed"
        raise UsageError(problem, field="few_shot", hint="use the template chat or plain, or leave it out")
    solved = "".join(f"{problem}{template.after}{solution}{template.end}\n" for problem, solution in shots)
    return TextTemplate(template.before + solved, template.after, template.end)
