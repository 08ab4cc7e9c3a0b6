r"""Words in an answer: numbers in words, words of scale, and words that change a value or deny it.

>>> number_in_words("one hundred and five"), number_in_words("high five")
(105, None)
>>> says_what_is_counted("red apples"), says_what_is_counted("sixths")
(True, False)
"""

import re

# ---- numbers in words

_ONES = "zero one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
SMALL_NUMBERS = {word: value for value, word in enumerate([*_ONES.split(), *_TEENS.split()])}
_TEN = {word: 10 * value for value, word in enumerate(_TENS.split(), 2)}
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
NUMBER_WORDS = (*SMALL_NUMBERS, *_TEN)
_WORD = re.compile("[A-Za-z]+")
_SPELLED = re.compile(r"[A-Za-z]+(?:(?: |-)[A-Za-z]+)*")  # a hyphen elsewhere is a minus
_LONGEST_NUMBER = 200


def number_in_words(text: str, whole: bool = True) -> int | None:
    """The number that a text is in words, None for anything else.

    `whole` asks that nothing else stands there; otherwise other words are passed over, as the lenient grader does.
    """
    if len(text) > _LONGEST_NUMBER or (whole and not _SPELLED.fullmatch(text.strip())):
        return None
    known = SMALL_NUMBERS.keys() | _TEN.keys() | SCALES.keys()
    words = [word for word in _WORD.findall(text.lower()) if whole or word in known]
    return _value(words)


def _value(words: list[str]) -> int | None:
    """Strictly: units after tens, hundreds below thousands, thousands below millions, each at most once."""
    total, group, last_scale, before = 0, 0, 10**15, ""
    for word in words:
        if word == "and":
            fits = before in SCALES
        elif word in SMALL_NUMBERS:
            tens = before in _TEN and 0 < SMALL_NUMBERS[word] < 10
            fits = tens or before in ("", "and") or before in SCALES
            group += SMALL_NUMBERS[word]
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


# ---- words that change a value

SCALE_WORDS = SCALES | {"dozen": 12}

_IRREGULAR = {"five": "fif", "eight": "eigh", "nine": "nin", "twelve": "twelf"}
_ORDINALS = {(_IRREGULAR.get(word) or re.sub("y$", "ie", word)) + "th" for word in [*NUMBER_WORDS, *SCALE_WORDS]}
_PARTS = _ORDINALS | {"half", "third", "quarter"}
_ARITHMETIC = """
squared cubed factorial power powers exponent root sqrt pi inverse reciprocal over plus minus divided multiplied mod
modulo base remainder choose doubled tripled quadrupled halved halves halfs twice thrice double triple negative
log ln sin cos tan
"""
_DENIALS = """
not no non never nor cannot cant impossible undefined invalid wrong incorrect false is isn are aren was were be been
does doesn if unless except excluding without instead
"""
_RELATIONS = "to through until between below under above least most than or and of from"
_AMOUNTS = "dozens score scores gross grand mil mn bn"
_CHANGES_THE_VALUE = frozenset(
    [*f"{_ARITHMETIC} {_DENIALS} {_AMOUNTS}".split(), *NUMBER_WORDS, *SCALE_WORDS, *_PARTS]
    + [f"{word}s" for word in [*NUMBER_WORDS, *SCALE_WORDS, *_PARTS]]
)
_DENYING = {"not", "no", "non", "never", "nor", "cannot", "cant", "isn", "aren", "doesn"}
_LINKS = frozenset(_RELATIONS.split())
_PROSE = re.compile(r"[A-Za-z]+\.?(?:[ /'-] ?[A-Za-z]+\.?)*")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")


def says_what_is_counted(words: str) -> bool:
    """Whether words after a value leave it as it is: letters alone, and none that changes how much it says."""
    lowered = _WORD.findall(words.lower())
    if not _PROSE.fullmatch(words.strip()) or max(map(len, lowered)) < 3:
        return False  # two letters that are no known unit may be factors
    # `to`, `least` and the like anywhere, but `of` and `from` only where something would have to follow
    is_linked = (_LINKS - {"of", "from"}) & set(lowered) or lowered[-1] in _LINKS
    return not is_linked and not _CHANGES_THE_VALUE & set(lowered)


def denies(text: str) -> bool:
    r"""Whether a text says `\text{not}`, `\not` or the like."""
    return "\\not" in text or any(_DENYING & set(_WORD.findall(m[1].lower())) for m in _TEXT.finditer(text))


def changes_a_value(text: str) -> bool:
    r"""Whether a \text{...} anywhere changes a value: a parser that drops texts would misread it."""
    for match in _TEXT.finditer(text):
        words = set(_WORD.findall(match[1].lower()))
        if words & (_CHANGES_THE_VALUE | _LINKS) or re.search(r"[\d+*^!=<>]", match[1]):
            return True
    return False


def name_of_words(words: str) -> str:
    """One spelling for what is counted: `Red  apples.` is `red apple`."""
    lowered = _WORD.findall(words.replace(".", "").lower())
    return " ".join(w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in lowered)


def closes_at(text: str, brackets: str) -> int:
    """Where the bracket that a text begins with is closed; -1 where it never is."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == brackets[0]) - (char == brackets[1])
        if depth == 0:
            return at
    return -1
