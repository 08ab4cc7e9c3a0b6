"""Rows as tokens: prompt and completion tokenised apart, the completion trained, eos included, then truncated.

{"problem": "What is 1+1?", "solution": "It is \\\\boxed{2}."}
-> Example(number=0, prompt=[31, 7, ...], completion=[12, 40, ..., 1])

Rows in a form of TRL's are tokenised by `trimsft.data.trl_rows`; of them, too, what is trained is the completion.
Training (`trimsft.data.training_data`), the token table and evaluation all go through these functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trimsft.data.forms import PAIR, as_known_rows, columns_of, is_nothing
from trimsft.data.readers import is_text
from trimsft.data.templates import PromptTemplate, TextTemplate
from trimsft.data.trl_rows import TrlEncoder
from trimsft.errors import DataError, UsageError, and_more
from trimsft.hub import asking_hub, not_loaded

Keep = Literal["start", "end"]
"""Which end of a long row truncation leaves; TRL's `truncation_mode` without its "keep_"."""


def load_tokenizer(
    name: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, field: str = "model"
) -> Any:
    """The tokenizer of a model folder or a model of the hub; `field` is the setting that an error blames."""
    from transformers import AutoTokenizer

    name = str(name)
    looks_local = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_local and not Path(name).expanduser().is_dir():
        raise UsageError("no such folder", field=field, value=name)
    try:
        with asking_hub(name):
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=trust_remote_code)
        tokenizer.decode(tokenizer("a", truncation=False)["input_ids"])  # some damage shows in use only
    except Exception as error:  # the library raises whatever the files make it
        raise not_loaded(f"a tokenizer from {name!r}", name, error, field=field) from error
    return tokenizer


# ---- tokenising


def encode_texts(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Token ids of texts, with nothing added and nothing cut."""
    encoding = tokenizer(
        list(texts),
        add_special_tokens=False,
        padding=False,
        truncation=False,  # said aloud, because a tokenizer file may carry its own
        return_attention_mask=False,
        verbose=False,
    )
    ids: list[list[int]] = encoding["input_ids"]
    return ids


def encode_prompts(problems: Sequence[str], tokenizer: Any, template: PromptTemplate) -> list[list[int]]:
    """The rendered prompts as token ids; before a text template stands what the tokenizer starts every text with."""
    start = _start(tokenizer) if isinstance(template, TextTemplate) else []  # a chat template writes its own
    prompts = encode_texts(template.render(problems), tokenizer)
    return [ids if ids[: len(start)] == start else start + ids for ids in prompts]


def _start(tokenizer: Any) -> list[int]:
    """What the tokenizer puts before a text, usually bos or nothing."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    starts = (at for at in range(len(full)) if full[at : at + len(bare)] == bare)
    start: list[int] = full[: next(starts, 0)]
    return start


def encode_completions(solutions: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """What is trained of each solution: its tokens and one eos, whether or not the text ends in one."""
    eos: str = tokenizer.eos_token
    bare = []
    for solution in solutions:
        while solution.rstrip().endswith(eos):
            solution = solution.rstrip().removesuffix(eos)
        bare.append(solution)
    # eos as an id: in text, a tokenizer might split it or swallow spaces around it
    return [[*ids, tokenizer.eos_token_id] for ids in encode_texts(bare, tokenizer)]


def encode_pairs(
    problems: Sequence[str], solutions: Sequence[str], tokenizer: Any, template: PromptTemplate
) -> list[tuple[list[int], list[int]]]:
    """Prompt and completion of each row, tokenised apart as in generation, where the prompt's last token is settled."""
    if tokenizer.eos_token_id is None:
        raise DataError("has no eos_token, so nothing would teach the model to stop", field="tokenizer", hint="set one")
    prompts = encode_prompts(problems, tokenizer, template)
    return list(zip(prompts, encode_completions(solutions, tokenizer), strict=True))


# ---- truncating


def kept_window(lengths: Any, max_length: int | None, keep: Keep) -> tuple[Any, Any]:
    """The first position that truncation leaves of a row, and the one after the last; for one length or an array."""
    if max_length is not None and max_length < 1:
        raise DataError("must be at least 1 or None", field="max_length", value=max_length)
    if keep not in ("start", "end"):
        raise DataError("must be 'start' or 'end'", field="keep", value=keep)
    kept = lengths if max_length is None else np.minimum(lengths, max_length)
    return (0 * lengths, kept) if keep == "start" else (lengths - kept, lengths)


@dataclass(frozen=True)
class Example:
    """One row as the model sees it."""

    number: int
    prompt: list[int]
    """Context only. A completion that truncation has cut into from the front leaves its first token here, because
    nothing predicts that one."""
    completion: list[int]
    """From the first token that is trained on."""
    cut: int = 0  # tokens lost to the maximum length
    skipped: int = 0  # tokens of the whole completion that stand before `completion`
    masked: tuple[int, ...] = ()  # places in `completion` that are context, too: turns of the user

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)

    @property
    def trained(self) -> NDArray[np.int64]:
        """The places in `completion` that are trained."""
        return np.delete(np.arange(len(self.completion)), list(self.masked))

    @property
    def labels(self) -> NDArray[np.int64]:
        """The tokens that are trained."""
        return np.array(self.completion, dtype=np.int64)[self.trained]


@dataclass(frozen=True)
class Encoder:
    """Makes examples of rows, with the tokens that training on them sees."""

    tokenizer: Any
    template: PromptTemplate | None  # of problems and solutions; TRL's forms need none
    max_length: int | None = None
    keep: Keep = "start"
    assistant_only_loss: bool = False
    completion_only_loss: bool | None = None

    def examples(self, rows: Sequence[Mapping[str, Any]], *, first: int = 0) -> list[Example]:
        """The rows as tokens; `first` is the number of the first of them."""
        encoded = self._pairs(rows) if self.template is not None else map(self.others.encode, rows)
        return [self._truncated(number, *row) for number, row in enumerate(encoded, start=first)]

    @cached_property
    def others(self) -> TrlEncoder:
        """What tokenises rows in TRL's forms."""
        return TrlEncoder(self.tokenizer, self.assistant_only_loss, self.completion_only_loss)

    def _pairs(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[list[int], list[bool]]]:
        assert self.template is not None
        problems, solutions = ([row[name] for row in rows] for name in columns_of(PAIR))
        pairs = encode_pairs(problems, solutions, self.tokenizer, self.template)
        return [(prompt + completion, [False] * len(prompt) + [True] * len(completion)) for prompt, completion in pairs]

    def _truncated(self, number: int, ids: list[int], is_trained: list[bool]) -> Example:
        trained = np.flatnonzero(is_trained)
        low, high = map(int, kept_window(len(ids), self.max_length, self.keep))
        # the first token that is left is predicted by nothing
        left = trained[(trained > low) & (trained < high)]
        start = int(left[0]) if len(left) else high
        masked = np.setdiff1d(np.arange(start, high), left, assume_unique=True) - start
        return Example(
            number,
            prompt=ids[low:start],
            completion=ids[start:high],
            cut=len(ids) - (high - low),
            skipped=max(0, start - int(trained[0])) if len(trained) else 0,
            masked=tuple(masked.tolist()),
        )


def count_cut(examples: Sequence[Example]) -> dict[str, int]:
    """What a maximum length took from rows, as training counts it, and how long the longest is after that."""
    return {
        "rows_cut": sum(example.cut > 0 for example in examples),
        "tokens_cut": sum(example.cut for example in examples),
        "rows_lost": sum(not example.completion for example in examples),
        "longest": max(map(len, examples), default=0),
    }


def checked_rows(rows: Iterable[Mapping[str, Any]], limit: int | None = None) -> list[dict[str, Any]]:
    """The first rows, in the columns of their form; refuses what cannot be rendered, before a model is loaded."""
    form, known = as_known_rows(islice(rows, limit))
    if not known:
        raise DataError("there are none", field="rows", hint="give at least one with the fields problem and solution")
    is_fine = is_text if form == PAIR else lambda value: not is_nothing(value)
    for name in columns_of(form):
        bad = [number for number, row in enumerate(known) if not is_fine(row.get(name))]
        if bad:
            problem = f"row {bad[0]} has no {'text' if form == PAIR else 'value'} as {name}{and_more(len(bad), 'rows')}"
            hint = "it must be valid text that is not blank" if form == PAIR else "every row needs one"
            raise DataError(problem, field="rows", value=known[bad[0]].get(name), hint=hint)
    return known
