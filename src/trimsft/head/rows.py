"""Which labels are trained on: the others are dropped before the first matmul."""

from collections import Counter
from collections.abc import Callable, Collection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimsft.errors import UsageError
from trimsft.head.problem import IGNORED, copy_to_host, has_triton


class TrainedRows:
    """The places of labels that are not ignored; a label outside the vocabulary is refused.

    The device begins to look when this is made. Whoever asks waits for that alone, not for work launched since: made
    before the layers of a model run, it has the answer by the time the head needs it.
    """

    def __init__(self, labels: Tensor, vocabulary: int, ignore_index: int = IGNORED) -> None:
        self.labels_N = labels.reshape(-1).long()
        self.vocabulary = vocabulary
        self.ignore_index = ignore_index
        self._find = self._on_cuda() if self.labels_N.is_cuda and has_triton() else self._by_torch

    def is_of(self, labels: Tensor, vocabulary: int, ignore_index: int) -> bool:
        """Whether it was made of these, as far as one sees without the device."""
        here = (labels.numel(), labels.device, vocabulary, ignore_index)
        return here == (self.labels_N.numel(), self.labels_N.device, self.vocabulary, self.ignore_index)

    def rows(self) -> Tensor | None:
        """Indices of the labels to train on, or None for all of them."""
        rows, bad = self._find()
        if bad:
            labels_N, highest = self.labels_N, self.vocabulary - 1
            outside = (labels_N != self.ignore_index) & (labels_N.clamp(0, highest) != labels_N)
            first = int(outside.nonzero()[0])
            raise UsageError(
                f"labels: {bad} of {len(rows)} are outside the vocabulary (0 to {highest}; ignore_index is "
                f"{self.ignore_index}), first {int(labels_N[first])} at position {first}"
            )
        return None if len(rows) == len(self.labels_N) else rows

    def _by_torch(self) -> tuple[Tensor, int]:
        rows = (self.labels_N != self.ignore_index).nonzero().flatten()
        labels_T = self.labels_N[rows]
        return rows, int((labels_T.clamp(0, self.vocabulary - 1) != labels_T).sum())

    def _on_cuda(self) -> Callable[[], tuple[Tensor, int]]:
        from trimsft.head.records import find_trained

        rows_N, counts = find_trained(self.labels_N.contiguous(), self.ignore_index, self.vocabulary)
        with torch.cuda.device_of(counts):
            counted = copy_to_host(counts)

        def find() -> tuple[Tensor, int]:
            count, outside = map(int, counted())
            return rows_N[:count], outside

        return find


def ids_of_nearly_all(rows: Collection[Collection[int]], *, share: float = 0.9, most: int = 64) -> tuple[int, ...]:
    """Trained ids that so many of these rows of labels have at least; the most frequent, if they are too many."""
    counts: Counter[int] = Counter()
    for labels in rows:
        counts.update({*labels} - {IGNORED})
    return tuple(sorted(token for token, count in counts.most_common(most) if count >= share * len(rows)))


def evenly_spread(rows: int, most: int = 1000) -> NDArray[np.intp]:
    """Places of at most so many of the rows."""
    return np.unique(np.linspace(0, rows - 1, most).astype(int))
