"""How far log-likelihoods move in the trial of packed texts, where a model keeps them apart and where not; writes JSON.

    python benchmarks/packed_texts.py MODEL --data gsm8k_train.jsonl --texts 8 --shortest 60 --cut 40 \\
        --dtypes float32 bfloat16 --out results/packed_texts.json
    python benchmarks/packed_texts.py MODEL --data numina_cot_2k.jsonl.gz --texts 4 --shortest 380 --longest 520 \\
        --out results/packed_texts.json

The trial is the trainer's own (`trimsft.train.packed`), of one row with all texts. It is made three times:

    apart            as the trainer packs, with positions
    no positions     as a model sees it that never looks for them
    positions only   with a mask of ones beside them, as a model sees it that rotates by them and attends to everything

Mean moves in units of the spread, of all tokens and of the first 16 of each text; the trainer looks at the larger.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from measuring import machine

from trimsft import SFT, patch
from trimsft.data.encode import encode_pairs, load_tokenizer
from trimsft.data.load import read_file
from trimsft.data.templates import choose_template
from trimsft.models import load_model
from trimsft.train.packed import MASK, POSITIONS, change_between, relative

Batch = Mapping[str, Any]
WAYS: dict[str, Callable[[Batch], Batch]] = {
    "apart": lambda batch: batch,
    "no positions": lambda batch: {name: value for name, value in batch.items() if name != POSITIONS},
    "positions only": lambda batch: {**batch, MASK: torch.ones_like(batch["input_ids"])},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True, help="rows of problem and solution")
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--shortest", type=int, default=2, help="tokens of a text that is taken")
    parser.add_argument("--longest", type=int, default=2048)
    parser.add_argument("--cut", type=int, help="tokens that are left of it")
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    chosen = (text[: options.cut] for text in texts(options) if options.shortest <= len(text) <= options.longest)
    taken = list(islice(chosen, options.texts))
    batch = {
        "input_ids": torch.tensor([[token for text in taken for token in text]]),
        POSITIONS: torch.cat([torch.arange(len(text)) for text in taken])[None],
    }
    results = [
        {"dtype": dtype, "way": way, **moves(options.model, dtype, batch, change)}
        for dtype in options.dtypes
        for way, change in WAYS.items()
    ]
    report = {"machine": machine(), "lengths": [len(text) for text in taken], "results": results}
    options.out.write_text(json.dumps(report, indent=1) + "\n")


def texts(options: argparse.Namespace) -> Iterator[list[int]]:
    """Prompts and completions, as they are trained on."""
    tokenizer = load_tokenizer(options.model)
    template = choose_template("auto", tokenizer, None)
    rows = read_file(options.data)
    for problem, solution in zip(rows.column("problem"), rows.column("solution"), strict=True):
        ((prompt, completion),) = encode_pairs([problem], [solution], tokenizer, template)
        yield [*prompt, *completion]


@torch.no_grad()
def moves(name: str, dtype: str, batch: Batch, change: Callable[[Batch], Batch]) -> dict[str, float]:
    model = patch(load_model(name, dtype=getattr(torch, dtype), device="cpu").eval(), SFT())
    change_of_all = change_between(lambda **given: model(**change(given)), batch)
    change_of_first = change_of_all.clone()
    change_of_all[2] = change_of_first[0] = 0  # the moves of the others
    return {"all": relative(change_of_all), "first_16": relative(change_of_first)}


if __name__ == "__main__":
    main()
