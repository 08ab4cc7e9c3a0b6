r"""Where a response states its answer: the last balanced \boxed{...} or \fbox{...}.

    >>> extract_answer(r"First \boxed{3}. No: \boxed{\frac{1}{2}}, so \boxed{}.")
    '\\frac{1}{2}'

An answer outside a box does not count: the prompt asks for one, and guessing where prose states its
result is the largest source of errors in other graders. Everything here is one pass over the text.
"""

import re
from collections import deque
from dataclasses import dataclass
from itertools import islice

_COMMANDS = ("\\boxed", "\\fbox", "\\framebox")
_COMMAND = re.compile(r"\\(?:boxed|fbox|framebox)")
_MARK = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])[ \t]*\{?|\\.|\{+|\}+", re.DOTALL)
_BARE = re.compile(r"[ \t]*([^\s\\{}$,;]{1,64})")
_SPACING = re.compile(r"(?:[\s$]|\\[,;:! ()]|\\q?quad)*")
_JOINT = re.compile(r"[,;]|(?<![A-Za-z])(?:and|or)(?![A-Za-z])")
_SENTENCE_END = re.compile(r"[.!?]\s|\n\s*\n")
_JOINT_LENGTH = 60
_LAST_COMMANDS = 64
_MAX_MARKS = 100_000  # braces and commands read: no answer has as many, and a megabyte of them costs no time


@dataclass(frozen=True)
class Box:
    """One outermost box that is closed and not empty: its content and where it stands."""

    content: str
    start: int
    end: int
    follows: bool  # whether only a comma, "and" or the like stands between the box before and this one


def find_boxes(response: str) -> list[Box]:
    """The outermost closed boxes with content, in order: those of the last commands alone."""
    starts = deque((match.start() for match in _COMMAND.finditer(response)), maxlen=_LAST_COMMANDS)
    text = response[starts[0] :] if starts else ""
    boxes: list[Box] = []
    opened: list[tuple[int, int, int]] = []  # depth of its brace, start of the command, start of the content
    depth = 0
    for mark in islice(_MARK.finditer(text), _MAX_MARKS):
        token = mark.group()
        if token[0] == "{":
            depth += len(token)
        elif token[0] == "}":
            below = max(0, depth - len(token))
            while opened and opened[-1][0] > below:
                level, start, content = opened.pop()
                _close(boxes, text, start, content, mark.start() + depth - level)
            depth = below
        elif token.startswith(_COMMANDS):
            if token.endswith("{"):
                depth += 1
                opened.append((depth, mark.start(), mark.end()))
            elif bare := _BARE.match(text, mark.end()):
                _close(boxes, text, mark.start(), bare.start(1), bare.end(1))
    return boxes


def _close(boxes: list[Box], text: str, start: int, content: int, end: int) -> None:
    inside = text[content:end].strip()
    if inside.strip("{}$ \n\t.,"):
        while boxes and boxes[-1].start > start:  # the boxes inside this one
            boxes.pop()
        is_near = bool(boxes) and start - boxes[-1].end <= _JOINT_LENGTH
        boxes.append(Box(inside, start, end + 1, is_near and _joined(text[boxes[-1].end : start])))


def _joined(between: str) -> bool:
    is_joined = _SPACING.fullmatch(between) or _JOINT.search(between)
    return is_joined is not None and not _SENTENCE_END.search(between)


def extract_answer(response: str) -> str | None:
    """The content of the last box, or None."""
    boxes = find_boxes(response)
    return boxes[-1].content if boxes else None


def extract_all(response: str) -> str | None:
    r"""The last box together with those right before it: `\boxed{2}, \boxed{3} and \boxed{5}` is "2, 3, 5"."""
    boxes = find_boxes(response)
    if not boxes:
        return None
    first = len(boxes) - 1
    while first > 0 and boxes[first].follows:
        first -= 1
    return ", ".join(box.content for box in boxes[first:])
