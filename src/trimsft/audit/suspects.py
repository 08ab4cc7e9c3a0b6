r"""Gaps before and after a short training, and the spans of text that look wrong by them.

Trainings are cross-fitted: rows are dealt into parts at random, and the gaps of each part are measured after plain SFT
on the others. Such a model knows only what other rows teach: news rises, and noise stays low.

A token looks wrong to a model that is sure of another one: s = -gap / (1 + entropy). The score joins both models, by
the share x of the data that is news to the model as it was given:

    score = (1 - x) / 2 * s_before + (1 + x) / 2 * s_after
"""

import json
import random
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.audit.run import AuditFolder, AuditSettings, Progress, Suspect
from trimsft.data.templates import Rendering
from trimsft.data.visible import TokenTexts
from trimsft.runs import RunDirectory, find_weights, write_whole
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.table import TokenTable, read_token_table
from trimsft.tokens.write import write_token_table

FOLDS = 2  # parts of the data, each judged by a training on the other
BATCH_ROWS = 4  # of one update
REACH = 40  # characters of the text that are kept on each side of a span
KNOWN, NEW = 0.3, 1.5  # mean depth of gaps below 0 where nothing is news to a model, and where everything is

Rows = Sequence[Mapping[str, Any]]
Span = tuple[int, int]

# ---- gaps


def deal(rows: int, seed: int) -> list[list[int]]:
    """Deal rows into random parts of like size, each in the order of the data."""
    order = list(range(rows))
    random.Random(f"audit/{seed}").shuffle(order)
    return [sorted(order[part::FOLDS]) for part in range(FOLDS)]


def measure(folder: AuditFolder, rows: Rows, settings: AuditSettings, on_progress: Progress) -> None:
    """Write the missing tables: of all rows under the model as given, of each part under one trained on the others."""
    rendering = settings.as_trained([settings.model])  # the same before and after
    options = {**asdict(rendering), "batch_tokens": settings.batch_tokens, "device": settings.device}
    on_rows = partial(on_progress, "gaps before training")
    write_token_table(settings.model, rows, folder.tokens_path, on_progress=on_rows, **options)
    parts = deal(len(rows), settings.seed) if settings.training else []
    for number, part in enumerate(parts, start=1):
        run, held_out = folder.fold(number), set(part)
        if not run.tokens_path.exists():
            on_progress(f"training {number} of {FOLDS}", 0, len(rows) - len(part))
            _train(run, [row for place, row in enumerate(rows) if place not in held_out], settings, rendering)
            on_rows = partial(on_progress, f"gaps after {number} of {FOLDS}")
            own = [rows[row] for row in part]
            write_token_table(run.model_dir, own, run.tokens_path, on_progress=on_rows, **options)
        for weights in (run.model_dir, run.train_dir):  # of no use to others, and large
            shutil.rmtree(weights, ignore_errors=True)


def _train(run: RunDirectory, rows: Rows, settings: AuditSettings, rendering: Rendering) -> None:
    """Train by plain SFT, at most one pass over the rows; lines of steps go to stderr."""
    from trimsft.train import train_model

    data = run.path.resolve() / "rows.jsonl"
    write_whole(data, "".join(json.dumps(row, default=str) + "\n" for row in rows).encode())
    of_form = ("template", "system_prompt") if "problem" in rows[0] else ("train_on", "completion_only_loss")
    options = {name: getattr(rendering, name) for name in ("weights", *of_form)}
    if settings.device == "cpu":
        options |= {"use_cpu": True, "bf16": False}
    batch = min(BATCH_ROWS, len(rows))
    with redirect_stdout(sys.stderr):
        train_model(
            model=find_weights(settings.model),
            data=str(data),
            out=str(run.path),
            objective="sft",
            max_length=rendering.max_length or None,
            truncation_mode=f"keep_{rendering.keep}",
            max_steps=min(settings.updates, -(-len(rows) // batch)),
            per_device_train_batch_size=batch,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=0.1,
            seed=settings.seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **options,
        )


def read_gaps(folder: AuditFolder, settings: AuditSettings, rows: int) -> tuple[TokenTable, TokenTable]:
    """Return the table of the model as it was given, and what the trained ones say of rows that they have not seen.

    Without training it is the same table twice.
    """
    before = read_token_table(folder.tokens_path)
    if not settings.training:
        return before, before
    after = {name: before[name].copy() for name in ("gap", "entropy", "competitor_id")}
    for number, part in enumerate(deal(rows, settings.seed), start=1):
        held_out, tokens = read_token_table(folder.fold(number).tokens_path), np.isin(before["example"], part)
        for name, values in after.items():
            values[tokens] = held_out[name]
    return before, replace(before, columns={**before.columns, **after})


# ---- suspects


def token_scores(before: TokenTable, after: TokenTable) -> NDArray[np.float32]:
    """Return the score of each token, by how much of the data the model as given does not support."""
    missing = float(np.maximum(0, -before["gap"]).mean())
    x = min(1.0, max(0.0, (missing - KNOWN) / (NEW - KNOWN)))
    one, other = (-table["gap"] / (1 + table["entropy"]) for table in (before, after))
    scores: NDArray[np.float32] = (1 - x) / 2 * one + (1 + x) / 2 * other
    return scores


def find_suspects(
    folder: AuditFolder, gaps: tuple[TokenTable, TokenTable], rows: Rows, tokenizer: Any, settings: AuditSettings
) -> list[Suspect]:
    """Return the spans whose score reaches the threshold, the worst first; of several in one word only the worst."""
    before, after = gaps
    texts, scores = TokenTexts(tokenizer), token_scores(before, after)
    is_low = scores >= settings.threshold
    if settings.only is not None:
        is_low &= before["category"] == CATEGORIES.index(settings.only)
    low_rows = np.unique(before["example"][is_low]).tolist()
    words = read_token_table(folder.tokens_path, examples=low_rows)
    suspects: list[Suspect] = []
    for row in low_rows:
        begin, end = np.searchsorted(before["example"], [row, row + 1]).tolist()
        first = int(np.searchsorted(words["example"], row))
        pieces = list(words.texts["text"][first : first + end - begin])
        if before["token_id"][end - 1] == before.metadata.get("eos_id"):
            pieces[-1] = ""
        text, spans = text_and_spans(pieces)
        spaces = len(text) - len(text.lstrip())  # a tokenizer may begin with a space that the solution has not
        shift = max(0, rows[row]["solution"].find(text.strip())) - spaces if "solution" in rows[row] else 0
        places = np.flatnonzero(is_low[begin:end])
        taken: list[Span] = []
        for at in places[np.argsort(-scores[begin:end][places], kind="stable")].tolist():
            start, stop = whole_word(text, *spans[at])
            if all(stop < low or high < start for low, high in taken):
                # of the word, the first token that is not the model's choice
                odd = next((one for one in range(at) if spans[one][1] > start and after["gap"][begin + one] < 0), at)
                choice = texts[int(after["competitor_id"][begin + odd])].strip(" ")
                suspects.append(
                    Suspect(
                        row=row,
                        start=start + shift,
                        end=stop + shift,
                        text=text[start:stop],
                        expected=text[start : spans[odd][0]] + choice,
                        gap_before=round(float(before["gap"][begin + at]), 3),
                        gap_after=round(float(after["gap"][begin + at]), 3) if settings.training else None,
                        score=round(float(scores[begin + at]), 3),
                        left=text[max(0, start - REACH) : start],
                        right=text[stop : stop + REACH],
                        problem=str(rows[row].get("problem", "")),
                    )
                )
            taken.append((start, stop))
    return sorted(suspects, key=lambda one: (-one.score, one.row, one.start))


def text_and_spans(tokens: Sequence[str]) -> tuple[str, list[Span]]:
    """Return the text of tokens, in which parts of a character are <0xE2>, and where each stands.

    >>> text_and_spans(["It", " costs", " <0xE2><0x82>", "<0xAC>", "5"])
    ('It costs €5', [(0, 2), (2, 8), (8, 9), (9, 10), (10, 11)])
    """
    pieces = []
    for token in tokens:
        parts = re.split("<0x([0-9A-F]{2})>", token)  # texts and bytes in turn
        pieces.append(b"".join(bytes.fromhex(part) if at % 2 else part.encode() for at, part in enumerate(parts)))
    joined = b"".join(pieces)
    ends = [len(joined[:end].decode(errors="ignore")) for end in accumulate(map(len, pieces), initial=0)]
    return joined.decode(errors="ignore"), list(pairwise(ends))


def whole_word(text: str, start: int, end: int) -> Span:
    """Return a span without spaces at its ends, grown to whole numbers and words of ASCII letters.

    >>> whole_word("Step 1: 7 + 5 = 137.", 17, 18)   # the 3 of 137
    (16, 19)
    """
    inner = text[start:end]
    if inner.strip():
        start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
    for word in re.finditer("[0-9A-Za-z]+", text):
        start = word.start() if word.start() < start < word.end() else start
        end = word.end() if word.start() < end < word.end() else end
    return start, end
