"""Which tokens look wrong, and the spans that they stand in.

A token looks wrong to a model that is sure of another one: s = -gap / (1 + entropy). Where many continuations are as
good (a large entropy), a low gap says little. The score joins what two models say, the one that was given and one that
was trained on other rows:

    score = (1 - x) / 2 * s_before + (1 + x) / 2 * s_after

x says how much of the data is news to the model as it was given (`novelty`). Where nothing is, both count alike; where
much is, only the trained one does, because what is new is low before and not after, and what is wrong stays low.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.audit.folds import Gaps
from trimsft.audit.records import Suspect
from trimsft.audit.source import Source
from trimsft.audit.spans import Span, row_spans, whole_word
from trimsft.data.visible import TokenTexts
from trimsft.objectives import AutoTrim
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.models import Rendering

REACH = 40  # characters of the solution that are kept on each side of a span


def token_scores(gaps: Gaps) -> NDArray[np.float32]:
    """The score of each token; without a training that of the model as it was given."""
    before: NDArray[np.float32] = -gaps.before / (1 + gaps.entropy_before)
    if gaps.after is None or gaps.entropy_after is None:
        return before
    x = novelty(gaps.before)
    return (1 - x) / 2 * before + (1 + x) / 2 * -gaps.after / (1 + gaps.entropy_after)


def novelty(gaps: NDArray[np.float32]) -> float:
    """How much of the data a model does not support, from 0 to 1: AutoTrim's gate for the mean depth of gaps below 0.

    >>> [round(novelty(np.array([depth, 5.0])), 3) for depth in (-0.5, -1.8, -9.0)]
    [0.0, 0.5, 1.0]
    """
    low, high = AutoTrim.closed_below, AutoTrim.open_above
    missing = float(np.maximum(0, -gaps).mean())
    return min(1.0, max(0.0, (missing - low) / (high - low)))


@dataclass(frozen=True)
class Found:
    """What was found in the rows that were audited."""

    suspects: list[Suspect]  # the worst first
    row_scores: dict[int, float]
    """The highest score of each audited row; a row without a token that is judged has none."""


def find_suspects(
    source: Source,
    gaps: Gaps,
    threshold: float,
    tokenizer: Any,
    *,
    only: str | None = None,
    rendering: Rendering = Rendering(),  # noqa: B008
) -> Found:
    """Rank the spans that hold a token of this score or a higher one; `only` judges tokens of one category."""
    scores, texts = token_scores(gaps), TokenTexts(tokenizer)
    if only is not None:
        scores[gaps.category != CATEGORIES.index(only)] = -np.inf
    row_scores: dict[int, float] = {}
    suspects: list[Suspect] = []
    rows, starts = np.unique(gaps.example, return_index=True)
    for row, start, end in zip(rows.tolist(), starts.tolist(), [*starts[1:].tolist(), len(scores)], strict=True):
        highest = float(scores[start:end].max())
        if np.isfinite(highest):
            row_scores[row] = round(highest, 3)
        low = start + np.flatnonzero(scores[start:end] >= threshold)
        if len(low):
            line = _Row(source, row, *row_spans(source.audited[row], tokenizer, rendering), texts)
            suspects += [line.suspect(token, gaps, scores) for token in low.tolist()]
    return Found(_apart(suspects), row_scores)


class _Row:
    """One row of the data, to show spans of."""

    def __init__(self, source: Source, row: int, text: str, spans: list[Span], texts: TokenTexts) -> None:
        self._number, self._place = source.numbers[row], source.places[row]
        self._solution, self._spans, self._texts = text, spans, texts

    def _span(self, position: int) -> Span:
        """The characters of a token; eos stands at the end of the solution."""
        end = len(self._solution)
        return self._spans[position] if position < len(self._spans) else (end, end)

    def suspect(self, token: int, gaps: Gaps, scores: NDArray[np.float32]) -> Suspect:
        """The word or number around a token, and how the model would have begun it."""
        at = self._span(gaps.position[token])
        start, end = whole_word(self._solution, *at)
        first = token  # of the word: the first token that is not the model's choice
        for earlier in range(token - 1, -1, -1):
            if gaps.example[earlier] != gaps.example[token] or self._span(gaps.position[earlier])[1] <= start:
                break
            first = earlier if gaps.latest[earlier] < 0 else first
        begun = self._solution[start : self._span(gaps.position[first])[0]]
        return Suspect(
            row=self._number,
            place=self._place,
            start=start,
            end=end,
            text=self._solution[start:end],
            expected=begun + self._texts[int(gaps.competitor[first])].strip(" "),
            gap_before=round(float(gaps.before[token]), 3),
            gap_after=None if gaps.after is None else round(float(gaps.after[token]), 3),
            score=round(float(scores[token]), 3),
            left=self._solution[max(0, start - REACH) : start],
            right=self._solution[end : end + REACH],
        )


def _apart(suspects: list[Suspect]) -> list[Suspect]:
    """The worst first, and of several in one word or in touching ones only the worst."""
    kept: list[Suspect] = []
    taken: dict[int, list[Span]] = {}
    for one in sorted(suspects, key=lambda one: (-one.score, one.row, one.start)):
        spans = taken.setdefault(one.row, [])
        if all(one.end < start or end < one.start for start, end in spans):
            kept.append(one)
        spans.append((one.start, one.end))
    return kept
