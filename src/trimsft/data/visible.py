"""Texts of tokens and models made safe to look at: nothing invisible, nothing that reorders what stands around it.

>>> visible("a\\u202eb")
'a⟨U+202E⟩b'
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Control, format (bidi marks, zero width), surrogate, private, unassigned, separators."""
_FILLERS = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800"}  # letters and symbols that look like nothing
_UNDECODABLE = "\ufffd"


def visible(text: object) -> str:
    """Spell out whatever cannot be seen; line breaks and tabs stay."""

    def shown(letter: str) -> str:
        if letter in "\n\t" or (letter.isascii() and letter.isprintable()):
            return letter
        category = unicodedata.category(letter)
        if letter == "\u00a0":
            return "⍽"
        is_hidden = category in HIDDEN or category == "Zs" or letter in _FILLERS
        return f"⟨U+{ord(letter):04X}⟩" if is_hidden else letter

    return "".join(map(shown, str(text)))


def spaced(text: str) -> str:
    """Do the same for a token, whose spaces and line breaks are shown too."""
    shown = visible(text)
    # alone, an accent would sit on the token before it
    if text and unicodedata.category(text[0]).startswith("M"):
        shown = "\u25cc" + shown
    return shown.replace(" ", "·").replace("\t", "⇥").replace("\n", "↵\n")


def single_line(text: str) -> str:
    """Remove line breaks, and invisible characters that a terminal would obey."""
    words = " ".join(text.split())
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in HIDDEN else c for c in words)


class TokenTexts(dict[int, str]):
    """The text of single tokens inside a text: leading spaces kept, split characters as bytes.

    texts = TokenTexts(tokenizer)
    texts[284]        # " the"
    texts[131]        # "<0xE2><0x82>": the first two bytes of a euro sign
    texts.take(ids)   # of many ids, as an Arrow array
    """

    def __init__(self, tokenizer: Any) -> None:
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        super().__init__()
        self._bytes = {letter: byte for byte, letter in bytes_to_unicode().items()}
        self._tokenizer = tokenizer
        # after another token, because decoders take the space off the beginning of a text
        self._before: list[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
        self._start = len(self._decode(self._before))

    def take(self, ids: NDArray[Any]) -> pa.Array:
        """Return the texts of many ids, each distinct one looked up once."""
        import numpy as np
        import pyarrow as pa

        kinds, places = np.unique(ids, return_inverse=True)
        words = pa.array([self[token] for token in kinds.tolist()], type=pa.string())
        return words.take(pa.array(places.ravel()))

    def __missing__(self, token: int) -> str:
        self[token] = self._text(token)
        return self[token]

    def _text(self, token: int) -> str:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:  # an embedding may be larger than its vocabulary
            return f"<id {token}>"
        text = self._decode([*self._before, token])[self._start :]
        # where it is spelt <0xE2> already, there is nothing to spell out
        if _UNDECODABLE in text and _UNDECODABLE not in piece and all(letter in self._bytes for letter in piece):
            return "".join(f"<0x{self._bytes[letter]:02X}>" for letter in piece)
        return piece if _UNDECODABLE in text and _UNDECODABLE not in piece else text

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text
