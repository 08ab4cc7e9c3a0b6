"""Rows as tokens: prompt and completion tokenised apart, the completion trained, eos included, then truncated.

    problem             What is 1+1?
    solution            It is \\boxed{2}.
    input_ids           prompt tokens | It     is     \\boxed{2}. <eos>
    labels              -100 ... -100 | It     is     \\boxed{2}. <eos>

Rows in a form of TRL's are tokenised by `trimsft.data.chat`. Training, the token table and evaluation all go through
these functions. Nothing heavy is imported before they are called.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimsft.data.chat import TrlEncoder
from trimsft.data.formats import FORMS, PAIR, as_known_rows, find_form, is_nothing
from trimsft.data.load import DataConfig, is_text, load_rows, log
from trimsft.data.overlap import find_overlap, read_benchmarks
from trimsft.data.templates import Keep, PromptTemplate, TextTemplate, choose_template
from trimsft.errors import DataError, UsageError, counted
from trimsft.hub import asking_hub, not_loaded

if TYPE_CHECKING:
    from datasets import Dataset


def load_tokenizer(
    name: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, field: str = "model"
) -> Any:
    """Return the tokenizer of a model folder or a model of the hub; `field` is the setting that an error blames."""
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


# ---- problems and solutions


def encode_texts(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Return the token ids of texts, with nothing added and nothing cut."""
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
    """Return the rendered prompts as token ids; a text begins as the tokenizer begins every text, usually with bos."""
    prompts = encode_texts(template.render(problems), tokenizer)
    if not isinstance(template, TextTemplate):  # a chat template writes its own
        return prompts
    bare, full = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    start = full[: next((at for at in range(len(full)) if full[at : at + len(bare)] == bare), 0)]
    return [ids if ids[: len(start)] == start else start + ids for ids in prompts]


def encode_pairs(
    problems: Sequence[str], solutions: Sequence[str], tokenizer: Any, template: PromptTemplate
) -> list[tuple[list[int], list[int]]]:
    """Return prompt and completion of each row, tokenised apart as in generation, where the prompt comes alone.

    A completion is what is trained: the tokens of a solution and one eos, whether or not the text ends in one.
    """
    eos, eos_id = tokenizer.eos_token, tokenizer.eos_token_id
    if eos_id is None:
        raise DataError("has no eos_token, so nothing would teach the model to stop", field="tokenizer", hint="set one")
    bare = []
    for solution in solutions:
        while solution.rstrip().endswith(eos):
            solution = solution.rstrip().removesuffix(eos)
        bare.append(solution)
    prompts = encode_prompts(problems, tokenizer, template)
    # eos as an id: in text, a tokenizer might split it or swallow spaces around it
    return [(prompt, [*ids, eos_id]) for prompt, ids in zip(prompts, encode_texts(bare, tokenizer), strict=True)]


# ---- rows of any form, truncated


def kept_window(lengths: Any, max_length: int | None, keep: Keep) -> tuple[Any, Any]:
    """Return the first position that truncation leaves of a row and the one after the last; takes arrays, too."""
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

    @cached_property
    def others(self) -> TrlEncoder:
        """The encoder of rows in TRL's forms."""
        return TrlEncoder(self.tokenizer, self.assistant_only_loss, self.completion_only_loss)

    def examples(self, rows: Sequence[Mapping[str, Any]], *, first: int = 0) -> list[Example]:
        """Return the rows as tokens; `first` is the number of the first of them."""
        if self.template is None:
            return [self._truncated(first + at, *self.others.encode(row)) for at, row in enumerate(rows)]
        problems, solutions = ([row[name] for row in rows] for name in FORMS[PAIR])
        return [
            self._truncated(first + at, prompt + completion, [False] * len(prompt) + [True] * len(completion))
            for at, (prompt, completion) in enumerate(encode_pairs(problems, solutions, self.tokenizer, self.template))
        ]

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
    """Count what a maximum length took from rows, as training counts it, and say how long the longest is after that."""
    return {
        "rows_cut": sum(example.cut > 0 for example in examples),
        "tokens_cut": sum(example.cut for example in examples),
        "rows_lost": sum(not example.completion for example in examples),
        "longest": max(map(len, examples), default=0),
    }


def checked_rows(rows: Iterable[Mapping[str, Any]], limit: int | None = None) -> list[dict[str, Any]]:
    """Return the first rows, in the columns of their form; refuse what cannot be rendered, before a model is loaded."""
    form, known = as_known_rows(islice(rows, limit))
    if not known:
        raise DataError("there are none", field="rows", hint="give at least one with the fields problem and solution")
    for number, row in enumerate(known):
        for name in FORMS[form]:
            if not is_text(row.get(name)) if form == PAIR else is_nothing(row.get(name)):
                raise DataError(f"row {number} has no text as {name}", field="rows", value=row.get(name))
    return known


# ---- the trainer's data


def load_training_data(config: DataConfig, tokenizer: Any, *, with_eval: bool) -> tuple[Dataset, Dataset | None]:
    """Return the rows to train and to evaluate on: problems and solutions as tokens, TRL's forms as they are."""
    # before any row is read: a wrong folder should not cost a download
    benchmarks = None if config.benchmarks_dir is None else read_benchmarks(config.benchmarks_dir)
    rows = load_rows(config, split="train")
    test_rows = load_rows(config, split="test") if with_eval else None
    if find_form(rows.column_names) != PAIR:
        names = ("template", "system_prompt", "benchmarks_dir")
        config.refuse(names, f"data without {config.problem_column!r} and {config.solution_column!r}")
    if benchmarks is not None:
        overlap = find_overlap(rows["problem"], benchmarks)
        inside = sorted({row for found in overlap.values() for row in found})
        counts = ", ".join(f"{name} {len(found):,}" for name, found in overlap.items())
        listed = ", ".join(map(str, inside[:5])) + (", ..." if len(inside) > 5 else "")
        told = f"{len(inside):,} of {len(rows):,} training problems are benchmark problems ({counts})"
        (log.warning if inside else log.info)("overlap: %s%s", told, f": rows {listed}" if inside else "")
        if config.drop_overlap and len(inside) == len(rows):
            raise DataError("every row is a benchmark problem; nothing is left to train on", field="drop_overlap")
        if config.drop_overlap:
            rows = rows.select(sorted(set(range(len(rows))) - set(inside)))
    sets = [
        encode(one, tokenizer, config) if find_form(one.column_names) == PAIR else one
        for one in (rows, test_rows)
        if one is not None
    ]
    return sets[0], None if test_rows is None else sets[1]


def encode(rows: Any, tokenizer: Any, config: DataConfig) -> Any:
    """Tokenise problem/solution rows to input_ids and labels, at full length: the trainer truncates."""
    from datasets import Dataset, Features, List, Value

    from trimsft.head import IGNORED

    template = choose_template(config.template, tokenizer, config.system_prompt)

    def as_labels(problems: list[str], solutions: list[str]) -> dict[str, list[list[int]]]:
        pairs = encode_pairs(problems, solutions, tokenizer, template)
        return {
            "input_ids": [prompt + completion for prompt, completion in pairs],
            "labels": [[IGNORED] * len(prompt) + completion for prompt, completion in pairs],
        }

    options: dict[str, Any] = {}
    if isinstance(rows, Dataset):  # the cache's key would not see that this code has changed
        options = {"load_from_cache_file": False, "desc": "Tokenising"}
    ids = List(Value("int32"))
    return rows.map(
        as_labels,
        batched=True,
        input_columns=list(FORMS[PAIR]),
        remove_columns=rows.column_names,
        features=Features({"input_ids": ids, "labels": ids}),
        **options,
    )


# ---- lengths


@dataclass(frozen=True)
class LengthReport:
    """Lengths of the examples of a tokenised dataset, and what a maximum length takes from them, in tokens.

    20,000 rows, 6,120,345 tokens (median 265, longest 3,912), of which 4,603,211 are trained. max_length=2048 cuts
    11 rows by 5,120 tokens. 1 row keeps no trained token and adds nothing.
    """

    rows: int
    tokens: int  # tokens of all rows, before truncation
    trained_tokens: int
    """Labels that enter the loss: after truncation, and without the first token of a row, which nothing predicts."""
    longest: int
    median: float
    truncated: int  # rows longer than `max_length`
    truncated_tokens: int  # tokens that truncation takes away
    dropped: int  # rows without a trained label after truncation; left out, or packed without effect
    max_length: int | None

    def __str__(self) -> str:
        text = (
            f"{counted(self.rows, 'row')}, {counted(self.tokens, 'token')} (median {self.median:,g}, longest "
            f"{self.longest:,}), of which {self.trained_tokens:,} are trained."
        )
        if self.truncated:
            cut = f"{counted(self.truncated, 'row')} by {counted(self.truncated_tokens, 'token')}"
            text += f" max_length={self.max_length} cuts {cut}."
        elif self.max_length is not None:
            text += f" None is longer than max_length={self.max_length}."
        if self.dropped:
            keep, add = ("keeps", "adds") if self.dropped == 1 else ("keep", "add")
            text += f" {counted(self.dropped, 'row')} {keep} no trained token and {add} nothing."
        return text


def measure_lengths(dataset: Any, max_length: int | None, *, keep: Keep = "start") -> LengthReport:
    """Measure a dataset with the columns input_ids and labels; `keep` says which end truncation leaves."""
    import pyarrow.compute as pc

    from trimsft.head import IGNORED

    lengths, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for table in dataset.with_format("arrow").iter(batch_size=10_000):
        sizes = pc.list_value_length(table["labels"]).to_numpy().astype(np.int64)
        if not np.array_equal(pc.list_value_length(table["input_ids"]).to_numpy(), sizes):
            raise DataError("input_ids and labels of a row differ in length", field="dataset")
        starts = np.cumsum(sizes) - sizes
        low, high = kept_window(sizes, max_length, keep)
        is_trained = np.asarray(pc.list_flatten(table["labels"])) != IGNORED
        before = np.concatenate([[0], np.cumsum(is_trained)])  # trained labels ahead of each position
        first = starts + np.minimum(low + 1, high)  # what is first in a row is predicted by nothing
        counts.append(before[starts + high] - before[first])
        lengths.append(sizes)
    length, trained = np.concatenate(lengths), np.concatenate(counts)
    lost = np.maximum(0, length - (length.max(initial=0) if max_length is None else max_length))
    return LengthReport(
        rows=len(length),
        tokens=int(length.sum()),
        trained_tokens=int(trained.sum()),
        longest=int(length.max(initial=0)),
        median=float(np.median(length)) if len(length) else 0.0,
        truncated=int((lost > 0).sum()),
        truncated_tokens=int(lost.sum()),
        dropped=int((trained == 0).sum()),
        max_length=max_length,
    )


def fingerprint_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Hash rows in the columns of their form; a token table is known by it to be of the same ones."""
    digest = hashlib.sha256()
    for row in rows:
        content = [row["problem"], row["solution"]] if "problem" in row else row
        digest.update(json.dumps(content, sort_keys=True, default=str).encode())
    return digest.hexdigest()
