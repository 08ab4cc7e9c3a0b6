r"""Answers to multiple choice: a letter, what it stands for, or both.

>>> choice_of("\\text{(D)} 142"), choice_of("40\\text{ (B)}"), choice_of("\\text{Option C}")
(Choice(letter='D', content='142'), Choice(letter='B', content='40'), Choice(letter='C', content=None))
"""

import re
from dataclasses import dataclass

_TEXT_LETTER = re.compile(r"\\text\s*\{\s*\(\s*([A-J])\s*\)\s*[.:]?\s*\}\s*(?:[.:](?!\d))?\s*(.*)", re.DOTALL)
_TEXT_BOTH = re.compile(r"\\text\s*\{\s*(?:\(([A-J])\)|([A-J])\s*[).:])\s*([^{}]*)\}(.*)", re.DOTALL)
_PLAIN_BOTH = re.compile(r"(?:\(([A-J])\)\s+|([A-J])\s*[).:]\s+)(?![-+=|]|\\to(?![A-Za-z]))(.+)")
_MARKED = re.compile(r"\([A-J]\)")
_LETTER_LAST = re.compile(r"(.+?)\s*\\text\s*\{\s*\(\s*([A-J])\s*\)\s*\}")
_LETTER = re.compile(
    r"(?:\\text\s*\{)?\s*(?:(?:option|choice|answer)\s+)?\(?\s*([A-J])\s*\)?\s*[.:]?\s*\}?", re.IGNORECASE
)

# what computes with a letter, before it or after it: C+1, C^2, -C; a sign after a space begins a value, as in (C) -1
_OPERATOR = r"[*/^_<>,]|\\(?:cdot|times|pm|mp|cup|cap|setminus|le|ge|ne|in)(?![A-Za-z])"
_JOINED = re.compile(rf"\s*(?:\\text\s*\{{\s*)?(?:{_OPERATOR}|[!%']|(?<=\))[-+]|(?<=\)\}})[-+]|[-+](?:\s|$))")
_JOINING = re.compile(rf"(?:{_OPERATOR}|[-+]|\\(?:neg|lnot|not|sqrt)|\\text\s*\{{\s*not\s*\}})\s*$")


@dataclass(frozen=True)
class Choice:
    """A letter, and what it stands for where that is said."""

    letter: str
    content: str | None


def choice_of(text: str) -> Choice | None:
    """The choice that a cleaned text makes, None where it makes none or two, or computes with a letter."""
    if len(_MARKED.findall(text)) > 1:
        return None
    if (letter := _LETTER.fullmatch(text)) and letter[1].isupper():
        return Choice(letter[1], None)
    if match := _TEXT_LETTER.fullmatch(text):
        return _unless_joined(match, 2, Choice(match[1], match[2].strip() or None))
    if match := _TEXT_BOTH.fullmatch(text):
        words = match[3].strip()
        words = words if re.match(r"-?[\d.]|$", words) else rf"\text{{{words}}}"
        content = f"{words} {match[4]}".strip() or None
        return _unless_joined(match, 3 if match[3].strip() else 4, Choice(match[1] or match[2], content))
    if match := _PLAIN_BOTH.fullmatch(text):
        return _unless_joined(match, 3, Choice(match[1] or match[2], match[3].strip()))
    if match := _LETTER_LAST.fullmatch(text):
        return None if _JOINING.search(match[1]) else Choice(match[2], match[1])
    return None


def _unless_joined(match: re.Match[str], group: int, choice: Choice) -> Choice | None:
    """The choice, None where an operator stands between the letter and the group after it."""
    return None if _JOINED.match(match.string, match.start(group)) else choice
