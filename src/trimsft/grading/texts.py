r"""Answers that are no mathematics: a text as it stands, and the letter of a choice.

    >>> stated_text(r"It is \boxed{\text{Paris}}."), stated_text("  Paris ")
    ('Paris', 'Paris')
    >>> same_text("New  York", "new york", ignore_case=True)
    True
    >>> stated_choice("I think the answer is (B), as 2 is even."), stated_choice(r"\boxed{4}", ("3", "4"))
    ('B', 'B')
    >>> stated_choice("A dog is an animal.")

Every pattern here is linear in the text.
"""

import re

from trimsft.grading.boxes import extract_answer
from trimsft.grading.choices import choice_of
from trimsft.grading.normalize import MAX_ANSWER, MAX_DEPTH, clean, depth_of
from trimsft.grading.rules import LETTERS

_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
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


def stated_text(response: str, truncated: bool = False) -> str | None:
    """The last box, else the whole response, unless that was cut off; None where there is nothing."""
    box = extract_answer(response)
    text = ("" if truncated else response) if box is None else box
    wrapped = _WRAPPED.fullmatch(text.strip())
    return (wrapped[1] if wrapped else text).strip() or None


def same_text(a: str, b: str, ignore_case: bool = False) -> bool:
    """Whether two texts are the same but for spacing."""
    one, other = (" ".join(text.split()) for text in (a, b))
    return one.casefold() == other.casefold() if ignore_case else one == other


def stated_choice(response: str, choices: tuple[str, ...] = ()) -> str | None:
    """The letter that a response chooses: in its last box, after "answer is", or alone in its last line.

    The box may hold the text of one of the `choices` instead. A box that holds neither is returned as it is.
    """
    box = extract_answer(response)
    if box is not None:
        return _letter_in_box(box, choices) or box
    stated = [match for match in _STATED.finditer(response) if _is_letter(match, response)]
    if stated:
        last = stated[-1]
        return None if _ANOTHER.match(response, last.end()) else last[1] or last[2]
    lines = [line.strip(_MARKS) for line in response.splitlines() if line.strip(_MARKS)]
    if lines and (alone := _ALONE.fullmatch(lines[-1])):
        return alone[1]
    if len(lines) == 1 and (first := _LINE.match(lines[0])):
        return first[1] or first[2]
    return None


def _letter_in_box(box: str, choices: tuple[str, ...]) -> str | None:
    text = stated_text(box) or ""
    for letter, choice in zip(LETTERS, choices, strict=False):
        if same_text(text, choice, ignore_case=True) and not _ALONE.fullmatch(text):
            return letter
    if len(text) == 1 and text.upper() in LETTERS:
        return text.upper()
    if len(box) > MAX_ANSWER // 10 or depth_of(box) > MAX_DEPTH:
        return None
    chosen = choice_of(clean(box))
    return chosen.letter if chosen else None


def _is_letter(match: re.Match[str], response: str) -> bool:
    """Whether a stated letter is no article or pronoun."""
    return match[1] is not None or match[2] not in "AI" or not _SENTENCE.match(response, match.end())
