"""One process's pass over its windows of rows: tokenise ahead, keep the device busy, store behind.

    thread      window 2: tokens            window 3: tokens
    device          window 1, batch 4           window 2, batch 1
    here        window 1, batch 3: numbers      window 1, batch 4: numbers
    thread                                                          window 1: table, file

Within a window batches hold rows of like length; its lines are in the order of the rows.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from trimsft.data.encode import Encoder, Example, count_cut
from trimsft.data.visible import TokenTexts
from trimsft.tokens.categories import categorise
from trimsft.tokens.heads import Batch, Look, Reader
from trimsft.tokens.parts import Parts
from trimsft.tokens.table import as_arrow, schema_with

WINDOW = 256  # rows that are tokenised, sorted into batches and stored together

Columns = dict[str, NDArray[Any]]


def make_batches(
    examples: Sequence[Example], batch_tokens: int, *, filler: int = 0, pinned: bool = False
) -> Iterator[Batch]:
    """Rows of like length together, each batch within `batch_tokens` when padded; rows cut before their solution
    are left out."""
    batch: list[Example] = []
    for example in sorted(examples, key=len):  # each new one is the longest so far
        if not example.completion:
            continue
        if batch and (len(batch) + 1) * len(example) > batch_tokens:
            yield _padded(batch, filler, pinned)
            batch = []
        batch.append(example)
    if batch:
        yield _padded(batch, filler, pinned)


def _padded(examples: list[Example], filler: int, pinned: bool) -> Batch:
    longest = len(examples[-1])
    ids = np.full((len(examples), longest), filler, dtype=np.int64)
    places, labels = [], []
    for row, example in enumerate(examples):
        ids[row, : len(example)] = example.prompt + example.completion
        start = row * longest + len(example.prompt) - 1  # a token is predicted by the one before it
        places.append(start + example.trained)
        labels.append(example.labels)
    tensors = [torch.from_numpy(array) for array in (ids, np.concatenate(places), np.concatenate(labels))]
    return Batch(examples, *(tensor.pin_memory() if pinned else tensor for tensor in tensors))


@dataclass
class _Window:
    number: int
    rows: int
    batches: list[Batch]
    counts: Mapping[str, int]
    numbers: list[Columns] = field(default_factory=list)  # what the model said about each batch so far


class Pass:
    """A model that goes over windows of rows."""

    def __init__(
        self, reader: Reader, rows: Sequence[Mapping[str, Any]], encoder: Encoder, parts: Parts, *, batch_tokens: int
    ) -> None:
        self._reader, self._rows, self._encoder, self._parts = reader, rows, encoder, parts
        self._batch_tokens = batch_tokens
        self._texts = TokenTexts(encoder.tokenizer)
        self._storing: Future[None] | None = None

    def run(self, windows: Sequence[int], on_rows: Callable[[int], None]) -> None:
        """Fill these parts; `on_rows` is called after each batch with how many rows are done."""
        done = 0
        with _short_turns(), ThreadPoolExecutor(1) as ahead, ThreadPoolExecutor(1) as behind:
            for window, look in self._looks(windows, ahead):
                if look is not None:
                    window.numbers.append(look.wait())
                    on_rows(done + sum(len(batch.examples) for batch in window.batches[: len(window.numbers)]))
                if len(window.numbers) == len(window.batches):
                    done += window.rows
                    on_rows(done)
                    self._wait_for_storing()  # at most two windows in memory
                    self._storing = behind.submit(self._store, window)
            self._wait_for_storing()

    def _looks(self, windows: Sequence[int], ahead: ThreadPoolExecutor) -> Iterator[tuple[_Window, Look | None]]:
        """Each batch once the next one is on its way; None for a window without any."""
        last: tuple[_Window, Look | None] | None = None
        upcoming = ahead.submit(self._read, windows[0])
        for following in [*windows[1:], None]:
            window = upcoming.result()
            if following is not None:
                upcoming = ahead.submit(self._read, following)
            starts: list[Batch | None] = [*window.batches] or [None]
            for batch in starts:
                current = window, None if batch is None else self._reader.start(batch)
                if last is not None:
                    yield last
                last = current
        if last is not None:
            yield last

    def _read(self, number: int) -> _Window:
        rows = self._rows[number * WINDOW : (number + 1) * WINDOW]
        examples = self._encoder.examples(rows, first=number * WINDOW)
        pinned, filler = self._reader.device.type == "cuda", self._reader.filler
        batches = list(make_batches(examples, self._batch_tokens, filler=filler, pinned=pinned))
        return _Window(number, len(rows), batches, count_cut(examples))

    def _store(self, window: _Window) -> None:
        schema = schema_with(self._reader.top)
        table = as_arrow(self._columns(window), schema) if window.batches else schema.empty_table()
        self._parts.write(window.number, table, window.counts)

    def _wait_for_storing(self) -> None:
        if self._storing is not None:
            self._storing.result()

    def _columns(self, window: _Window) -> dict[str, Any]:
        """All columns of a window, from batch order into the order of the rows."""
        batched = [example for batch in window.batches for example in batch.examples]
        examples = sorted(batched, key=lambda example: example.number)
        lengths = [len(example.labels) for example in examples]
        order = _line_order(batched)
        columns: dict[str, Any] = {
            name: np.concatenate([part[name] for part in window.numbers])[order] for name in window.numbers[0]
        }
        columns["example"] = np.repeat(np.array([example.number for example in examples], dtype=np.int32), lengths)
        places = np.concatenate([example.trained + example.skipped for example in examples])
        columns["position"] = places.astype(np.int32)
        columns["token_id"] = np.concatenate([example.labels for example in examples]).astype(np.int32)
        columns["text"] = self._texts.take(columns["token_id"])
        columns["competitor_text"] = self._texts.take(columns["competitor_id"])
        texts, starts = columns["text"].to_pylist(), np.cumsum([0, *lengths]).tolist()
        # example by example: a token's category depends on those around it
        columns["category"] = np.concatenate([categorise(texts[start:end]) for start, end in pairwise(starts)])
        if "top_ids" in columns:
            columns |= self._alternatives(columns["top_ids"], columns["top_logprobs"])
        return columns

    def _alternatives(self, ids: NDArray[Any], logprobs: NDArray[Any]) -> dict[str, pa.Array]:
        offsets = pa.array(np.arange(len(ids) + 1, dtype=np.int32) * ids.shape[1])
        flat = {"top_ids": pa.array(ids.ravel()), "top_logprobs": pa.array(logprobs.ravel())}
        flat["top_texts"] = self._texts.take(ids.ravel())
        return {name: pa.ListArray.from_arrays(offsets, values) for name, values in flat.items()}


@contextmanager
def _short_turns() -> Iterator[None]:
    """Threads change more often: whoever launches hundreds of kernels would wait 5 ms for each of them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _line_order(batched: Sequence[Example]) -> NDArray[np.int64]:
    """Where in the batches each line of the window stands."""
    ends = np.cumsum([len(example.labels) for example in batched])
    starts = {
        example.number: np.arange(end - len(example.labels), end)
        for example, end in zip(batched, ends.tolist(), strict=True)
    }
    return np.concatenate([starts[number] for number in sorted(starts)])
