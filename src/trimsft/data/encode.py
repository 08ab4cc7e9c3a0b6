"""From rows to tokens, labels and weights: prompt and completion apart, one eos behind.

    {"problem": "1+1?", "solution": "It is \\\\boxed{2}.", "weight": 0.5}
    input_ids           ... problem ... assistant | It     is     \\\\boxed{2}. <eos>
    labels              -100 ... -100             | It     is     \\\\boxed{2}. <eos>
    token_weights       0.0 ... 0.0               | 0.5    0.5    0.5         0.5

Rows in a form of TRL's are tokenised by `trimsft.data.chat`. A weight of 0 is the same as not trained.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimsft.data.chat import TrlEncoder, Weights, check_chats
from trimsft.data.formats import FORMS, PAIR, WEIGHT, at, columns_of, find_form, known_rows
from trimsft.data.load import DataConfig, choose, load_rows, refuse, refuse_of_other_forms, stream_rows
from trimsft.data.templates import Keep, PromptTemplate, TextTemplate, choose_template
from trimsft.data.weights import OF_TEMPLATES, RowText, Turn, as_weight, parse_weights, rules_of
from trimsft.errors import DataError, UsageError, counted
from trimsft.models import load_tokenizer as load_tokenizer

if TYPE_CHECKING:
    from datasets import Dataset

TOKEN_WEIGHTS = "token_weights"
"""The column by which the weights of the objective are multiplied."""
TOKEN_ROLES = "token_roles"
"""The part of the chat that each token is of, for objectives that need it."""


# ---- problems and solutions


def encode_texts(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Return the token ids of texts, with nothing added and nothing cut."""
    # said aloud, because a tokenizer file may carry its own
    options = {"add_special_tokens": False, "padding": False, "truncation": False, "verbose": False}
    ids: list[list[int]] = tokenizer(list(texts), **options)["input_ids"]
    return ids


def encode_prompts(problems: Sequence[str], tokenizer: Any, template: PromptTemplate) -> list[list[int]]:
    """Return the rendered prompts as token ids; a text begins as every text does, usually with bos."""
    prompts = encode_texts(template.render(problems), tokenizer)
    if not isinstance(template, TextTemplate):  # a chat template writes its own
        return prompts
    bare, full = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    start = full[: next((at for at in range(len(full)) if full[at : at + len(bare)] == bare), 0)]
    return [ids if ids[: len(start)] == start else start + ids for ids in prompts]


def encode_pairs(
    problems: Sequence[str], solutions: Sequence[str], tokenizer: Any, template: PromptTemplate
) -> list[tuple[list[int], list[int]]]:
    """Return prompt and completion of each row, tokenised apart as in generation; a completion ends in one eos."""
    eos_id = tokenizer.eos_token_id
    if eos_id is None:
        raise DataError("has no eos_token, so nothing would teach the model to stop", field="tokenizer")
    bare = [_without_eos(solution, tokenizer.eos_token) for solution in solutions]
    prompts = encode_prompts(problems, tokenizer, template)
    # eos as an id: in text, a tokenizer might split it or swallow spaces around it
    return [(prompt, [*ids, eos_id]) for prompt, ids in zip(prompts, encode_texts(bare, tokenizer), strict=True)]


def _without_eos(solution: str, eos: str) -> str:
    while solution.rstrip().endswith(eos):
        solution = solution.rstrip().removesuffix(eos)
    return solution


# ---- rows of any form, truncated


def kept_window(length: int, max_length: int | None, keep: Keep) -> tuple[int, int]:
    """Return the first position that truncation leaves of a row and the one after the last."""
    kept = length if max_length is None else min(length, max_length)
    return (0, kept) if keep == "start" else (length - kept, length)


@dataclass(frozen=True)
class Example:
    """One row as the model sees it."""

    number: int
    prompt: list[int]
    """Context; of a completion cut from the front also its first token, which nothing predicts."""
    completion: list[int]
    """From the first token that is trained on."""
    weights: Weights
    """The weight of each token of `completion` by the data; 0 for turns of the user in between."""
    cut: int = 0  # tokens lost to the maximum length
    skipped: int = 0  # tokens of the whole completion that stand before `completion`

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)

    @property
    def trained(self) -> NDArray[np.int64]:
        """The places in `completion` that are trained."""
        return np.flatnonzero(self.weights)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The tokens that are trained."""
        return np.array(self.completion, dtype=np.int64)[self.trained]


@dataclass(frozen=True)
class Encoder(TrlEncoder):
    """Makes tokens and weights of rows of any form, those that training on them sees."""

    template: PromptTemplate | None = None
    """Renders problems and solutions; TRL's forms need none."""
    max_length: int | None = None
    keep: Keep = "start"

    def encode_rows(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[list[int], Weights]]:
        """Return the tokens of rows, at full length, and the weight of each."""
        if self.template is None:
            return [self.encode(row) for row in rows]
        problems, solutions = ([row[name] for row in rows] for name in FORMS[PAIR])
        encoded = []
        pairs = encode_pairs(problems, solutions, self.tokenizer, self.template)
        for row, (prompt, completion) in zip(rows, pairs, strict=True):
            ids, weights = prompt + completion, np.repeat([0.0, 1.0], [len(prompt), len(completion)])
            if self.rules:
                weights = self.apply_rules(self._text_of_pair(row, ids), weights > 0, weights)
            encoded.append((ids, weights * as_weight(row.get(WEIGHT), WEIGHT)))
        return encoded

    def _text_of_pair(self, row: Mapping[str, Any], ids: list[int]) -> RowText:
        """Return the text of a problem and its solution, and where its tokens end in it."""
        assert self.template is not None
        parts = [self.template.render([row["problem"]])[0], _without_eos(row["solution"], self.tokenizer.eos_token)]
        offsets = self.tokenizer(parts, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        prompt, completion = ([end for _, end in one] for one in offsets)
        start, end = len(parts[0]), len(parts[0]) + len(parts[1])
        ends = [*prompt, *(start + one for one in completion), end]
        ends = [0] * (len(ids) - len(ends)) + ends  # bos
        turns = [Turn("prompt", 0, start), Turn("completion", start, end)]
        return RowText("".join(parts), np.array(ends, dtype=np.int64), turns)

    def roles(self, row: Mapping[str, Any], ids: list[int]) -> NDArray[np.int64]:
        return super().roles(row, ids) if self.template is None else self._text_of_pair(row, ids).roles()

    def examples(self, rows: Sequence[Mapping[str, Any]]) -> list[Example]:
        """Return the rows as tokens, truncated."""
        return [self.truncated(number, *encoded) for number, encoded in enumerate(self.encode_rows(rows))]

    def truncated(self, number: int, ids: list[int], weights: Weights) -> Example:
        """Return tokens and weights of a row without what the maximum length takes."""
        trained = np.flatnonzero(weights)
        low, high = kept_window(len(ids), self.max_length, self.keep)
        # the first token that is left is predicted by nothing
        left = trained[(trained > low) & (trained < high)]
        start = int(left[0]) if len(left) else high
        return Example(
            number,
            prompt=ids[low:start],
            completion=ids[start:high],
            weights=weights[start:high],
            cut=len(ids) - (high - low),
            skipped=max(0, start - int(trained[0])) if len(trained) else 0,
        )


def checked_rows(rows: Iterable[Mapping[str, Any]], limit: int | None = None) -> list[dict[str, Any]]:
    """Return the first rows, in the columns of the first one's form; refuse what cannot be rendered."""
    given = [(f"row {number}", dict(row)) for number, row in enumerate(islice(rows, limit))]
    if not given:
        raise DataError("there are none", field="rows", hint="give at least one")
    return known_rows(given, find_form(given[0][1]) or PAIR)


# ---- the trainer's data


def load_training_data(
    config: DataConfig,
    tokenizer: Any,
    *,
    with_eval: bool,
    assistant_only_loss: bool = False,
    completion_only_loss: bool | None = None,
    with_roles: bool = False,
) -> tuple[Dataset, Dataset | None]:
    """Return the rows to train and to evaluate on, as tokens; of messages the assistant's are trained by default."""
    rows: Any = stream_rows(config) if config.streaming else load_rows(config, split="train")
    test_rows = None
    if config.eval_split is not None:
        if not with_eval:
            raise DataError("has no effect without eval_strategy", field="eval_split")
        held_out = set(choose(range(len(rows)), round(config.eval_split * len(rows)), config.sample_seed))
        if not 0 < len(held_out) < len(rows):
            raise DataError(f"leaves no rows of {len(rows):,}", field="eval_split", value=config.eval_split)
        test_rows = rows.select(sorted(held_out))
        rows = rows.select([row for row in range(len(rows)) if row not in held_out])
    elif with_eval:
        test_rows = load_rows(config, split="test")
    refuse_of_other_forms(config, is_pairs=find_form(columns_of(rows)) == PAIR)

    def prepared(one: Any, name: str) -> Any:
        form = find_form(columns_of(one))
        if form == PAIR:
            require_masked_prompts(completion_only_loss)
            return encode(one, tokenizer, config, with_roles=with_roles)
        if {"image", "images"} & set(columns_of(one)):  # which TRL prepares
            refuse(config, ("train_on", "weights"), "rows with images")
            return one
        train_on: Any = config.train_on or ("assistant" if form == "messages" or assistant_only_loss else "all")
        rules = rules_of(config.weights, train_on)
        return tokenise(one, Encoder(tokenizer, train_on, completion_only_loss, rules, with_roles), f"{name} data")

    return prepared(rows, "train"), None if test_rows is None else prepared(test_rows, "eval")


def require_masked_prompts(completion_only_loss: bool | None) -> None:
    """Refuse a setting of TRL's for rows that it does not tokenise."""
    if completion_only_loss is False:
        problem = "false has no effect on problems and solutions, whose prompts are always masked"
        raise UsageError(problem, field="completion_only_loss", hint="remove it")


def encode(rows: Any, tokenizer: Any, config: DataConfig, *, with_roles: bool = False) -> Any:
    """Tokenise rows of problem and solution at full length: the trainer truncates."""
    template = choose_template(config.template, tokenizer, config.system_prompt)
    rules = parse_weights(config.weights)
    return tokenise(rows, Encoder(tokenizer, rules=rules, with_roles=with_roles, template=template), "data")


def tokenise(rows: Any, encoder: Encoder, where: str) -> Any:
    """Return a dataset or stream as input_ids, labels, and token_weights where some are not 0 or 1."""
    from datasets import Dataset, Features, List, Value

    from trimsft.head import IGNORED

    is_stream = not isinstance(rows, Dataset)
    columns = columns_of(rows)
    if encoder.template is None:  # of a stream, its first row says whose turns are trained
        check_chats(rows.take(1) if is_stream else rows.with_format(None), encoder, where)
    kinds: dict[str, Any] = dict.fromkeys(("input_ids", "labels"), List(Value("int32")))
    kinds |= {TOKEN_WEIGHTS: List(Value("float32"))}
    kinds |= {TOKEN_ROLES: List(Value("int8"))} if encoder.with_roles else {}

    values = set[float]()

    def as_columns(batch: Mapping[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        names = list(batch)  # of a stream, more than its first row has
        given = [dict(zip(names, one, strict=True)) for one in zip(*(batch[name] for name in names), strict=True)]
        if encoder.template is None:
            placed = zip(numbers, given, strict=True)
            encoded = [at(f"{where}, row {number}", encoder.encode, row) for number, row in placed]
        else:
            encoded = encoder.encode_rows(given)
        values.update(*(np.unique(weights).tolist() for _, weights in encoded))
        made = {
            "input_ids": [ids for ids, _ in encoded],
            "labels": [np.where(weights > 0, ids, IGNORED).tolist() for ids, weights in encoded],
            TOKEN_WEIGHTS: [weights.tolist() for _, weights in encoded],
        }
        if encoder.with_roles:
            made[TOKEN_ROLES] = [encoder.roles(row, ids).tolist() for row, (ids, _) in zip(given, encoded, strict=True)]
        return {name: made[name] for name in kinds}

    # the cache's key would not see that this code has changed
    options: dict[str, Any] = {} if is_stream else {"load_from_cache_file": False, "desc": "Tokenising"}
    options |= {"batched": True, "with_indices": True, "remove_columns": columns, "features": Features(kinds)}
    made = rows.map(as_columns, **options)
    if is_stream:
        return made.select_columns(list(kinds))
    unused = [str(rule) for rule in encoder.rules if rule not in encoder.used and rule not in OF_TEMPLATES]
    if unused:
        raise UsageError(f"{', '.join(unused)} fits no token of the {where}", field="weights", hint="remove it")
    # roles go beside weights
    return made if encoder.with_roles or not values <= {0, 1} else made.remove_columns(TOKEN_WEIGHTS)


# ---- lengths


@dataclass(frozen=True)
class LengthReport:
    """Lengths of tokenised rows, and what a maximum length takes from them, in tokens."""

    rows: int
    tokens: int  # tokens of all rows, before truncation
    trained_tokens: int
    """Labels that enter the loss: after truncation, without the first token of a row."""
    longest: int
    truncated: int  # rows longer than `max_length`
    truncated_tokens: int  # tokens that truncation takes away
    dropped: int  # rows without a trained label after truncation; left out, or packed without effect
    max_length: int | None

    def __str__(self) -> str:
        lengths = f"{counted(self.tokens, 'token')} (longest row {self.longest:,})"
        text = f"{counted(self.rows, 'row')}, {lengths}, of which {self.trained_tokens:,} are trained."
        if self.truncated:
            cut = f"{counted(self.truncated, 'row')} by {counted(self.truncated_tokens, 'token')}"
            text += f" max_length={self.max_length} cuts {cut}."
        elif self.max_length is not None:
            text += f" None is longer than max_length={self.max_length}."
        if self.dropped:
            text += f" Rows that keep no trained token and add nothing: {self.dropped:,}."
        return text


def measure_lengths(dataset: Any, max_length: int | None, *, keep: Keep = "start") -> LengthReport:
    """Measure a tokenised dataset; `keep` says which end truncation leaves."""
    from trimsft.head import IGNORED

    lengths, trained = [], []
    for row in dataset.select_columns(["input_ids", "labels"]).with_format("numpy"):
        if len(row["input_ids"]) != len(row["labels"]):
            raise DataError("input_ids and labels of a row differ in length", field="dataset")
        low, high = kept_window(len(row["labels"]), max_length, keep)
        lengths.append(len(row["labels"]))
        trained.append(int((row["labels"][low + 1 : high] != IGNORED).sum()))  # nothing predicts the first
    return report_lengths(lengths, trained, max_length)


def report_lengths(lengths: Sequence[int], trained: Sequence[int], max_length: int | None) -> LengthReport:
    """Return the report on rows of these lengths, with so many trained tokens after truncation."""
    lost = [max(0, length - max_length) for length in lengths] if max_length is not None else []
    return LengthReport(
        rows=len(lengths),
        tokens=sum(lengths),
        trained_tokens=sum(trained),
        longest=max(lengths, default=0),
        truncated=sum(length > 0 for length in lost),
        truncated_tokens=sum(lost),
        dropped=sum(count == 0 for count in trained),
        max_length=max_length,
    )


def fingerprint_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """Hash rows in the columns of their form; a token table is known by it to be of the same ones."""
    digest = hashlib.sha256()
    for row in rows:
        content = [row["problem"], row["solution"]] if set(row) == set(FORMS[PAIR]) else row
        digest.update(json.dumps(content, sort_keys=True, default=str).encode())
    return digest.hexdigest()
