"""Real data as token ids in one small file, so that the machine that trains needs neither data sets nor a tokenizer."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.weights.training import Pair
from trimsft.data.encode import encode_pairs, encode_prompts, load_tokenizer
from trimsft.data.files import read_records
from trimsft.data.templates import choose_template
from trimsft.runs.files import written_beside

TRAINING = {"gsm8k": "train/gsm8k_train.jsonl", "mix": "train/numina_style_mix_20k.jsonl.gz"}
BENCHMARKS = {"gsm8k": "benchmarks/gsm8k.jsonl", "math500": "benchmarks/math500.jsonl"}
ROWS, LONGEST = 7000, 512
"""Rows of a training set, and how many tokens they may have: longer ones are left out."""


@dataclass(frozen=True)
class Prepared:
    """Training sets and benchmarks of one tokenizer."""

    eos: int
    training: dict[str, list[Pair]]
    prompts: dict[str, list[list[int]]]
    golds: dict[str, list[str]]

    @classmethod
    def of(cls, model: Path, data: Path) -> Prepared:
        """From files whose rows have the fields problem and solution, or problem and answer."""
        tokenizer = load_tokenizer(model)
        template = choose_template("auto", tokenizer)
        training = {name: _training(data / path, name, tokenizer, template) for name, path in TRAINING.items()}
        files = {name: _columns(data / path) for name, path in BENCHMARKS.items()}
        prompts = {name: encode_prompts(file["problem"], tokenizer, template) for name, file in files.items()}
        golds = {name: [str(one) for one in file["answer"]] for name, file in files.items()}
        return cls(tokenizer.eos_token_id, training, prompts, golds)

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {"facts": np.array(json.dumps({"eos": self.eos, "golds": self.golds}))}
        for name, pairs in self.training.items():
            for part, ids in zip(("prompts", "completions"), zip(*pairs, strict=True), strict=True):
                arrays |= _flat(f"training/{name}/{part}", ids)
        for name, prompts in self.prompts.items():
            arrays |= _flat(f"benchmarks/{name}/prompts", prompts)
        with written_beside(path) as beside, beside.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Prepared:
        with np.load(path) as arrays:
            facts = json.loads(str(arrays["facts"]))
            names = sorted({key.split("/")[1] for key in arrays if key.startswith("training/")})
            parts = ("prompts", "completions")
            training = {n: [_lists(arrays, f"training/{n}/{part}") for part in parts] for n in names}
            prompts = {name: _lists(arrays, f"benchmarks/{name}/prompts") for name in facts["golds"]}
        pairs = {name: list(zip(*both, strict=True)) for name, both in training.items()}
        return cls(facts["eos"], pairs, prompts, facts["golds"])


def _training(path: Path, name: str, tokenizer: Any, template: Any) -> list[Pair]:
    file = _columns(path)
    rows = list(zip(file["problem"], file["solution"], strict=True))
    if name == "mix":  # its sources stand one after the other
        random.Random(0).shuffle(rows)
    rows = rows[: 2 * ROWS]  # more than enough to leave long ones out
    pairs = encode_pairs([row[0] for row in rows], [row[1] for row in rows], tokenizer, template)
    return [pair for pair in pairs if len(pair[0]) + len(pair[1]) <= LONGEST][:ROWS]


def _columns(path: Path) -> dict[str, list[Any]]:
    rows = [row for _, row in read_records(path)]
    return {name: [row.get(name) for row in rows] for name in ("problem", "solution", "answer")}


def _flat(name: str, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Lists of ids as one array and their lengths."""
    ids = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return {name: ids.astype(np.uint16 if ids.max() < 2**16 else np.uint32), f"{name}/lengths": [len(r) for r in rows]}


def _lists(arrays: Any, name: str) -> list[list[int]]:
    ends = np.cumsum(arrays[f"{name}/lengths"])
    return [part.tolist() for part in np.split(arrays[name].astype(int), ends[:-1])]
