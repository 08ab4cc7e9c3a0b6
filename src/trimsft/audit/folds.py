"""Gaps before and after a short training, cross-fitted: no row is judged by a model that was trained on it.

The rows are dealt into parts at random. For each part a copy of the model is trained on the others by plain SFT, and
the gaps of the part's own tokens are measured. A model that has seen a row has begun to know it by heart, with its
errors; this one can only know what the other rows teach, which is what tells news (it rises) from noise (it stays low).
"""

import logging
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.audit.records import AGAIN, AuditFolder
from trimsft.audit.settings import AuditSettings
from trimsft.audit.source import as_line
from trimsft.errors import RunError
from trimsft.runs import RunDirectory, find_weights, write_whole
from trimsft.tokens.models import Rendering
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import write_token_table

Rows = Sequence[Mapping[str, Any]]
Progress = Callable[[str, int, int], None]  # called with what is done, how many rows of it, and of how many


def deal(rows: int, folds: int, seed: int) -> list[list[int]]:
    """Rows in random parts of like size, each in the order of the data.

    >>> [len(part) for part in deal(7, 2, seed=0)]
    [4, 3]
    """
    order = list(range(rows))
    random.Random(f"audit/{seed}").shuffle(order)
    return [sorted(order[part::folds]) for part in range(folds)]


def measure_before(folder: AuditFolder, rows: Rows, settings: AuditSettings, on_progress: Progress) -> None:
    """Write tokens.parquet, the table of all rows under the model as it was given."""
    _measure(settings.model, rows, folder.tokens_path, settings, partial(on_progress, "gaps before training"))


def measure_after(folder: AuditFolder, rows: Rows, settings: AuditSettings, on_progress: Progress) -> None:
    """Write the table of each part under the model that was trained on the others; done ones are left as they are."""
    parts = deal(len(rows), settings.folds, settings.seed)
    for number, part in enumerate(parts, start=1):
        run, of = folder.fold(number), f"{number} of {settings.folds}"
        if not run.tokens_path.exists():
            others = sorted(set(range(len(rows))) - set(part))
            on_progress(f"training {of}", 0, len(others))
            _train(run, [rows[row] for row in others], settings)
            on_progress(f"training {of}", len(others), len(others))
            held_out = [rows[row] for row in part]
            _measure(run.model_dir, held_out, run.tokens_path, settings, partial(on_progress, f"gaps after {of}"))
        for weights in (run.model_dir, run.train_dir):  # nobody else needs them, and they are large
            shutil.rmtree(weights, ignore_errors=True)


def _measure(
    model: str | Path, rows: Rows, out: Path, settings: AuditSettings, on_progress: Callable[[int, int], None]
) -> None:
    write_token_table(
        model,
        rows,
        out,
        **asdict(rendering_of(settings)),
        batch_tokens=settings.batch_tokens,
        device=settings.device,
        on_progress=on_progress,
    )


def rendering_of(settings: AuditSettings) -> Rendering:
    """How rows become tokens, the same before and after."""
    named = ("template", "system_prompt", "max_length", "assistant_only_loss")
    return Rendering(**{name: getattr(settings, name) for name in named}).as_trained([settings.model])


# ---- training


def _train(run: RunDirectory, rows: Rows, settings: AuditSettings) -> None:
    from trimsft.train import train_model

    data = run.path.resolve() / "rows.jsonl"
    write_whole(data, b"".join(map(as_line, rows)))
    with _aside():
        train_model(output_dir=str(run.path), dataset_name=str(data), **_fields(settings, rows))


def _fields(settings: AuditSettings, rows: Rows) -> dict[str, Any]:
    """The fields of `trimsft train`: plain SFT, at most one pass over the rows."""
    rendering = rendering_of(settings)
    batch = min(settings.batch_rows, len(rows))
    of_form = ("template", "system_prompt") if "problem" in rows[0] else ("assistant_only_loss", "completion_only_loss")
    fields: dict[str, Any] = {
        "model_name_or_path": find_weights(settings.model),
        "objective": "sft",
        **{name: getattr(rendering, name) for name in of_form},
        "max_length": rendering.max_length or None,
        "max_steps": min(settings.updates, -(-len(rows) // batch)),
        "per_device_train_batch_size": batch,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1,
        "seed": settings.seed,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    if rendering.truncation_mode is not None:
        fields["truncation_mode"] = rendering.truncation_mode
    return fields | ({"use_cpu": True, "bf16": False} if settings.device == "cpu" else {})


@contextmanager
def _aside() -> Iterator[None]:
    """Lines of steps go to stderr; what is said of a run directory that is not for keeping goes nowhere."""
    logger = logging.getLogger("trimsft")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        logger.setLevel(level)


# ---- what was measured


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
    """What the tables of a folder say together."""
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
