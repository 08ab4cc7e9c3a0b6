"""The text of single tokens, as they stand inside a text: leading spaces kept, split characters as bytes.

texts = TokenTexts(tokenizer)
texts[284]        # " the"
texts[131]        # "<0xE2><0x82>": the first two bytes of a euro sign
texts.take(ids)   # of many ids, as an Arrow array
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_UNDECODABLE = "\ufffd"


class TokenTexts:
    """Looked up once for each id."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}
        # after another token, because decoders take the space off the beginning of a text
        self._before: list[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
        self._start = len(self._decode(self._before))

    def __getitem__(self, token: int) -> str:
        if token not in self._known:
            self._known[token] = self._text(token)
        return self._known[token]

    def take(self, ids: NDArray[Any]) -> pa.Array:
        """The texts of many ids, without a look at each."""
        kinds, places = np.unique(ids, return_inverse=True)
        words = pa.array([self[token] for token in kinds.tolist()], type=pa.string())
        return words.take(pa.array(places.ravel()))

    def _text(self, token: int) -> str:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:  # an embedding may be larger than its vocabulary
            return f"<id {token}>"
        text = self._decode([*self._before, token])[self._start :]
        if _UNDECODABLE in text and _UNDECODABLE not in piece:
            return _as_bytes(piece)
        return text

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text


def _as_bytes(piece: str) -> str:
    alphabet = _byte_alphabet()
    if all(letter in alphabet for letter in piece):
        return "".join(f"<0x{alphabet[letter]:02X}>" for letter in piece)
    return piece  # byte fallback: such pieces are spelt <0xE2> already


@cache
def _byte_alphabet() -> dict[str, int]:
    """The letters that byte-level tokenizers write for bytes: printable ones as they are, the others from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}
