r"""From tokens to characters of a solution, or of the whole text of a row that has none.

>>> whole_word("Step 1: 7 + 5 = 137.", 17, 18)   # the 3 of 137
(16, 19)
>>> whole_word("so we get", 2, 5)                # " we" without its space
(3, 5)
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from trimsft.data.chat import TrlEncoder
from trimsft.tokens.models import Rendering

Span = tuple[int, int]


def row_spans(row: Mapping[str, Any], tokenizer: Any, rendering: Rendering) -> tuple[str, list[Span]]:
    """The solution of a row, or what TRL makes of it; and the characters of its tokens from the first trained one."""
    if "problem" in row:
        return row["solution"], token_spans(row["solution"], tokenizer)
    encoder = TrlEncoder(tokenizer, rendering.assistant_only_loss, rendering.completion_only_loss)
    ids, is_trained = encoder.encode(row)
    first = is_trained.index(True) if any(is_trained) else 0
    text = encoder.text(row) if tokenizer.is_fast else None
    for adds in (False, True) if text is not None else ():
        tokens = tokenizer(text, add_special_tokens=adds, truncation=False, return_offsets_mapping=True)
        if tokens["input_ids"] == ids:
            return text or "", tokens["offset_mapping"][first:]
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False), _decoded_spans(ids, tokenizer)[first:]


def token_spans(solution: str, tokenizer: Any) -> list[Span]:
    """The characters of each token of a solution; eos, which comes after all of them, is not among them."""
    if tokenizer.is_fast:
        options = {"add_special_tokens": False, "truncation": False, "verbose": False}
        offsets: list[Span] = tokenizer(solution, return_offsets_mapping=True, **options)["offset_mapping"]
        return offsets
    return _decoded_spans(tokenizer(solution, add_special_tokens=False)["input_ids"], tokenizer)


def _decoded_spans(ids: list[int], tokenizer: Any) -> list[Span]:
    ends = [len(tokenizer.decode(ids[:count], clean_up_tokenization_spaces=False)) for count in range(len(ids) + 1)]
    return list(pairwise(ends))


def whole_word(text: str, start: int, end: int) -> Span:
    """A span without spaces at its ends, grown to whole numbers and words of ASCII letters."""
    inner = text[start:end]
    if inner.strip():
        start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    while 0 < start < len(text) and _is_word(text[start - 1]) and _is_word(text[start]):
        start -= 1
    while 0 < end < len(text) and _is_word(text[end - 1]) and _is_word(text[end]):
        end += 1
    return start, end


def _is_word(letter: str) -> bool:
    return letter.isascii() and letter.isalnum()
