r"""The paper's four categories of tokens: numeric, mathematical symbol, reasoning connector, other.

    >>> texts = ["Thus", " $", "\\", "frac", "{", "1", "}{", "2", "}", "x", "$", ".", "<|im_end|>"]
    >>> [CATEGORIES[kind][:3] for kind in categorise(texts)]
    ['con', 'sym', 'sym', 'sym', 'sym', 'num', 'sym', 'num', 'sym', 'oth', 'sym', 'oth', 'oth']

The paper names the categories and gives no rules; these are ours (docs/analysis.md). The tokens of an example are
joined and their text is read in units: LaTeX commands, numbers, words, signs. A token takes the category of the units
it is a part of; where there are several, the first of numeric, connector, symbol, other.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

CATEGORIES = ("numeric", "symbol", "connector", "other")

_WORDS = """
accordingly assume because consequently conversely hence however if implies implying let otherwise since so suppose then
thereby therefore thus whence
"""
CONNECTORS = frozenset(_WORDS.split())
"""Single words, in any case."""
PHRASES = (
    *("as a result", "given that", "if and only if", "in other words", "it follows"),
    *("that means", "this means", "which means"),
)
"""Several words that connect together, in any case."""
CONNECTING_COMMANDS = frozenset({"therefore", "because"})
_LAYOUT = """
text textbf textit textrm textsf texttt textnormal emph underline mbox hbox fbox item section subsection paragraph label
tag ref eqref cite caption footnote quad qquad hspace vspace hfill vfill newline linebreak newpage noindent par phantom
hphantom vphantom smallskip medskip bigskip displaystyle textstyle scriptstyle limits nolimits nonumber notag hline
cline centering includegraphics url href
"""
LAYOUT_COMMANDS = frozenset(_LAYOUT.split())
"""Commands that set text or leave room; every other one is mathematics, `\\boxed` included."""

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


def categorise(texts: Sequence[str]) -> NDArray[np.int8]:
    """Return the category of each token of ONE example, in order, as an index into `CATEGORIES`."""
    if not len(texts):
        return np.empty(0, dtype=np.int8)
    # in bytes, because a token may be a part of a character
    pieces = [_bytes_of(text) for text in texts]
    joined = b"".join(pieces).decode(errors="surrogateescape")
    letters = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    is_broken = (letters >= 0xDC80) & (letters <= 0xDCFF)  # stands for one byte
    sizes = np.where(is_broken, 1, 1 + np.searchsorted([0x80, 0x800, 0x10000], letters, side="right"))
    kinds = np.append(np.repeat(_kinds_of_characters(joined), sizes), np.uint8(_OTHER))
    ends = np.cumsum(list(map(len, pieces)))
    starts = ends - list(map(len, pieces))
    strongest = np.maximum.reduceat(kinds, np.stack([starts, ends], axis=1).ravel())[::2]
    return _INDEX[np.where(starts == ends, _OTHER, strongest)]


def _bytes_of(text: str) -> bytes:
    """Return the bytes of a token, <0xE2> among them; a special token parts what stands around it."""
    if text.startswith("<0x") and _BYTES.fullmatch(text):
        return bytes.fromhex(text.replace("<0x", "").replace(">", ""))
    is_special = text[:1] in ("<", "[") and _SPECIAL.fullmatch(text)
    return b"\n" if is_special else text.encode(errors="replace")


def _kinds_of_characters(text: str) -> NDArray[np.uint8]:
    kinds = bytearray(len(text))
    for unit in _UNITS.finditer(text):
        name = unit.lastgroup
        if name is not None and (kind := _kind(name, unit[name])):
            start, end = unit.span("word" if name == "word" else 0)
            kinds[start:end] = bytes([kind]) * (end - start)
    for phrase in _PHRASES.finditer(text):
        kinds[phrase.start() : phrase.end()] = bytes([_CONNECTOR]) * len(phrase[0])
    return np.frombuffer(kinds, dtype=np.uint8)


@lru_cache(maxsize=65_536)
def _kind(unit: str, text: str) -> int:
    if unit == "word":
        return _CONNECTOR if text.lower() in CONNECTORS else _OTHER
    if unit == "number":
        return _NUMERIC
    if unit == "command":
        name = text[1:]
        return _CONNECTOR if name in CONNECTING_COMMANDS else _OTHER if name in LAYOUT_COMMANDS else _SYMBOL
    if unit != "sign":
        return _SYMBOL
    # a single character that is neither a Latin letter nor an ASCII digit
    if text in "∴∵":
        return _CONNECTOR
    kind = unicodedata.category(text)
    if kind in ("Nd", "No"):
        return _NUMERIC
    greek = "\u0370" <= text <= "\u03ff"  # written as a command it is a symbol too
    letterlike = "\u2100" <= text <= "\u214f"
    shape = "\u2190" <= text <= "\u2bff"  # arrows, operators, triangles
    return _SYMBOL if kind == "Sm" or greek or letterlike or shape or text in _SIGNS else _OTHER
