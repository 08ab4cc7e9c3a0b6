r"""Which tokens look wrong, and the spans of text that they stand in.

A token looks wrong to a model that is sure of another one: s = -gap / (1 + entropy). Where many continuations are as
good (a large entropy), a low gap says little. The score joins what two models say, the one that was given and one that
was trained on other rows:

    score = (1 - x) / 2 * s_before + (1 + x) / 2 * s_after

x says how much of the data is news to the model as it was given (`novelty`). Where nothing is, both count alike; where
much is, only the trained one does, because what is new is low before and not after, and what is wrong stays low.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.audit.crossfit import Gaps
from trimsft.audit.run import Suspect
from trimsft.data.chat import TrlEncoder
from trimsft.data.templates import Rendering
from trimsft.data.visible import TokenTexts
from trimsft.objectives import AutoTrim
from trimsft.tokens.categories import CATEGORIES

REACH = 40  # characters of the solution that are kept on each side of a span
Span = tuple[int, int]


def token_scores(gaps: Gaps) -> NDArray[np.float32]:
    """Return the score of each token; without a training that of the model as it was given."""
    before: NDArray[np.float32] = -gaps.before / (1 + gaps.entropy_before)
    if gaps.after is None or gaps.entropy_after is None:
        return before
    x = novelty(gaps.before)
    return (1 - x) / 2 * before + (1 + x) / 2 * -gaps.after / (1 + gaps.entropy_after)


def novelty(gaps: NDArray[np.float32]) -> float:
    """Return how much of the data a model does not support, 0 to 1: AutoTrim's gate for the mean depth of gaps below 0.

    >>> [round(novelty(np.array([depth, 5.0])), 3) for depth in (-0.5, -1.8, -9.0)]
    [0.0, 0.5, 1.0]
    """
    low, high = AutoTrim.closed_below, AutoTrim.open_above
    missing = float(np.maximum(0, -gaps).mean())
    return min(1.0, max(0.0, (missing - low) / (high - low)))


def find_suspects(
    rows: Sequence[Mapping[str, Any]],
    gaps: Gaps,
    threshold: float,
    tokenizer: Any,
    rendering: Rendering,
    *,
    only: str | None = None,
    numbers: Sequence[int],
    places: Sequence[str],
) -> tuple[dict[int, float], list[Suspect]]:
    """Rank the spans that hold a token of this score or a higher one; `only` judges tokens of one category.

    Args:
        numbers: of each audited row, its number in the data.
        places: of each audited row, where a person finds it.

    Returns:
        The highest score of each row that has a token to judge, by its number, and the spans, the worst first.
    """
    scores, texts = token_scores(gaps), TokenTexts(tokenizer)
    if only is not None:
        scores[gaps.category != CATEGORIES.index(only)] = -np.inf
    row_scores: dict[int, float] = {}
    suspects: list[Suspect] = []
    audited, starts = np.unique(gaps.example, return_index=True)
    for row, begin, end in zip(audited.tolist(), starts.tolist(), [*starts[1:].tolist(), len(scores)], strict=True):
        highest = float(scores[begin:end].max())
        if np.isfinite(highest):
            row_scores[numbers[row]] = round(highest, 3)
        low = begin + np.flatnonzero(scores[begin:end] >= threshold)
        if not len(low):
            continue
        text, spans = row_spans(rows[row], tokenizer, rendering)
        spans += [(len(text), len(text))] * (end - begin)  # eos stands at the end of the solution
        for token in low.tolist():
            start, stop = whole_word(text, *spans[gaps.position[token]])
            # of the word, the first token that is not the model's choice
            word = [at for at in range(begin, token) if spans[gaps.position[at]][1] > start and gaps.latest[at] < 0]
            first = min(word, default=token)
            begun = text[start : spans[gaps.position[first]][0]]
            suspects.append(
                Suspect(
                    row=numbers[row],
                    place=places[row],
                    start=start,
                    end=stop,
                    text=text[start:stop],
                    expected=begun + texts[int(gaps.competitor[first])].strip(" "),
                    gap_before=round(float(gaps.before[token]), 3),
                    gap_after=None if gaps.after is None else round(float(gaps.after[token]), 3),
                    score=round(float(scores[token]), 3),
                    left=text[max(0, start - REACH) : start],
                    right=text[stop : stop + REACH],
                )
            )
    # of several in one word or in touching ones only the worst
    kept: list[Suspect] = []
    taken: dict[int, list[Span]] = {}
    for one in sorted(suspects, key=lambda one: (-one.score, one.row, one.start)):
        others = taken.setdefault(one.row, [])
        if all(one.end < start or end < one.start for start, end in others):
            kept.append(one)
        others.append((one.start, one.end))
    return row_scores, kept


# ---- from tokens to characters


def row_spans(row: Mapping[str, Any], tokenizer: Any, rendering: Rendering) -> tuple[str, list[Span]]:
    """Return the solution of a row, or what TRL makes of it, and where its tokens stand, from the first trained one."""
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
    """Return the characters of each token of a solution; eos, which comes after all of them, is not among them."""
    if tokenizer.is_fast:
        options = {"add_special_tokens": False, "truncation": False, "verbose": False}
        offsets: list[Span] = tokenizer(solution, return_offsets_mapping=True, **options)["offset_mapping"]
        return offsets
    return _decoded_spans(tokenizer(solution, add_special_tokens=False)["input_ids"], tokenizer)


def _decoded_spans(ids: list[int], tokenizer: Any) -> list[Span]:
    ends = [len(tokenizer.decode(ids[:count], clean_up_tokenization_spaces=False)) for count in range(len(ids) + 1)]
    return list(pairwise(ends))


def whole_word(text: str, start: int, end: int) -> Span:
    """Return a span without spaces at its ends, grown to whole numbers and words of ASCII letters.

    >>> whole_word("Step 1: 7 + 5 = 137.", 17, 18)   # the 3 of 137
    (16, 19)
    >>> whole_word("so we get", 2, 5)                # " we" without its space
    (3, 5)
    """

    def is_inside(place: int) -> bool:
        around = text[place - 1 : place + 1]
        return 0 < place < len(text) and around.isascii() and around.isalnum()

    inner = text[start:end]
    if inner.strip():
        start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    while is_inside(start):
        start -= 1
    while is_inside(end):
        end += 1
    return start, end
