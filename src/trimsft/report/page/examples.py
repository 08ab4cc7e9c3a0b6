"""The examples that the page shows: texts, and for each run the numbers behind each token, packed.

Shown are the first examples of the first run that has a token table, up to `EXAMPLES` of them and `LONGEST` tokens of
each. Where that takes more characters than there is room for, first the alternatives (top-5) are left out, then the
last examples. What is left out is counted, and the page says so.

{"vocabulary": {"ids": packed, "texts": [" the", ...],          every token that is named, once; store.js shows spaces
                "short": {"17": "====…⟨1,000 characters⟩"}},    what is shown of those that are too long, by their place
 "numbers": [0, 1], "lengths": [412, 80], "left_out": [0, 0], "prompts": ["What is ...", ""],
 "tokens": packed, "category": packed,                          for the tokens of all examples, one after the other
 "runs": [{"missing": [], "gap": packed, "nll": ..., "entropy": ..., "rank": ..., "norm": ..., "competitor": ...,
           "top": [packed, ...], "top_nll": [packed, ...]}, null]}

`tokens`, `competitor` and `top` are indexes into the vocabulary. `norm` is the gradient norm, which lies between
d = 1 - p and sqrt(2) d, as 255 (norm / d - 1) / (sqrt(2) - 1). `top` are the alternatives beside gold token and
competitor, plus 1, and 0 where there are fewer; `top_nll` is 40 sqrt(-log p).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.data.visible import json_for_script, shortened, visible
from trimsft.report.page.packing import linear, rooted, whole
from trimsft.report.runs import Run
from trimsft.tokens.table import TokenTable, read_token_table

EXAMPLES = 200
LONGEST = 4000  # tokens of one example that are shown
PROMPT = 4000  # characters of a prompt that are shown
BUDGET = 9_000_000  # characters of data in the file, which leaves tables, style and script a million below 10 MB
TOP = 5
_RANKS = 65_535


class Shown:
    """The rows of the first table that are shown, and where the same tokens are in the other tables."""

    def __init__(self, tables: Sequence[TokenTable | None], examples: int) -> None:
        self.first = next(table for table in tables if table is not None)
        self.numbers = np.unique(self.first["example"])[:examples].tolist()
        self.rows = [_rows(self.first, number) for number in self.numbers]
        lengths = [int((self.first["example"] == number).sum()) for number in self.numbers]
        self.left_out = [length - len(rows) for length, rows in zip(lengths, self.rows, strict=True)]
        self.tables = tables
        self.matches = [None if table is None else self._match(table) for table in tables]

    def _match(self, table: TokenTable) -> list[NDArray[np.int64] | None]:
        """For each example its rows in another table; nothing where its tokens or its prompt are others."""
        matches: list[NDArray[np.int64] | None] = []
        for number, rows in zip(self.numbers, self.rows, strict=True):
            here = _rows(table, number)
            same = np.array_equal(table["token_id"][here], self.first["token_id"][rows])
            same = same and _same_prompt(self.first.metadata, table.metadata, number)
            matches.append(here if same else None)
        return matches

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.rows)


def read_examples(runs: Sequence[Run]) -> list[TokenTable | None]:
    """The first examples of the first run that has tokens, as each run's table has them, with their texts."""
    with_tokens = [run.table for run in runs if run.table]
    first = with_tokens[0].first_examples(EXAMPLES) if with_tokens else []
    return [read_token_table(run.tokens_path, examples=first) if run.table else None for run in runs]


def packed_examples(tables: Sequence[TokenTable | None], budget: int = BUDGET) -> tuple[Shown, dict[str, Any]]:
    """What fits the budget: with alternatives if it can be, else without, else fewer examples."""
    shown = Shown(tables, EXAMPLES)
    has_top = any(table is not None and "top_ids" in table.columns for table in tables)
    packed = _pack(shown, with_top=has_top)
    if len(json_for_script(packed)) <= budget:
        return shown, {**packed, "top_left_out": False}
    if has_top:
        packed = _pack(shown, with_top=False)
    while (size := len(json_for_script(packed))) > budget and len(shown.numbers) > 1:
        fewer = min(len(shown.numbers) - 1, int(len(shown.numbers) * 0.97 * budget / size))
        shown = Shown(tables, max(1, fewer))
        packed = _pack(shown, with_top=False)
    return shown, {**packed, "top_left_out": has_top}


def _pack(shown: Shown, *, with_top: bool) -> dict[str, Any]:
    names: dict[int, str] = {}
    first, rows = shown.first, np.concatenate(shown.rows) if shown.rows else np.zeros(0, np.int64)
    _name(names, first["token_id"][rows], first.texts["text"], rows)
    runs = [
        None if table is None or match is None else _gather(table, match, shown, names, with_top=with_top)
        for table, match in zip(shown.tables, shown.matches, strict=True)
    ]
    ids = np.array(sorted(names), dtype=np.int64)
    texts = [visible(names[token]) for token in ids.tolist()]
    shorter = [shortened(names[token], visible) for token in ids.tolist()]
    short = {place: short for place, (short, text) in enumerate(zip(shorter, texts, strict=True)) if short != text}
    prompts = first.metadata.get("prompts", [])
    return {
        "vocabulary": {"ids": whole(ids), "texts": texts, "short": short},
        "numbers": shown.numbers,
        "lengths": [len(rows) for rows in shown.rows],
        "left_out": shown.left_out,
        "prompts": [shown_prompt(prompts[n]) if n < len(prompts) else "" for n in shown.numbers],
        "tokens": whole(np.searchsorted(ids, first["token_id"][rows])),
        "category": whole(first["category"][rows]),
        "runs": [run and _packed_run(run, ids) for run in runs],
    }


def shown_prompt(prompt: str) -> str:
    """A prompt as it is shown; a long one loses its middle, for question and end matter most."""
    if len(prompt) <= PROMPT:
        return visible(prompt)
    half = PROMPT // 2
    return visible(f"{prompt[:half]} [… {len(prompt) - 2 * half:,} more characters …] {prompt[-half:]}")


def _gather(
    table: TokenTable, match: Sequence[NDArray[np.int64] | None], shown: Shown, names: dict[int, str], *, with_top: bool
) -> dict[str, Any] | None:
    """What one run says of the shown tokens, zeros where its tokens are others; and the names it needs."""
    if all(rows is None for rows in match):
        return None
    there = np.concatenate([np.full(len(mine), rows is not None) for mine, rows in zip(shown.rows, match, strict=True)])
    rows = np.concatenate([rows for rows in match if rows is not None])
    gathered: dict[str, Any] = {"missing": [place for place, rows in enumerate(match) if rows is None]}
    for column in ("gap", "nll", "entropy", "rank", "gradient_norm", "competitor_id"):
        values = np.zeros(len(there), dtype=table[column].dtype)
        values[there] = table[column][rows]
        gathered[column] = values
    _name(names, table["competitor_id"][rows], table.texts["competitor_text"], rows)
    if with_top and "top_ids" in table.columns:
        gathered["top_ids"], gathered["top_logprobs"] = _others(table, rows, there, names)
    return gathered


def _others(
    table: TokenTable, rows: NDArray[np.int64], there: NDArray[np.bool_], names: dict[int, str]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and log-probabilities of the alternatives that are neither gold nor competitor; -1 where there are fewer."""
    some, logs = table["top_ids"][rows, :TOP].astype(np.int64), table["top_logprobs"][rows, :TOP]
    known = (some == table["token_id"][rows, None]) | (some == table["competitor_id"][rows, None])
    order = np.argsort(known, axis=1, kind="stable")[:, : TOP - 1]
    ids = np.full((len(there), order.shape[1]), -1, dtype=np.int64)
    logprobs = np.zeros(ids.shape)
    ids[there] = np.take_along_axis(np.where(known, -1, some), order, axis=1)
    logprobs[there] = np.take_along_axis(np.where(known, 0.0, logs), order, axis=1)
    distinct, where = np.unique(some, return_index=True)
    for token, place in zip(distinct.tolist(), where.tolist(), strict=True):
        row, column = divmod(place, some.shape[1])
        names.setdefault(token, table.texts["top_texts"][rows[row]][column])
    return ids, logprobs


def _packed_run(run: dict[str, Any], ids: NDArray[np.int64]) -> dict[str, Any]:
    doubt = -np.expm1(-run["nll"].astype(np.float64))
    ratio = run["gradient_norm"] / np.maximum(doubt, 1e-30)
    packed = {
        "missing": run["missing"],
        "gap": linear(run["gap"]),
        "nll": rooted(run["nll"]),
        "entropy": rooted(run["entropy"], levels=4095),
        "rank": whole(np.minimum(run["rank"], _RANKS)),
        "norm": whole(np.clip(np.round(255 * (ratio - 1) / (2**0.5 - 1)), 0, 255)),
        "competitor": whole(np.searchsorted(ids, run["competitor_id"]) % max(1, len(ids))),
    }
    if "top_ids" in run:
        # 0 stands for none, so indexes are one more than those of the vocabulary
        index = np.where(run["top_ids"] < 0, 0, np.searchsorted(ids, run["top_ids"]) + 1)
        steps = np.clip(np.round(40 * np.sqrt(np.maximum(-run["top_logprobs"], 0))), 0, 255)
        packed["top"] = [whole(index[:, place]) for place in range(index.shape[1])]
        packed["top_nll"] = [whole(steps[:, place]) for place in range(index.shape[1])]
    return packed


def _name(names: dict[int, str], ids: NDArray[Any], texts: Sequence[str], rows: NDArray[np.int64]) -> None:
    """Add what these ids are called; texts are read once for each."""
    distinct, where = np.unique(ids, return_index=True)
    for token, place in zip(distinct.tolist(), where.tolist(), strict=True):
        names.setdefault(token, texts[rows[place]])


def _same_prompt(one: Mapping[str, Any], other: Mapping[str, Any], number: int) -> bool:
    """As far as it is recorded: equal completions after other prompts say nothing about training."""
    system = [metadata.get("system_prompt") for metadata in (one, other)]
    usual = [SYSTEM_PROMPT if prompt is None else prompt for prompt in system]
    if one.get("template") != other.get("template") or usual[0] != usual[1]:
        return False
    kept = [metadata.get("prompts", []) for metadata in (one, other)]
    return not all(number < len(prompts) for prompts in kept) or kept[0][number] == kept[1][number]


def _rows(table: TokenTable, number: int) -> NDArray[np.int64]:
    return np.flatnonzero(table["example"] == number)[:LONGEST]
