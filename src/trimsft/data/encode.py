"""Rows as tokens: prompt and completion tokenised apart, the completion trained, eos included, then truncated.

{"problem": "What is 1+1?", "solution": "It is \\\\boxed{2}."}
-> Example(number=0, prompt=[31, 7, ...], completion=[12, 40, ..., 1])

Rows in a form of TRL's are tokenised by `trimsft.data.chat`; of them, too, what is trained is the completion.
Training (`trimsft.data.encode`), the token table and evaluation all go through these functions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Dataset
from numpy.typing import NDArray

from trimsft.data.chat import TrlEncoder
from trimsft.data.formats import PAIR, as_known_rows, columns_of, is_nothing
from trimsft.data.load import (
    DataConfig,
    Kind,
    OverlapReport,
    find_overlap,
    is_text,
    kind_of,
    load_rows,
    log,
    read_benchmarks,
)
from trimsft.data.templates import PromptTemplate, TextTemplate, choose_template
from trimsft.errors import DataError, TrimSFTError, UsageError, and_more, counted, one_line
from trimsft.head import IGNORED
from trimsft.hub import asking_hub, not_loaded
from trimsft.runs.parsing import parse_json

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


@dataclass(frozen=True)
class Encoded:
    """Data as the trainer takes it, and what was noticed on the way."""

    dataset: Dataset
    overlap: OverlapReport | None
    """What it shares with the benchmarks, where a folder of them was named; counted before any row is dropped."""
    kind: Kind  # problem-solution: tokenised here; trl: in a form that TRL tokenises itself, passed on as it is


def load_training_data(config: DataConfig, tokenizer: Any, *, with_eval: bool) -> tuple[Encoded, Encoded | None]:
    """Everything between the settings and the trainer; only training rows are compared with benchmarks."""
    # before any row is read: a wrong folder should not cost a download
    benchmarks = None if config.benchmarks_dir is None else read_benchmarks(config.benchmarks_dir)
    rows = load_rows(config, split="train")
    test_rows = load_rows(config, split="test") if with_eval else None
    if kind_of(rows.column_names, config, config.dataset_name) == "trl":
        _refuse_rendering_settings(config)
    if config.reference is not None and with_eval:
        problem = "has no log-probabilities for an evaluation"
        raise DataError(problem, field="reference", value=config.reference, hint="set eval_strategy to 'no'")
    overlap = None
    if benchmarks is not None:
        overlap = find_overlap(rows[config.problem_column], benchmarks)
        (log.warning if overlap.rows else log.info)("overlap: %s", overlap)
        if config.drop_overlap:
            rows = _without(rows, overlap.rows)
    train = _encoded(rows, tokenizer, config, overlap, config.dataset_name)
    return train, None if test_rows is None else _encoded(test_rows, tokenizer, config, None, "evaluation data")


def _encoded(rows: Dataset, tokenizer: Any, config: DataConfig, overlap: OverlapReport | None, name: str) -> Encoded:
    kind = kind_of(rows.column_names, config, name)
    if kind == "trl":
        return Encoded(rows, overlap, kind)
    encoded = encode(rows, tokenizer, config)
    if config.reference is not None:
        pairs = zip(rows[config.problem_column], rows[config.solution_column], strict=True)
        plain = [{"problem": problem, "solution": solution} for problem, solution in pairs]
        template = choose_template(config.template, tokenizer, config.system_prompt)
        encoded = add_reference(encoded, config.reference, plain, template)
    return Encoded(encoded, overlap, kind)


def encode(rows: Any, tokenizer: Any, config: DataConfig) -> Any:
    """Tokenise problem/solution rows to input_ids and labels, at full length: the trainer truncates."""
    ids = datasets.List(datasets.Value("int32"))
    options: dict[str, Any] = {}
    if isinstance(rows, Dataset):  # the cache's key would not see that this code has changed
        options = {"load_from_cache_file": False, "desc": "Tokenising"}
    return rows.map(
        _encode_batch,
        batched=True,
        input_columns=[config.problem_column, config.solution_column],
        remove_columns=rows.column_names,
        features=datasets.Features({"input_ids": ids, "labels": ids}),
        fn_kwargs={
            "tokenizer": tokenizer,
            "template": choose_template(config.template, tokenizer, config.system_prompt),
        },
        **options,
    )


def _encode_batch(
    problems: list[str], solutions: list[str], *, tokenizer: Any, template: PromptTemplate
) -> dict[str, list[list[int]]]:
    pairs = encode_pairs(problems, solutions, tokenizer, template)
    return {
        "input_ids": [prompt + completion for prompt, completion in pairs],
        "labels": [[IGNORED] * len(prompt) + completion for prompt, completion in pairs],
    }


def _refuse_rendering_settings(config: DataConfig) -> None:
    """Options about problems and solutions do nothing to data that TRL renders."""
    for name in ("template", "system_prompt", "benchmarks_dir", "drop_incomplete", "reference"):
        if getattr(config, name) != getattr(DataConfig, name):
            columns = f"{config.problem_column!r} and {config.solution_column!r}"
            problem = f"has no effect on data without {columns} ({config.dataset_name})"
            raise DataError(problem, field=name, value=getattr(config, name), hint="remove it")


def _without(rows: Dataset, dropped: tuple[int, ...]) -> Dataset:
    if len(dropped) == len(rows):
        raise DataError("every row is a benchmark problem; nothing is left to train on", field="drop_overlap")
    gone = set(dropped)
    return rows.select([row for row in range(len(rows)) if row not in gone])


# ---- lengths


@dataclass(frozen=True)
class LengthReport:
    """How long the examples of a tokenised dataset are, and what a maximum length takes from them, in tokens.

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
        says = [
            f"{counted(self.rows, 'row')}, {counted(self.tokens, 'token')} (median {self.median:,g}, longest "
            f"{self.longest:,}), of which {self.trained_tokens:,} are trained."
        ]
        if self.truncated:
            cut = f"{counted(self.truncated, 'row')} by {counted(self.truncated_tokens, 'token')}"
            says.append(f"max_length={self.max_length} cuts {cut}.")
        elif self.max_length is not None:
            says.append(f"None is longer than max_length={self.max_length}.")
        if self.dropped:
            keep, add = ("keeps", "adds") if self.dropped == 1 else ("keep", "add")
            says.append(f"{counted(self.dropped, 'row')} {keep} no trained token and {add} nothing.")
        return " ".join(says)


def measure_lengths(dataset: Any, max_length: int | None, *, keep: Keep = "start") -> LengthReport:
    """Measure a dataset with the columns input_ids and labels; `keep` says which end truncation leaves."""
    missing = [name for name in ("input_ids", "labels") if name not in dataset.column_names]
    if missing:
        problem = f"no column {' and '.join(missing)} among {', '.join(dataset.column_names)}"
        raise DataError(problem, field="dataset", hint="tokenise it first")
    lengths, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for table in dataset.with_format("arrow").iter(batch_size=10_000):
        ids, labels = (table[name] for name in ("input_ids", "labels"))
        sizes = _list_lengths(labels)
        if not np.array_equal(_list_lengths(ids), sizes):
            raise DataError("input_ids and labels of a row differ in length", field="dataset")
        starts = np.cumsum(sizes) - sizes
        low, high = kept_window(sizes, max_length, keep)
        is_trained = np.asarray(pc.list_flatten(labels)) != IGNORED
        before = np.concatenate([[0], np.cumsum(is_trained)])  # trained labels ahead of each position
        first = starts + np.minimum(low + 1, high)  # what is first in a row is predicted by nothing
        counts.append(before[starts + high] - before[first])
        lengths.append(sizes)
    length, trained = np.concatenate(lengths), np.concatenate(counts)
    over = length[length > max_length] if max_length is not None else length[:0]
    return LengthReport(
        rows=len(length),
        tokens=int(length.sum()),
        trained_tokens=int(trained.sum()),
        longest=int(length.max(initial=0)),
        median=float(np.median(length)) if len(length) else 0.0,
        truncated=len(over),
        truncated_tokens=int((over - (max_length or 0)).sum()),
        dropped=int((trained == 0).sum()),
        max_length=max_length,
    )


def _list_lengths(lists: Any) -> Any:
    """How long each list of an Arrow column is, whatever kind of list it holds."""
    if not hasattr(lists.type, "value_type") or lists.null_count:
        raise DataError("input_ids and labels must be lists of whole numbers", field="dataset")
    return pc.list_value_length(lists).to_numpy().astype(np.int64)


COLUMN = "reference_logprobs"
_COLUMNS = ("example", "token_id", "nll")
_HINT = "make it again of these rows: trimsft tokens REFERENCE --data DATA"


def fingerprint_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """A hash of rows in the columns of their form, by which a token table is known to be of the same ones."""
    digest = hashlib.sha256()
    for row in rows:
        content = [row["problem"], row["solution"]] if "problem" in row else row
        digest.update(json.dumps(content, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def table_of(reference: str) -> Path:
    """The table that a setting names: a file, or the one in a run directory."""
    path = Path(reference).expanduser()
    table = path / "tokens.parquet" if path.is_dir() else path
    if not table.is_file():
        hint = "trimsft tokens REFERENCE --data DATA makes one"
        raise DataError("there is no such token table", field="reference", value=str(table), hint=hint)
    return table


def add_reference(
    encoded: Dataset, reference: str, rows: Sequence[Mapping[str, str]], template: PromptTemplate
) -> Dataset:
    """The tokenised rows with the column `reference_logprobs`.

    Args:
        encoded: `input_ids` and `labels` of the rows, at full length.
        rows: the same, as problem and solution.
        template: what renders their prompts.
    """
    path = table_of(reference)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata = parse_json((file.schema_arrow.metadata or {}).get(b"trimsft", b"{}"))
            _require_same(metadata, rows, template)
            table = {column: file.read(columns=[column]).column(column).to_numpy() for column in _COLUMNS}
    except TrimSFTError:
        raise
    except Exception as error:  # Arrow raises whatever the file makes it
        problem = f"{path} is not readable as a token table ({one_line(error)})"
        raise DataError(problem, field="reference", hint=_HINT) from error
    values = _aligned(encoded, table, cuts_front=metadata.get("truncation_mode") == "keep_end")
    return encoded.add_column(COLUMN, values, feature=datasets.List(datasets.Value("float32")))


def _require_same(metadata: Any, rows: Sequence[Mapping[str, str]], template: PromptTemplate) -> None:
    """Refuse a table that is of other rows or other prompts."""
    data = metadata.get("data", {}) if isinstance(metadata, dict) else {}
    if data.get("sha256") != fingerprint_rows(rows):
        problem = f"the table is of other rows than the {len(rows):,} to train on"
        raise DataError(problem, field="reference", hint=_HINT + " with the same sample and seed")
    prompts = metadata.get("prompts") or []
    rendered = template.render([row["problem"] for row in rows[: len(prompts)]])
    if any(not prompt.startswith(kept) for kept, prompt in zip(prompts, rendered, strict=True)):  # long ones are cut
        hint = "make both with the same template and system prompt"
        raise DataError("the table has other prompts for the same problems", field="reference", hint=hint)


def _aligned(encoded: Dataset, table: Mapping[str, NDArray[Any]], *, cuts_front: bool) -> list[NDArray[np.float32]]:
    """The reference of every token of every row; a row may be cut, in the table, at one of its ends."""
    bounds = np.searchsorted(table["example"], np.arange(len(encoded) + 1))
    values = []
    for number, labels in enumerate(encoded.with_format("numpy")["labels"]):
        part = slice(bounds[number], bounds[number + 1])
        places = np.flatnonzero(np.asarray(labels) != IGNORED)
        count = bounds[number + 1] - bounds[number]
        places = places[len(places) - count :] if cuts_front else places[:count]
        if len(places) != count or not np.array_equal(np.asarray(labels)[places], table["token_id"][part]):
            raise DataError(f"the table has other tokens in row {number}", field="reference", hint=_HINT)
        row = np.full(len(labels), np.nan, dtype=np.float32)
        row[places] = -table["nll"][part]
        values.append(row)
    return values
