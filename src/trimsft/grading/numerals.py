r"""Numbers written as words: "forty-two" is 42, and "5 million" is five times a million.

>>> number_in_words("one hundred and five"), number_in_words("high five")
(105, None)
"""

from __future__ import annotations

import re

_ONES = "zero one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: value for value, word in enumerate([*_ONES.split(), *_TEENS.split()])}
_TEN = {word: 10 * value for value, word in enumerate(_TENS.split(), 2)}
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
NUMBER_WORDS = (*_SMALL, *_TEN)
_WORD = re.compile(r"[a-z]+")
_WORDS = re.compile(r"[A-Za-z]+(?:(?: |-)[A-Za-z]+)*")  # a hyphen elsewhere is a minus
_LONGEST = 200


def number_in_words(text: str, whole: bool = True) -> int | None:
    """The number that a text is in words, None for anything else.

    `whole` asks that nothing else stands there; otherwise other words are passed over, as the lenient grader does.
    """
    if len(text) > _LONGEST or (whole and not _WORDS.fullmatch(text.strip())):
        return None
    known = _SMALL.keys() | _TEN.keys() | SCALES.keys()
    words = [word for word in _WORD.findall(text.lower()) if whole or word in known]
    return _value(words)


def _value(words: list[str]) -> int | None:
    """Strictly: units after tens, hundreds below thousands, thousands below millions, each at most once."""
    total, group, last_scale, before = 0, 0, 10**15, ""
    for word in words:
        if word == "and":
            fits = before in SCALES
        elif word in _SMALL:
            tens = before in _TEN and 0 < _SMALL[word] < 10
            fits = tens or before in ("", "and") or before in SCALES
            group += _SMALL[word]
        elif word in _TEN:
            fits = before in ("", "and") or before in SCALES
            group += _TEN[word]
        elif word == "hundred":
            fits = 0 < group < 100 and before not in SCALES
            group *= 100
        elif word in SCALES:
            fits = 0 < group < 1000 and SCALES[word] < last_scale and before != "and"
            total, group, last_scale = total + group * SCALES[word], 0, SCALES[word]
        else:
            return None
        if not fits:
            return None
        before = word
    return total + group if words and before != "and" else None
