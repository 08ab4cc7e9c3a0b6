"""The column `reference_logprobs` on its way through TRL: cut like the labels, and into the batch beside them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from trimsft.data.encode import COLUMN
from trimsft.errors import DataError, UsageError
from trimsft.head import IGNORED
from trimsft.objectives import OBJECTIVES, Objective, needs_of

_HINT = "trimsft tokens REFERENCE --data DATA makes the table that --reference takes"


def check_reference(name: str, objective: Objective, reference: str | None, *, packing: bool) -> None:
    """Refuse, before a model is loaded, an objective without the reference it needs, and a reference without effect."""
    is_needed = "reference" in needs_of(objective)
    if is_needed and reference is None:
        raise UsageError(f"{name!r} compares with a reference, and none is given", field="objective", hint=_HINT)
    if reference is not None and name in OBJECTIVES and not is_needed:
        raise UsageError(f"has no effect with objective={name!r}", field="reference", value=reference, hint="remove it")
    if reference is not None and packing:
        raise UsageError("leaves no place for a reference", field="packing", value=True, hint="turn it off")


def cut_reference(dataset: Dataset, truncation_mode: str) -> Dataset:
    """Cut the column to the length that truncation has left of the labels; every trained token must have a value."""

    def cut(row: Mapping[str, Any], number: int) -> dict[str, Any]:
        labels, values = np.asarray(row["labels"]), np.asarray(row[COLUMN], dtype=np.float32)
        kept = len(labels)
        values = values[:kept] if truncation_mode == "keep_start" else values[len(values) - kept :]
        missing = int(np.isnan(values[1:])[labels[1:] != IGNORED].sum()) if len(values) == kept else kept
        if missing:
            problem = f"{missing} trained tokens of row {number} have no log-probability under the reference"
            raise DataError(problem, field="reference", hint="make its table with the same max_length, or with none")
        return {COLUMN: np.nan_to_num(values)}

    return dataset.map(cut, with_indices=True, load_from_cache_file=False, desc="Cutting the reference")


def with_reference(collator: Any, objective: Objective, dataset: Any) -> Any:
    """TRL's collator with one more column, where the data has it; an objective that needs it is refused without."""
    if COLUMN not in (getattr(dataset, "column_names", None) or ()):
        if "reference" in needs_of(objective) and isinstance(dataset, Dataset):
            kind = type(objective).__name__
            problem = f"{kind} compares with a reference, and the data has no column {COLUMN}"
            raise UsageError(problem, field="objective", hint=_HINT)
        return collator
    return ReferenceCollator(**vars(collator)) if type(collator) is DataCollatorForLanguageModeling else collator


@dataclass
class ReferenceCollator(DataCollatorForLanguageModeling):  # type: ignore[misc]
    """Makes a batch as TRL does, and puts the reference of each label beside it."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super().torch_call(examples)
        values = [torch.tensor(example[COLUMN], dtype=torch.float32) for example in examples]
        if self.padding_free:
            values = [torch.cat(values)]
        reference: Tensor = torch.zeros(batch["labels"].shape)
        for row, value in zip(reference, values, strict=True):
            row[: len(value)] = value
        batch[COLUMN] = reference
        return batch
