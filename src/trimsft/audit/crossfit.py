"""Gaps before and after a short training, cross-fitted: no row is judged by a model that was trained on it.

The rows are dealt into parts at random. For each part a copy of the model is trained on the others by plain SFT, and
the gaps of the part's own tokens are measured. A model that has seen a row begins to reproduce it, with its errors;
this one can only know what the other rows teach, which is what tells news (it rises) from noise (it stays low).
"""

import logging
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.audit.run import AGAIN, AuditFolder, AuditSettings, Progress, as_line
from trimsft.data.templates import Rendering
from trimsft.errors import RunError
from trimsft.runs import RunDirectory, find_weights, write_whole
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import write_token_table

Rows = Sequence[Mapping[str, Any]]


def deal(rows: int, folds: int, seed: int) -> list[list[int]]:
    """Deal rows into random parts of like size, each in the order of the data.

    >>> [len(part) for part in deal(7, 2, seed=0)]
    [4, 3]
    """
    order = list(range(rows))
    random.Random(f"audit/{seed}").shuffle(order)
    return [sorted(order[part::folds]) for part in range(folds)]


def measure(folder: AuditFolder, rows: Rows, settings: AuditSettings, on_progress: Progress) -> Rendering:
    """Write the table of all rows under the model as it was given, and of each part under one trained on the others.

    Tables that are there are left as they are. Returns how rows became tokens, the same before and after.
    """
    rendering = settings.as_trained([settings.model])
    options = {**asdict(rendering), "batch_tokens": settings.batch_tokens, "device": settings.device}
    before = partial(on_progress, "gaps before training")
    write_token_table(settings.model, rows, folder.tokens_path, **options, on_progress=before)
    parts = deal(len(rows), settings.folds, settings.seed) if settings.training else []
    for number, part in enumerate(parts, start=1):
        run, of = folder.fold(number), f"{number} of {settings.folds}"
        if not run.tokens_path.exists():
            others = sorted(set(range(len(rows))) - set(part))
            on_progress(f"training {of}", 0, len(others))
            _train(run, [rows[row] for row in others], settings, rendering)
            on_progress(f"training {of}", len(others), len(others))
            held_out, after = [rows[row] for row in part], partial(on_progress, f"gaps after {of}")
            write_token_table(run.model_dir, held_out, run.tokens_path, **options, on_progress=after)
        for weights in (run.model_dir, run.train_dir):  # of no use to others, and large
            shutil.rmtree(weights, ignore_errors=True)
    return rendering


def _train(run: RunDirectory, rows: Rows, settings: AuditSettings, rendering: Rendering) -> None:
    """Train by plain SFT, at most one pass over the rows; lines of steps go to stderr."""
    from trimsft.train import train_model

    data = run.path.resolve() / "rows.jsonl"
    write_whole(data, b"".join(map(as_line, rows)))
    of_form = ("template", "system_prompt") if "problem" in rows[0] else ("assistant_only_loss", "completion_only_loss")
    batch = min(settings.batch_rows, len(rows))
    logger = logging.getLogger("trimsft")
    level = logger.level
    logger.setLevel(logging.ERROR)  # this run directory is not for keeping
    try:
        with redirect_stdout(sys.stderr):
            train_model(
                model=find_weights(settings.model),
                data=str(data),
                out=str(run.path),
                objective="sft",
                max_length=rendering.max_length or None,
                truncation_mode=rendering.truncation_mode or "keep_start",
                max_steps=min(settings.updates, -(-len(rows) // batch)),
                per_device_train_batch_size=batch,
                learning_rate=settings.learning_rate,
                lr_scheduler_type="cosine",
                warmup_steps=0.1,
                seed=settings.seed,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                **{name: getattr(rendering, name) for name in of_form},
                **({"use_cpu": True, "bf16": False} if settings.device == "cpu" else {}),
            )
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class Gaps:
    """One entry for each trained token of the data, row after row."""

    example: NDArray[np.int32]  # the audited row that it belongs to
    position: NDArray[np.int32]  # within the solution
    before: NDArray[np.float32]
    after: NDArray[np.float32] | None  # under the model that has not seen its row; None without training
    entropy_before: NDArray[np.float32]
    entropy_after: NDArray[np.float32] | None
    competitor: NDArray[np.int32]  # the token that the latest model would rather write
    category: NDArray[np.int8]  # indexes into `trimsft.tokens.categories.CATEGORIES`

    @property
    def latest(self) -> NDArray[np.float32]:
        """The gaps of the trained model, where there is one."""
        return self.before if self.after is None else self.after


def read_gaps(folder: AuditFolder, settings: AuditSettings, rows: int) -> Gaps:
    """Read the tables of a folder together."""
    table = read_token_table(folder.tokens_path)
    latest = {name: table[name].copy() for name in ("gap", "competitor_id", "entropy")}
    parts = deal(rows, settings.folds, settings.seed) if settings.training else []
    for number, part in enumerate(parts, start=1):
        path = folder.fold(number).tokens_path
        held_out, tokens = read_token_table(path), np.isin(table["example"], part)
        if not np.array_equal(held_out["token_id"], table["token_id"][tokens]):
            raise RunError(f"{path}: is not about the tokens of {folder.tokens_path}", hint=AGAIN)
        for name, values in latest.items():
            values[tokens] = held_out[name]
    return Gaps(
        example=table["example"],
        position=table["position"],
        before=table["gap"],
        after=latest["gap"] if settings.training else None,
        entropy_before=table["entropy"],
        entropy_after=latest["entropy"] if settings.training else None,
        competitor=latest["competitor_id"],
        category=table["category"],
    )
