"""Objectives that adapt, in a training: who tells them that an update has ended, and what a checkpoint keeps of them.

A training counts the tokens of an update over all ranks before it begins; what the objective saw of the update before
travels with that count, so that following the training costs no message of its own.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor, distributed, nn
from transformers import TrainerCallback

from trimsft.errors import RunError, UsageError
from trimsft.head.rows import evenly_spread, ids_of_nearly_all
from trimsft.objectives import Adapts, Objective
from trimsft.train.patching import inside_peft

logger = logging.getLogger("trimsft")

STATE = "TrimSFTObjective"  # under this name a checkpoint keeps what the objective has seen


def advance(model: nn.Module, progress: float) -> None:
    """Tell the objective of a patched model that an update has ended; for objectives that adapt (`AutoTrim`).

    Call it after `optimizer.step()`, on every rank; for a fixed objective it does nothing.

    Args:
        progress: how much of the training is done, in [0, 1].
    """
    base = inside_peft(model)
    head = base.trimsft_head
    if isinstance(head.objective, Adapts):
        seen = head.objective.seen
        if seen is None:
            hint = "call model.train() before the loop: in eval mode an objective does not follow"
            raise UsageError("advance: the model has not been trained since the last update", hint=hint)
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(seen)
            seen = seen / (getattr(base, "tp_size", None) or 1)  # ranks of one model see the same tokens
        head.objective = head.objective.advance(progress, seen)


class AdvanceObjective(TrainerCallback):  # type: ignore[misc]
    """`advance` as a callback, for a patched model in `transformers.Trainer`; `TrimSFTTrainer` does it by itself.

    Checkpoints keep what the objective has seen, and a resumed training goes on with it.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        head = inside_peft(unwrapped(model)).trimsft_head
        head.objective = _as_kept(head.objective, state)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        advance(unwrapped(model), state.global_step / state.max_steps)
        if control.should_save:
            self._remember(model, state)

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if control.should_save:
            self._remember(model, state)

    def on_evaluate(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        # if this is the best so far, its checkpoint is saved next, and callbacks are not asked in between
        self._remember(model, state)

    def _remember(self, model: Any, state: Any) -> None:
        head = getattr(inside_peft(unwrapped(model)), "trimsft_head", None)
        if head is not None:  # it is none in an evaluation before the training or after it
            _keep(head.objective, state)


def unwrapped(model: Any) -> Any:
    """The model inside `DistributedDataParallel`."""
    return getattr(model, "module", model)


class FollowsTraining:
    """For a Trainer with a `fused_head`, before it among the bases: its objective may adapt."""

    fused_head: Any
    accelerator: Any
    state: Any
    _evaluating: str | None
    _tp_size: int

    @property
    def objective(self) -> Objective:
        """What each token is worth now."""
        return self.fused_head.objective  # type: ignore[no-any-return]

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """Called at the start of each update, and by evaluations."""
        count_tokens = super()._get_num_items_in_batch  # type: ignore[misc]
        objective = self.objective
        if self._evaluating is not None or not isinstance(objective, Adapts) or objective.seen is None:
            return count_tokens(batch_samples, device)
        seen, gather, total = objective.seen, self.accelerator.gather, None

        def gather_both(count: Tensor) -> Tensor:
            nonlocal total
            rows = gather(torch.cat([count.reshape(1).to(seen), seen.flatten()])[None])
            total = rows[:, 1:].sum(dim=0).reshape(seen.shape)
            return rows[:, 0].to(count.dtype)  # type: ignore[no-any-return]

        self.accelerator.gather = gather_both
        try:
            count = count_tokens(batch_samples, device)
        finally:
            del self.accelerator.gather
        self.fused_head.objective = self._advanced(self._sum_of(seen) if total is None else total)
        return count

    def _sum_of(self, seen: Tensor) -> Tensor:
        return self.accelerator.gather(seen.flatten()[None]).sum(dim=0).reshape(seen.shape)  # type: ignore[no-any-return]

    def _advanced(self, seen: Tensor | None) -> Adapts:
        assert isinstance(self.objective, Adapts)
        seen = None if seen is None else seen / self._tp_size  # ranks of one model see the same tokens
        return self.objective.advance(self.state.global_step / self.state.max_steps, seen)

    def _remember_objective(self) -> None:
        """Put into the next checkpoint what the objective will be in the next update; every rank takes part."""
        if isinstance(self.objective, Adapts):
            seen = self.objective.seen
            total = None if seen is None else self._sum_of(seen)
            _keep(self._advanced(total), self.state)


class RestoreObjective(TrainerCallback):  # type: ignore[misc]
    """A training begins with the objective as it was given, a resumed one with what the checkpoint says of it."""

    def __init__(self, trainer: Any) -> None:
        self._head, self._first = trainer.fused_head, trainer.fused_head.objective

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if isinstance(self._first, Adapts):
            self._head.objective = _as_kept(self._first, state)


def _keep(objective: Objective, state: Any) -> None:
    """Put into the next checkpoint what this objective has seen."""
    if isinstance(objective, Adapts):
        state.stateful_callbacks[STATE] = objective.state_dict()


def _as_kept(objective: Objective, state: Any) -> Objective:
    """The objective as it was when the checkpoint was saved that this training goes on from."""
    if not isinstance(objective, Adapts) or not state.global_step:
        return objective
    kept = state.stateful_callbacks.get(STATE)
    if kept is None:
        logger.warning("the checkpoint does not say what the objective has seen: it begins anew")
        return objective
    try:
        return objective.load_state_dict(kept)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:  # torch's, of rows that are not equally long
        hint = "resume from an older checkpoint"
        raise RunError("what the checkpoint says of the objective cannot be read", hint=hint) from error


def fixed_parts(dataset: Any, *, share: float = 0.9, rows: int = 1000, most: int = 64) -> tuple[int, ...]:
    """Ids of trained tokens that nearly every row has: eos, the parts of a box, and common words.

    Args:
        share: how many of the rows have such a token at least.
        rows: how many are looked at, evenly spread.
        most: how many ids there are at most; the most frequent are kept.
    """
    if not isinstance(dataset, Dataset) or "labels" not in dataset.column_names or len(dataset) == 0:
        return ()
    return ids_of_nearly_all(dataset.select(evenly_spread(len(dataset), rows))["labels"], share=share, most=most)
