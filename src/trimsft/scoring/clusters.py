"""Which answers say the same: the clusters that a majority vote counts.

    >>> cluster(["1/2", "0.5", None, "3", "1/2"], lambda a, b: {a, b} == {"1/2", "0.5"})
    [0, 0, None, 1, 0]

Equivalence of mathematical answers is neither symmetric nor transitive in practice, so the result must not depend
on who asks whom first. Distinct answers are taken from the most to the least frequent, equally frequent ones by
their text; each joins the first cluster whose representative, the answer that opened it, agrees with it in both
directions. The order of the samples plays no part, and neither does the gold answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence


def cluster(answers: Sequence[str | None], equivalent: Callable[[str, str], bool]) -> list[int | None]:
    """The cluster of each answer, 0 for the one of the most frequent answer; None abstains.

    `equivalent` is asked about distinct answers only: at most twice for each pair of a text and a cluster.
    """
    opened: list[str] = []
    joined: dict[str, int] = {}
    for text in _by_frequency(answers):
        joined[text] = next(
            (
                number
                for number, representative in enumerate(opened)
                if equivalent(representative, text) and equivalent(text, representative)
            ),
            len(opened),
        )
        if joined[text] == len(opened):
            opened.append(text)
    return [None if answer is None else joined[answer] for answer in answers]


def representatives(answers: Sequence[str | None], clusters: Sequence[int | None]) -> list[str]:
    """The answer each cluster stands for: its most frequent text, the first in text order among equals."""
    if len(answers) != len(clusters):
        raise ValueError(f"clusters: must be one for each of the {len(answers)} answers, got {len(clusters)}")
    of_text = dict(zip(answers, clusters, strict=True))
    first: dict[int, str] = {}
    for text in _by_frequency(answers):
        number = of_text[text]
        if number is None:
            raise ValueError(f"clusters: the answer {text!r} has none; only None may abstain")
        first.setdefault(number, text)
    return [first[number] for number in sorted(first)]


def _by_frequency(answers: Sequence[str | None]) -> list[str]:
    counts = Counter(answer for answer in answers if answer is not None)
    return sorted(counts, key=lambda text: (-counts[text], text))
