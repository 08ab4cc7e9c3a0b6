"""Texts that share a row must not see each other. Whether a model keeps them apart is tried, not assumed.

With `packing` or `padding_free` a row holds several texts, and only their positions say where one ends. A model that
does not look there, or whose layers carry a state from token to token, is trained on texts that see the ones before
them, and nothing shows it. So before the first update every other text of the batch is replaced by other tokens: what
the model says of the texts between must not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from trimsft.errors import UsageError
from trimsft.head import IGNORED
from trimsft.text.reference import COLUMN
from trimsft.train.masks import MASK, POSITIONS
from trimsft.train.patching import inside_peft

BEGINNING = 4
"""Tokens of a text, its first aside, that are compared by themselves, too: those with the least context of their own."""

MOST_CHANGE, IN_FLOAT32 = 0.02, 1e-4
"""How far their log-likelihoods may move, on average, in units of the spread of all of them: by rounding, where experts
get other company. In a trained model that lets texts see each other it is 0.3 and more (docs/guides/packing.md)."""


class KeepsTextsApart:
    """For a Trainer, before it among the bases."""

    args: Any
    model: Any
    accelerator: Any
    _compile_settings: dict[str, Any] | None
    _are_apart = False

    def _require_texts_apart(self, model: Any, batch: Mapping[str, Any]) -> None:
        """Refuse to train where the texts of a row see each other; asked until a batch has a row of several."""
        is_packed = POSITIONS in batch and MASK not in batch and (self.args.packing or self.args.padding_free)
        if self._are_apart or not is_packed or not self.model.training:
            return
        labels = labels_between(batch)
        if self._total((labels != IGNORED).sum()) < 2:  # of all ranks, so that all of them go on alike
            return
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.random.fork_rng(devices=[labels.device] if labels.is_cuda else []))
            if self._compile_settings is not None:  # nothing is compiled for this
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            change = self._total(change_between(model, {**batch, "labels": labels}))
        if relative(change) > self._most_change:
            inner = inside_peft(self.model)
            name, attention = type(inner).__name__, inner.config._attn_implementation
            field = "packing" if self.args.packing else "padding_free"
            problem = f"texts of a row would see each other in {name} with {attention} attention"
            raise UsageError(problem, field=field, value=True, hint="turn it off")
        self._are_apart = True

    @property
    def _most_change(self) -> float:
        is_exact = not (self.args.bf16 or self.args.fp16) and torch.get_float32_matmul_precision() == "highest"
        return IN_FLOAT32 if is_exact and self.model.dtype == torch.float32 else MOST_CHANGE

    def _total(self, numbers: Tensor) -> Tensor:
        """Of all ranks."""
        return self.accelerator.reduce(numbers.double(), "sum")  # type: ignore[no-any-return]


def labels_between(batch: Mapping[str, Any]) -> Tensor:
    """Every second text of each row, to be predicted from its own first token on."""
    is_between = _numbers(batch) % 2 == 0
    return torch.where(is_between & (batch[POSITIONS] > 0), batch["input_ids"], IGNORED)


def with_others_replaced(batch: Mapping[str, Any]) -> Tensor:
    """The ids of a batch, where the first text of a row, the third and so on have tokens from elsewhere in it."""
    ids = batch["input_ids"]
    return torch.where(_numbers(batch) % 2 == 0, ids, ids.flatten().flip(0).view_as(ids))


def _numbers(batch: Mapping[str, Any]) -> Tensor:
    """Which text of its row a token is of, from 1 on; padding has texts of one token."""
    return (batch[POSITIONS] == 0).cumsum(dim=-1)


def change_between(model: Any, batch: Mapping[str, Any]) -> Tensor:
    """What `relative` takes, of the texts between, when those beside them are replaced."""
    batch = {name: value for name, value in batch.items() if name != COLUMN}
    nll, other = (_nll(model, {**batch, "input_ids": ids}) for ids in (batch["input_ids"], with_others_replaced(batch)))
    is_beginning = (batch[POSITIONS][batch["labels"] != IGNORED] <= BEGINNING).to(nll.device)
    moved, one = (nll - other).abs(), torch.ones_like(nll)
    sums = (moved * is_beginning, is_beginning, moved, one, nll, nll.square())
    return torch.stack([each.sum() for each in sums])


def _nll(model: Any, batch: Mapping[str, Any]) -> Tensor:
    torch.manual_seed(0)  # dropout is the same both times
    return model(**batch).tokens.nll.double()  # type: ignore[no-any-return]


def relative(change: Tensor) -> float:
    """The mean move at the beginnings, or of all, if that is more, in standard deviations of all log-likelihoods."""
    moved_first, beginnings, moved, count, total, squares = change.tolist()
    spread = max(0.0, squares / count - (total / count) ** 2) ** 0.5
    return max(moved_first / beginnings, moved / count) / max(spread, 1e-12)
