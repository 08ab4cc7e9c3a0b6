r"""What kind of token it is, in the paper's four categories: numeric, mathematical symbol, reasoning connector, other.

    >>> texts = ["Thus", " $", "\\", "frac", "{", "1", "}{", "2", "}", "x", "$", ".", "<|im_end|>"]
    >>> [CATEGORIES[kind][:3] for kind in categorise(texts)]
    ['con', 'sym', 'sym', 'sym', 'sym', 'num', 'sym', 'num', 'sym', 'oth', 'sym', 'oth', 'oth']

The paper names the categories and gives no rules; these are ours (docs/categories.md). The tokens of an example are
joined and their text is read in units: LaTeX commands, numbers, words, signs. A token takes the category of the units
it is a part of; where there are several, the first of numeric, connector, symbol, other.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

CATEGORIES = ("numeric", "symbol", "connector", "other")

CONNECTORS = frozenset(
    re.findall(
        r"\w+",
        """accordingly assume because consequently conversely hence however if implies implying let otherwise since
        so suppose then thereby therefore thus whence""",
    )
)
"""Single words, in any case."""
PHRASES = (
    *("as a result", "given that", "if and only if", "in other words", "it follows"),
    *("that means", "this means", "which means"),
)
"""Several words that connect together, in any case."""
CONNECTING_COMMANDS = frozenset({"therefore", "because"})
LAYOUT_COMMANDS = frozenset(
    re.findall(
        r"\w+",
        """text textbf textit textrm textsf texttt textnormal emph underline mbox hbox fbox item section subsection
        paragraph label tag ref eqref cite caption footnote quad qquad hspace vspace hfill vfill newline linebreak
        newpage noindent par phantom hphantom vphantom smallskip medskip bigskip displaystyle textstyle scriptstyle
        limits nolimits nonumber notag hline cline centering includegraphics url href""",
    )
)
"""Commands that set text or leave room; every other one belongs to mathematics, `\\boxed` included."""

_OTHER, _SYMBOL, _CONNECTOR, _NUMERIC = range(4)  # the larger one wins within a token
_INDEX = np.array([CATEGORIES.index(name) for name in ("other", "symbol", "connector", "numeric")], dtype=np.int8)

_UNITS = re.compile(
    r"""
      [ ]?(?P<word>[A-Za-z]+)(?:-(?=[A-Za-z]))?                   # a hyphen between words is no minus
    | (?:\A|\n)[ \t]{0,12}(?:[-*+]|\#+)[ ] | \n | [^\S\n]+       # bullets and headings
    | \\(?:begin|end)\{[^{}]{0,40}\}                              # an environment is layout, with its name
    | (?P<command>\\[A-Za-z]+)
    | \\[()\[\]{}|%$\#_](?P<escaped>)                             # delimiters and escaped signs
    | \\(?:.|\n)                                                  # line breaks and small spaces
    | (?P<number>\d{1,3}(?:(?:,|\{,\}|,\\!|\\,)\d{3})+(?!\d)(?:\.\d+)? | \d+\.\d+ | \d+ | (?<!\d)\.\d+)
    | \*\*+ | \#+ | -{3,} | \.\.\.
    | (?<=\d):(?=\d)(?P<ratio>)
    | (?<=[\w)}\]])!(?P<factorial>)
    | (?P<sign>[^,.;:?!"'`&@])
    | .
    """,
    re.VERBOSE,
)
_PHRASES = re.compile(
    r"(?<![A-Za-z\\])(?:" + "|".join(phrase.replace(" ", r"\s+") for phrase in PHRASES) + r")(?![A-Za-z])", re.I
)
_SIGNS = "()[]{}$%*/-_^|\\\u00b0\u00b7\u2030\u2032\u2033"  # with degree, dot, per mille, primes
_BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")
_SPECIAL = re.compile(r"<[|/]?[A-Za-z_][\w\- ]*[|]?>|\[[A-Z]{2,}\]|<\|[^<>|]*\|>")
_BREAK = "\n"  # what special tokens and pieces without a text stand for: it belongs to no unit


def categorise(texts: Sequence[str]) -> NDArray[np.int8]:
    """The category of each token of ONE example, in order, as an index into `CATEGORIES`."""
    if not len(texts):
        return np.empty(0, dtype=np.int8)
    pieces, starts, ends = _joined(texts)
    kinds = np.frombuffer(_kinds_of_characters("".join(pieces)) + b"\0", dtype=np.uint8)
    spans = np.stack([starts, ends], axis=1)
    strongest = np.maximum.reduceat(kinds, spans.ravel())[::2]
    strongest = np.where(spans[:, 0] == spans[:, 1], _OTHER, strongest)  # tokens without text
    return _INDEX[strongest]


def _joined(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """The text of the example in pieces, and from where to where in it each token goes."""
    pieces = [_BREAK if text[:1] in ("<", "[") and _SPECIAL.fullmatch(text) else text for text in texts]
    split = [place for place, text in enumerate(texts) if text.startswith("<0x") and _BYTES.fullmatch(text)]
    shared: dict[int, tuple[int, int, int]] = {}
    for group in _runs(split):
        text, spans = _decoded([texts[place] for place in group])
        for place, span in zip(group, spans, strict=True):
            shared[place] = (group[0], *span)
            pieces[place] = text if place == group[0] else ""
    ends = np.fromiter(accumulate(map(len, pieces)), dtype=np.int64, count=len(pieces))
    starts = ends - np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    for place, (first, low, high) in shared.items():  # the text of a group stands where its first piece does
        starts[place], ends[place] = starts[first] + low, starts[first] + high
    return pieces, starts, ends


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Places that follow each other, together."""
    groups: list[list[int]] = []
    for place in places:
        if groups and groups[-1][-1] == place - 1:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _decoded(pieces: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The characters that pieces such as <0xE2> spell together, and which of them each piece is a part of."""
    letters: list[bytes] = []
    spans = []
    for piece in pieces:
        touched = []
        for byte in bytes.fromhex(piece.replace("<0x", "").replace(">", "")):
            if letters and byte & 0xC0 == 0x80:  # goes on with the character before it
                letters[-1] += bytes([byte])
            else:
                letters.append(bytes([byte]))
            touched.append(len(letters) - 1)
        spans.append((touched[0], touched[-1] + 1))
    texts = (letter.decode(errors="replace") for letter in letters)
    return "".join(text if len(text) == 1 else "\N{REPLACEMENT CHARACTER}" for text in texts), spans


def _kinds_of_characters(text: str) -> bytes:
    """One byte for each character."""
    kinds = bytearray(len(text))
    for unit in _UNITS.finditer(text):
        name = unit.lastgroup
        if name is not None and (kind := _kind(name, unit[name])):
            start, end = unit.span("word" if name == "word" else 0)
            kinds[start:end] = bytes([kind]) * (end - start)
    for phrase in _PHRASES.finditer(text):
        kinds[phrase.start() : phrase.end()] = bytes([_CONNECTOR]) * len(phrase[0])
    return bytes(kinds)


@lru_cache(maxsize=65_536)
def _kind(unit: str, text: str) -> int:
    if unit == "word":
        return _CONNECTOR if text.lower() in CONNECTORS else _OTHER
    if unit == "number":
        return _NUMERIC
    if unit == "command":
        name = text[1:]
        return _CONNECTOR if name in CONNECTING_COMMANDS else _OTHER if name in LAYOUT_COMMANDS else _SYMBOL
    return _sign(text) if unit == "sign" else _SYMBOL


def _sign(character: str) -> int:
    """A single character that is neither a Latin letter nor an ASCII digit."""
    if character in "∴∵":
        return _CONNECTOR
    kind = unicodedata.category(character)
    if kind in ("Nd", "No"):
        return _NUMERIC
    greek = "\u0370" <= character <= "\u03ff"  # written as a command it is a symbol too
    letterlike = "\u2100" <= character <= "\u214f"
    shape = "\u2190" <= character <= "\u2bff"  # arrows, operators, triangles
    if kind == "Sm" or greek or letterlike or shape or character in _SIGNS:
        return _SYMBOL
    return _OTHER
