"""Rows as tokens: prompt and completion tokenised apart, the completion trained, eos included, then truncated.

{"problem": "What is 1+1?", "solution": "It is \\\\boxed{2}."}
-> Example(number=0, prompt=[31, 7, ...], completion=[12, 40, ..., 1])

Training (`trimsft.text.training_data`), the token table and evaluation all go through these functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trimsft.errors import DataError, UsageError
from trimsft.text.hub import asking_hub, not_loaded
from trimsft.text.readers import and_more, is_text
from trimsft.text.templates import PromptTemplate, TextTemplate

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
    cut: int = 0  # tokens lost to the maximum length
    skipped: int = 0  # tokens of the whole completion that stand before `completion`

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


@dataclass(frozen=True)
class Encoder:
    """Makes examples of rows, with the tokens that training on them sees."""

    tokenizer: Any
    template: PromptTemplate
    max_length: int | None = None
    keep: Keep = "start"

    def examples(self, rows: Sequence[Mapping[str, Any]], *, first: int = 0) -> list[Example]:
        """The rows as tokens; `first` is the number of the first of them."""
        problems, solutions = ([row[name] for row in rows] for name in ("problem", "solution"))
        pairs = encode_pairs(problems, solutions, self.tokenizer, self.template)
        return [self._truncated(number, *pair) for number, pair in enumerate(pairs, start=first)]

    def _truncated(self, number: int, prompt: list[int], completion: list[int]) -> Example:
        ids = prompt + completion
        low, high = map(int, kept_window(len(ids), self.max_length, self.keep))
        start = min(max(len(prompt), low + 1), high)  # the first token that is left is predicted by nothing
        skipped = max(0, start - len(prompt))
        return Example(number, ids[low:start], ids[start:high], cut=len(ids) - (high - low), skipped=skipped)


def count_cut(examples: Sequence[Example]) -> dict[str, int]:
    """What a maximum length took from rows, as training counts it, and how long the longest is after that."""
    return {
        "rows_cut": sum(example.cut > 0 for example in examples),
        "tokens_cut": sum(example.cut for example in examples),
        "rows_lost": sum(not example.completion for example in examples),
        "longest": max(map(len, examples), default=0),
    }


def checked_rows(rows: Iterable[Mapping[str, Any]], limit: int | None = None) -> list[dict[str, str]]:
    """Problem and solution of the first rows; refuses rows that cannot be rendered, before a model is loaded."""
    pairs = [{name: row.get(name) for name in ("problem", "solution")} for row in rows][:limit]
    if not pairs:
        raise DataError("there are none", field="rows", hint="give at least one with the fields problem and solution")
    for name in ("problem", "solution"):
        bad = [number for number, row in enumerate(pairs) if not is_text(row[name])]
        if bad:
            problem = f"row {bad[0]} has no text as {name}{and_more(len(bad), 'rows')}"
            hint = "it must be valid text that is not blank"
            raise DataError(problem, field="rows", value=pairs[bad[0]][name], hint=hint)
    return pairs  # type: ignore[return-value]
