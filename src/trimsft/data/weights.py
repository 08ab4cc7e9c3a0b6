r"""Weights of tokens by what they are: `--weights "prompt=0.1, thinking=0.5, boxed=2, /\d+/=3"`.

    >>> [str(rule) for rule in parse_weights("thinking=0.5, /a,b=c/=2")]
    ['thinking=0.5', '/a,b=c/=2.0']

Factors of all rules that fit a token multiply, and so does what the data itself says of a row, a message or a part.
`prompt`, `system`, `user` and `tool` are about what is not trained otherwise, and train it; `completion`, `assistant`,
`last_turn`, `thinking` (<think>), `tool_call`, `answer` (neither) and its `last_line`, `boxed` and patterns are about
what is. So are `empty_thinking`, a block that the template has written, and `history_thinking`, which the model's own
template leaves out of a history: where answers are trained, both are 0 unless a rule says otherwise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.errors import DataError, UsageError
from trimsft.objectives.token_stats import ROLES
from trimsft.options import unknown_name

CONTEXT = ("system", "user", "tool")
SPANS = ("thinking", "empty_thinking", "history_thinking", "tool_call", "answer", "last_line", "boxed")
NAMES = ("prompt", *CONTEXT, "completion", "assistant", "last_turn", *SPANS)
_RULE = re.compile(r"\s*(?:/(?P<pattern>(?:\\.|[^/\\])+)/|(?P<name>\w+))\s*=\s*(?P<weight>[^,\s]+)\s*(?:,|\Z)")
_THINKING = re.compile(r"\A(?:(?!<think>).)*?</think>|<think>.*?(?:</think>|\Z)", re.DOTALL)
_CALLS = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)|(?:\[TOOL_CALLS\]|<\|python_tag\|>).*", re.DOTALL)

_OF_TEMPLATES = {
    "empty_thinking": re.compile(r"<think>\s*</think>\s*"),
    "history_thinking": re.compile(r"<think>.*?</think>\s*", re.DOTALL),
}


@dataclass(frozen=True)
class Rule:
    """One factor, and the tokens that have it."""

    name: str  # one of `NAMES`, or /pattern/
    weight: float
    pattern: re.Pattern[str] | None = None

    def __str__(self) -> str:
        return f"{self.name}={self.weight}"


OF_TEMPLATES = (Rule("empty_thinking", 0.0), Rule("history_thinking", 0.0))
"""What templates do to thoughts."""


def rules_of(text: str | None, train_on: str) -> tuple[Rule, ...]:
    """Return the rules of a text, and those of templates that it does not name."""
    given = parse_weights(text)
    names = {rule.name for rule in given}
    return (*given, *(rule for rule in OF_TEMPLATES if train_on != "all" and rule.name not in names))


def parse_weights(text: str | None) -> tuple[Rule, ...]:
    """Return the rules of a text such as "prompt=0.1, answer=2"; none of no text."""
    rules: list[Rule] = []
    place, text = 0, (text or "").strip()
    while place < len(text):
        match = _RULE.match(text, place)
        if match is None:
            hint = 'write rules such as "prompt=0.1, answer=2, /pattern/=3"'
            raise UsageError("is no list of rules", field="weights", value=text[place:], hint=hint)
        pattern, name = match["pattern"], match["name"] or f"/{match['pattern']}/"
        if pattern is None and name not in NAMES:
            raise unknown_name("weights", name, NAMES)
        try:
            weight = as_weight(float(match["weight"]), name)
            rules.append(Rule(name, weight, re.compile(pattern, re.DOTALL) if pattern else None))
        except (ValueError, re.error) as error:
            raise UsageError(f"{name}: {error}", field="weights", value=match["weight"]) from error
        place = match.end()
    return tuple(rules)


def as_weight(value: Any, name: str) -> float:
    """Return a weight that data gives, 1 where it gives none."""
    if value is None:
        return 1.0
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise DataError(f"{name!r} must be a finite number of at least 0, false or true", value=value)
    return float(value)


@dataclass(frozen=True)
class Turn:
    """A part of a text that one role has written."""

    role: str  # prompt and completion where there are no messages
    start: int
    end: int


@dataclass
class RowText:
    """The text of a row, where its tokens end in it, and its turns."""

    text: str
    ends: NDArray[np.int64]
    turns: Sequence[Turn] = field(default_factory=tuple)
    own: str = ""
    """The same by the model's own template, where that in use is one for training."""

    def inside(self, start: int, end: int) -> NDArray[np.bool_]:
        """Return the tokens between two characters: a token belongs where its last character stands."""
        last = np.clip(self.ends - 1, 0, max(len(self.text) - 1, 0))
        return (last >= start) & (last < end)

    def fitting(self, rule: Rule, is_trained: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the tokens that a rule is about; `is_trained` are those without any rule."""
        if rule.name == "prompt":
            return ~is_trained
        if rule.name == "completion":
            return is_trained
        answers = [turn for turn in self.turns if turn.role in ("assistant", "completion")]
        turns = {"assistant": answers, "last_turn": answers[-1:]}
        turns |= {name: [turn for turn in self.turns if turn.role == name] for name in CONTEXT}
        spans = [(turn.start, turn.end) for turn in turns.get(rule.name, ())]
        for turn in answers if rule.name not in turns else ():
            found = _spans(rule, self.text[turn.start : turn.end])
            spans += [(turn.start + start, turn.start + end) for start, end in found]
        if rule.name == "history_thinking":
            asked = max((turn.start for turn in self.turns if turn.role == "user"), default=0)
            dropped = [self.text[start:end].strip() not in self.own for start, end in spans]
            spans = [span for span, is_dropped in zip(spans, dropped, strict=True) if is_dropped and span[0] < asked]
        fits = np.zeros(len(self.ends), dtype=bool)
        for start, end in spans:
            fits |= self.inside(start, end)
        return fits if rule.name in CONTEXT else fits & is_trained

    def roles(self) -> NDArray[np.int64]:
        """Return the part of the chat that each token is of, as an index into `ROLES`."""
        roles, every = np.zeros(len(self.ends), dtype=np.int64), np.ones(len(self.ends), dtype=bool)
        for name in ("tool", "answer", "thinking", "tool_call", "last_line"):
            roles[self.fitting(Rule(name, 1.0), every)] = ROLES.index(name.removesuffix("_call"))
        return roles


def _spans(rule: Rule, text: str) -> list[tuple[int, int]]:
    """Return where a rule fits in the text of an answer."""
    if pattern := rule.pattern or _OF_TEMPLATES.get(rule.name):
        return [match.span() for match in pattern.finditer(text)]
    if rule.name == "boxed":
        return [(match.start(), _closing(text, match.end())) for match in re.finditer(r"\\boxed\s*\{", text)]
    thinking = [match.span() for match in _THINKING.finditer(text)]
    # a call that is only thought of is none
    spans = (match.span() for match in _CALLS.finditer(text))
    calls = [span for span in spans if not any(start <= span[0] < end for start, end in thinking)]
    if rule.name in ("thinking", "tool_call"):
        return calls if rule.name == "tool_call" else thinking
    taken = sorted([*thinking, *calls])
    borders = [0, *(border for span in taken for border in span), len(text)]
    answers = list(zip(borders[::2], borders[1::2], strict=True))
    if rule.name == "answer":
        return answers
    start, end = answers[-1]
    line = text.rfind("\n", start, start + len(text[start:end].rstrip()))
    return [(max(start, line + 1), end)]


def _closing(text: str, place: int) -> int:
    """Return the place behind the brace that closes one opened before `place`."""
    depth = 1
    for match in re.finditer(r"\\.|[{}]", text[place:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return place + match.end()
    return len(text)
