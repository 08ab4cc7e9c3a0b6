"""The prompts of a benchmark: the same templates as in training, with what ends an answer.

prompts = make_prompts(["What is 1+1?"], tokenizer, template="auto")
prompts.template         # "qwen-boxed" for a tokenizer of Qwen 2.5; never auto
prompts.prompts[0]       # .text as the model sees it, .tokens, .messages (chat only)
prompts.stop_tokens      # what ends the answer, beside the model's own eos
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimsft.data.encode import encode_prompts, encode_texts
from trimsft.data.templates import (
    SYSTEM_PROMPT,
    ChatTemplate,
    PromptTemplate,
    TextTemplate,
    choose_for_family,
    choose_template,
    messages_of,
    resolve_template_name,
)
from trimsft.evaluate.engines import Sampling


@dataclass(frozen=True)
class Prompt:
    """One prompt in the forms that engines take."""

    text: str
    tokens: tuple[int, ...] = ()  # none without a tokenizer
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
    prompts: tuple[Prompt, ...]
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()

    @property
    def example(self) -> str:
        """Return the first prompt, to be shown and recorded."""
        first = self.prompts[0]
        return first.text or "\n".join(f"[{m['role']}] {m['content']}" for m in first.messages or ())

    def ended(self, sampling: Sampling) -> Sampling:
        """Return this sampling with all that ends an answer."""
        stop, tokens = (*sampling.stop, *self.stop), (*sampling.stop_tokens, *self.stop_tokens)
        return replace(sampling, stop=tuple(dict.fromkeys(stop)), stop_tokens=tuple(dict.fromkeys(tokens)))


def make_prompts(
    problems: Sequence[str], tokenizer: Any = None, *, template: str = "auto", system_prompt: str | None = None
) -> Prompts:
    """Render problems; without a tokenizer (a server that has one) `auto` is a chat that the server renders."""
    if tokenizer is None and template in ("auto", "chat"):
        instruction = SYSTEM_PROMPT if system_prompt is None else system_prompt
        return Prompts("chat", tuple(Prompt("", messages=tuple(messages_of(one, instruction))) for one in problems))
    if template == "auto":
        name, chosen = choose_for_family(tokenizer, system_prompt)
    else:
        name, chosen = resolve_template_name(template, tokenizer), choose_template(template, tokenizer, system_prompt)
    texts = chosen.render(problems)
    if tokenizer is None:
        return Prompts(name, tuple(map(Prompt, texts)), stop=(chosen.end,) if chosen.end else ())
    tokens = map(tuple, encode_prompts(problems, tokenizer, chosen))
    chats = [tuple(chosen.messages(one)) if isinstance(chosen, ChatTemplate) else None for one in problems]
    return Prompts(name, tuple(map(Prompt, texts, tokens, chats)), *_ends(chosen, tokenizer))


def _ends(template: PromptTemplate, tokenizer: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return texts and tokens that end an answer: eos, and the end of the turn."""
    tokens = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    end = template.end
    if not end.strip():
        return (), tuple(tokens)
    marker = encode_texts([end], tokenizer)[0][0]
    if tokenizer.decode([marker]) == end or marker in tokenizer.all_special_ids:
        return (), tuple(dict.fromkeys([*tokens, marker]))
    # of a chat template only a special token counts: its words may be anybody's
    return ((end,) if isinstance(template, TextTemplate) else ()), tuple(tokens)
