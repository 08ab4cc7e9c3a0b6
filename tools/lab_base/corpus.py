"""Draw what the base model is pre-trained on: problems of all tiers, solved in mixed styles, with some wrong steps.

A pool of token ids is made once, by several processes, and reused for a few epochs. It is one flat array:

    tokens   prompt 0 | solution 0 <eos> | prompt 1 | solution 1 <eos> | ...
    starts   where each example begins; lengths and prompt_lengths say how long it and its prompt are
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.lab.task import NEAR, TIERS, LabProblem, Solution, draw_problems, write_solution
from trimsft.lab.wording import FAMILIAR, TARGET

from .tokenizer import EOS, build_backend, render_prompt

CHUNK = 2000
"""Examples of one seed: the pool does not depend on the number of processes."""

OTHER_STYLES = {"prose": 0.25, "lines": 0.2, "words": 0.2, "bullets": 0.2, "plain": 0.15}
"""How the styles other than the target share what it leaves; the first is what a greedy base writes."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The mixture of pre-training."""

    examples: int = 400_000  # size of the pool, which is reused for several epochs
    target_share: float = 0.15  # of the solutions, in the format of fine-tuning
    noise: float = 0.12  # chance of each step to be off by one or ten, and carried on
    filler_rate: float = 0.02  # chance of each step to be followed by filler
    seed: int = 0  # of data, weights and order

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of each style."""
        rest = {style: (1 - self.target_share) * part for style, part in OTHER_STYLES.items()}
        return {style: self.target_share if style == TARGET else rest[style] for style in FAMILIAR}


@dataclass(frozen=True)
class Pool:
    """Tokenised examples, one after the other."""

    tokens: NDArray[np.uint16]
    lengths: NDArray[np.int32]
    prompt_lengths: NDArray[np.int32]

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.lengths[:-1], dtype=np.int64)])


def draw_examples(corpus: Corpus, chunk: int, count: int = CHUNK) -> Iterator[tuple[LabProblem, Solution]]:
    """Yield the examples of one chunk."""
    seed = f"pre-training/{corpus.seed}/{chunk}"
    rng = random.Random(seed)
    streams = [draw_problems(tier, seed, "training") for tier in TIERS]
    styles, shares = list(corpus.shares), list(corpus.shares.values())
    for _ in range(count):
        problem = next(rng.choice(streams))
        style = rng.choices(styles, shares)[0]
        rates = {"slip_rate": corpus.noise, "offsets": NEAR, "filler_rate": corpus.filler_rate}
        yield problem, write_solution(problem, style, rng, **rates)


def build_pool(corpus: Corpus, processes: int = 1) -> Pool:
    """Return all chunks of the corpus, tokenised."""
    chunks = range(-(-corpus.examples // CHUNK))
    sizes = [min(CHUNK, corpus.examples - chunk * CHUNK) for chunk in chunks]
    if processes == 1:
        parts = [_encode_chunk(corpus, chunk, size) for chunk, size in zip(chunks, sizes, strict=True)]
    else:
        # spawned: a fork of a process that runs torch's threads may hang
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            parts = list(pool.map(_encode_chunk, [corpus] * len(chunks), chunks, sizes))
    tokens, lengths, prompt_lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Pool(tokens, lengths, prompt_lengths)


@cache
def _backend() -> Any:
    return build_backend()


def _encode_chunk(corpus: Corpus, chunk: int, size: int) -> tuple[Any, Any, Any]:
    backend = _backend()
    eos = backend.token_to_id(EOS)
    examples = list(draw_examples(corpus, chunk, size))
    prompts = backend.encode_batch_fast([render_prompt(problem.problem) for problem, _ in examples])
    solutions = backend.encode_batch_fast([solution.text for _, solution in examples])
    rows = [[*prompt.ids, *solution.ids, eos] for prompt, solution in zip(prompts, solutions, strict=True)]
    return (
        np.fromiter((token for row in rows for token in row), np.uint16),
        np.array([len(row) for row in rows], np.int32),
        np.array([len(prompt.ids) for prompt in prompts], np.int32),
    )
