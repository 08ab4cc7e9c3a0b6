"""Decoding in slots where texts that have said the same so far are computed once: for a CPU, where shapes may change.

Samples of one problem begin alike, and those of a sharp model stay alike for long. They share a line of the batch, a
row of the cache, until their draws part:

    slots   lines                     slots   lines
    0 1 2   "The sum is"              0 2     "The sum is 1"
                                      1       "The sum is 2"

A text is what it would be alone, up to the rounding that `drawing` describes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trimsft.evaluate.slots.decoder import Job, SlotDecoder

_TOKENS = 2**32  # more than any vocabulary has


class SharingDecoder(SlotDecoder):
    """Slots draw tokens; the model and its cache see lines, which are fewer."""

    def __init__(self, model: Any, **sizes: Any) -> None:
        super().__init__(model, **sizes)
        self._line = torch.zeros_like(self.token)
        """The line of each slot; 0 where it is idle."""
        self._set_lines(self._line[:0])

    def _set_lines(self, position: Tensor) -> None:
        """Go on with as many lines as there are positions."""
        self.cache.position, self.cache.range = position, torch.arange(len(position))

    def _place(self, rows: Tensor, jobs: Sequence[Job]) -> None:
        """Give each prompt a line."""
        first = len(self.cache.position)
        line_of = {prompt: first + number for number, prompt in enumerate(dict.fromkeys(job.prompt for job in jobs))}
        users: dict[tuple[int, ...], list[int]] = {}
        for prompt, line in line_of.items():
            users.setdefault(prompt[:-1], []).append(line)
        self._read_prompts(users)
        self._line[rows] = self._tensor([line_of[job.prompt] for job in jobs])
        self._set_lines(torch.cat([self.cache.position, self._tensor([len(prompt) - 1 for prompt in line_of])]))

    def _advance(self) -> None:
        if len(self.cache.position):
            super()._advance()

    def _logits_of_slots(self) -> Tensor:
        token = torch.zeros_like(self.cache.position)
        token[self._line[self.active]] = self.token[self.active]
        return self._run_model(token)[self._line]

    def _move_on(self) -> None:
        self.cache.position += 1
        self._part()

    def _stop(self, rows: list[int]) -> None:
        self.active[rows] = False
        self._part()

    def _part(self) -> None:
        """Give a line to each of the texts that are still going on: the one they had, or a copy of it."""
        active = self.active.nonzero().flatten()
        texts, number = (self._line[active] * _TOKENS + self.token[active]).unique(return_inverse=True)
        source = texts // _TOKENS
        is_first = torch.ones_like(source, dtype=torch.bool)
        is_first[1:] = source[1:] != source[:-1]
        stays = is_first & (source < len(source))
        is_free = torch.ones_like(stays)
        is_free[source[stays]] = False
        line = source.clone()
        line[~stays] = is_free.nonzero().flatten()
        self._copy(source[~stays], line[~stays])
        position = torch.empty_like(source)
        position[line] = self.cache.position[source]
        self._set_lines(position)
        self._line.zero_()
        self._line[active] = line[number]

    def _copy(self, source: Tensor, target: Tensor) -> None:
        for layer in self.cache.layers if len(source) else ():
            for states in (layer.keys, layer.values):
                states[target, :, : self.cache.seen] = states[source, :, : self.cache.seen]

    def _keep(self, rows: Tensor) -> None:
        self._line = self._line[rows]
