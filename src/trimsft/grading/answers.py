r"""Find where a response states its answer: in its last box, as a whole text, as the letter of a choice.

    >>> extract_answer(r"First \boxed{3}. No: \boxed{\frac{1}{2}}, so \boxed{}.")
    '\\frac{1}{2}'
    >>> stated_text(r"It is \boxed{\text{Paris}}."), stated_text("  Paris ")
    ('Paris', 'Paris')
    >>> stated_choice("I think the answer is (B), as 2 is even."), stated_choice(r"\boxed{4}", ("3", "4"))
    ('B', 'B')
    >>> choice_of("\\text{(D)} 142"), choice_of("40\\text{ (B)}"), choice_of("\\text{Option C}")
    (Choice(letter='D', content='142'), Choice(letter='B', content='40'), Choice(letter='C', content=None))

Mathematics outside a box does not count: guessing where prose states its result is the largest source of errors in
other graders. All is linear in the text.
"""

import re
from collections import deque
from itertools import islice
from typing import NamedTuple

from trimsft.grading.clean import clean, is_too_complex
from trimsft.grading.kinds import LETTERS

# ---- boxes

_COMMAND = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])[ \t]*\{?")
_MARK = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[ \t]*([^\s\\{}$,;]{1,64})")
_SPACING = re.compile(r"(?:[\s$]|\\[,;:! ()]|\\q?quad)*")
_JOINT = re.compile(r"[,;]|(?<![A-Za-z])(?:and|or)(?![A-Za-z])")
_SENTENCE_END = re.compile(r"[.!?]\s|\n\s*\n")
_JOINT_LENGTH = 60
_LAST_COMMANDS = 64
_MAX_MARKS = 100_000  # braces and escapes read: no answer has as many


def extract_answer(response: str, several: bool = False) -> str | None:
    r"""Return the content of the last box, or None.

    Of `several` values it is joined with the boxes right before it: `\boxed{2}, \boxed{3} and \boxed{5}` is "2, 3, 5".
    """
    answers, after = deque[str](), 0
    for content, start, end in reversed(_find_boxes(response)):
        between = response[end:after]
        is_joined = several and len(between) <= _JOINT_LENGTH and not _SENTENCE_END.search(between)
        if answers and not (is_joined and (_SPACING.fullmatch(between) or _JOINT.search(between))):
            break
        answers.appendleft(content)
        after = start
    return ", ".join(answers) or None


def _find_boxes(response: str) -> list[tuple[str, int, int]]:
    """Return content, start and end of the outermost closed boxes, of the last commands alone."""
    commands = deque(_COMMAND.finditer(response), maxlen=_LAST_COMMANDS)
    opened: list[int] = []
    ends: dict[int, int] = {}  # where each brace is closed
    for mark in islice(_MARK.finditer(response, commands[0].start()), _MAX_MARKS) if commands else ():
        if mark.group() == "{":
            opened.append(mark.end())
        elif mark.group() == "}" and opened:
            ends[opened.pop()] = mark.start()
    boxes: list[tuple[str, int, int]] = []
    for command in commands:
        start, end = command.end(), ends.get(command.end(), 0)
        if command.group()[-1] != "{" and (bare := _BARE.match(response, start)):
            start, end = bare.span(1)
        inside = response[start:end].strip()
        if inside.strip("{}$ \n\t.,") and not (boxes and command.start() < boxes[-1][2]):
            boxes.append((inside, command.start(), end + 1))
    return boxes


# ---- texts

_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")


def stated_text(response: str, truncated: bool = False) -> str | None:
    """Return the last box, else the whole response unless it was cut off; None for nothing."""
    box = extract_answer(response)
    text = ("" if truncated else response) if box is None else box
    wrapped = _WRAPPED.fullmatch(text.strip())
    return (wrapped[1] if wrapped else text).strip() or None


def same_text(a: str, b: str, ignore_case: bool = False) -> bool:
    """Return whether two texts are the same but for spacing."""
    one, other = (" ".join(text.split()) for text in (a, b))
    return one.casefold() == other.casefold() if ignore_case else one == other


# ---- letters of choices

_STATED = re.compile(
    r"(?i:\b(?:answer|option|choice)\b)[\s*_]{0,4}(?:is|:|=)[\s*_:$\"“]{0,6}"
    r"(?i:(?:therefore|thus|clearly|letter|option|choice)[\s*_:,]{1,6})?(?:\\text(?:bf)?\{)?"
    r"(?:\(([A-J])\)|([A-J])(?![A-Za-z0-9'’]))"
)
_ANOTHER = re.compile(r"[\s*_.)]{0,6}(?:or|and|,|/|&)\s{0,3}\(?[A-J](?![A-Za-z0-9'’])")
"""A second letter right after the first: two choices are none."""
_SENTENCE = re.compile(r"[ \t]{1,4}(?!(?:because|since|as|which|and|for|with|but|so)\b)[a-z]")
"""What makes an article or a pronoun of the letters A and I: "the answer is A train"."""
_ALONE = re.compile(r"\(?([A-J])\)?[.:)]?")
_LINE = re.compile(r"(?:\(([A-J])\)|([A-J])[.):])\s+\S")
_MARKS = "*_`$ \t."
_LONGEST_CHOICE = 200


def stated_choice(response: str, choices: tuple[str, ...] = ()) -> str | None:
    """Return the letter chosen: in the last box, after "answer is", or alone in the last line.

    The box may hold the text of one of the `choices` instead. A box that holds neither is returned as it is.
    """
    box = extract_answer(response)
    if box is not None:
        text = stated_text(box) or ""
        for letter, choice in zip(LETTERS, choices, strict=False):
            if same_text(text, choice, ignore_case=True) and not _ALONE.fullmatch(text):
                return letter
        if len(text) == 1 and text.upper() in LETTERS:
            return text.upper()
        chosen = choice_of(clean(box)) if len(box) <= _LONGEST_CHOICE and not is_too_complex(box) else None
        return chosen.letter if chosen else box
    stated = [
        match
        for match in _STATED.finditer(response)
        if match[1] or match[2] not in "AI" or not _SENTENCE.match(response, match.end())
    ]
    if stated:
        last = stated[-1]
        return None if _ANOTHER.match(response, last.end()) else last[1] or last[2]
    lines = [line.strip(_MARKS) for line in response.splitlines() if line.strip(_MARKS)]
    if lines and (alone := _ALONE.fullmatch(lines[-1])):
        return alone[1]
    first = _LINE.match(lines[0]) if len(lines) == 1 else None
    return first[1] or first[2] if first else None


_LETTER = re.compile(r"(?:\\text\s*\{)?\s*(?:(?i:option|choice|answer)\s+)?\(?\s*([A-J])\s*\)?\s*[.:]?\s*\}?")
_LETTER_LAST = re.compile(r"(.+?)\s*\\text\s*\{\s*\(\s*([A-J])\s*\)\s*\}")
_BOTH_IN_TEXT = re.compile(
    r"\\text\s*\{\s*(?:\(\s*([A-J])\s*\)|([A-J])\s*[).:])\s*(?:[.:](?!\d))?\s*([^{}]*)\}\s*(?:[.:](?!\d))?(.*)",
    re.DOTALL,
)
_BOTH = re.compile(r"(?:\(([A-J])\)\s+|([A-J])\s*[).:]\s+)(?![-+=|]|\\to(?![A-Za-z]))(.+)")
# what computes with a letter: C+1, C^2, -C; a sign after a space begins a value: (C) -1
_OPERATOR = r"[*/^_<>,]|\\(?:cdot|times|pm|mp|cup|cap|setminus|le|ge|ne|in)(?![A-Za-z])"
_JOINED = re.compile(rf"\s*(?:\\text\s*\{{\s*)?(?:{_OPERATOR}|[!%']|(?<=\))[-+]|(?<=\)\}})[-+]|[-+](?:\s|$))")
_JOINING = re.compile(rf"(?:{_OPERATOR}|[-+]|\\(?:neg|lnot|not|sqrt)|\\text\s*\{{\s*not\s*\}})\s*$")


class Choice(NamedTuple):
    """A letter, and what it stands for where that is said."""

    letter: str
    content: str | None


def choice_of(text: str) -> Choice | None:
    """Return the choice that a cleaned text makes, None for none or two."""
    if len(re.findall(r"\([A-J]\)", text)) > 1:
        return None
    if letter := _LETTER.fullmatch(text):
        return Choice(letter[1], None)
    if match := _BOTH.fullmatch(text):
        return None if _JOINED.match(text, match.start(3)) else Choice(match[1] or match[2], match[3])
    if match := _BOTH_IN_TEXT.fullmatch(text):
        words = match[3].strip()
        if _JOINED.match(text, match.start(3 if words else 4)):
            return None
        words = words if re.match(r"-?[\d.]|$", words) else rf"\text{{{words}}}"
        return Choice(match[1] or match[2], f"{words} {match[4]}".strip() or None)
    match = _LETTER_LAST.fullmatch(text)
    return Choice(match[2], match[1]) if match and not _JOINING.search(match[1]) else None
