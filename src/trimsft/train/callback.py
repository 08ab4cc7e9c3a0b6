"""Objectives that adapt, in a training, and any objective in whatever trains with `transformers.Trainer`:

    Trainer(model, arguments, train_dataset=rows, callbacks=[TrimCallback(AutoTrim())])

Axolotl, LLaMA-Factory, ms-swift and Unsloth all take callbacks: docs/guides/frameworks.md.
"""

from __future__ import annotations

import logging
from typing import Any

from datasets import Dataset
from torch import distributed, nn
from transformers import TrainerCallback

from trimsft.errors import RunError, UsageError
from trimsft.head.rows import evenly_spread, ids_of_nearly_all
from trimsft.objectives import Adapts, Objective, make_objective
from trimsft.train.patching import FusedHead, inside_peft, patch, unpatch

logger = logging.getLogger("trimsft")

STATE = "TrimSFTObjective"  # under this name a checkpoint keeps what the objective has seen


def advance(model: nn.Module, progress: float) -> None:
    """Tell the objective of a patched model that an update has ended; for objectives that adapt (`AutoTrim`).

    Call it after `optimizer.step()`, on every rank; for a fixed objective it does nothing.

    Args:
        progress: how much of the training is done, in [0, 1].
    """
    head = inside_peft(model).trimsft_head
    if isinstance(head.objective, Adapts):
        if head.objective.seen is None:
            hint = "call model.train() before the loop: in eval mode an objective does not follow"
            raise UsageError("advance: the model has not been trained since the last update", hint=hint)
        head.objective = _advanced(model, progress)


def _advanced(model: nn.Module, progress: float) -> Objective:
    """Return the objective of the next update; every rank takes part."""
    base = inside_peft(model)
    objective: Objective = base.trimsft_head.objective
    if not isinstance(objective, Adapts) or objective.seen is None:
        return objective
    seen = objective.seen
    if distributed.is_available() and distributed.is_initialized():
        seen = seen.clone()  # of this update, which is summed again if it is saved and then goes on
        distributed.all_reduce(seen)
        seen = seen / (getattr(base, "tp_size", None) or 1)  # ranks of one model see the same tokens
    return objective.advance(progress, seen)


def unwrapped(model: Any) -> Any:
    """Return the model inside `DistributedDataParallel`."""
    return getattr(model, "module", model)


class AdvanceObjective(TrainerCallback):  # type: ignore[misc]
    """`advance` as a callback, for a patched model in `transformers.Trainer`; `TrimSFTTrainer` does it by itself.

    Checkpoints keep what the objective has seen, and a resumed training goes on with it.

    Args:
        objective: what a training begins with; by default the objective of the model.
    """

    _objective: Any

    def __init__(self, objective: Objective | None = None) -> None:
        self._objective = objective

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        head: FusedHead = inside_peft(unwrapped(model)).trimsft_head
        given = self._objective if isinstance(self._objective, Adapts) else head.objective
        head.objective = _restored(given, state)

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        base = unwrapped(model)  # of the update before: an evaluation and the log after it still see that one
        inside_peft(base).trimsft_head.objective = _advanced(base, state.global_step / state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if control.should_save:
            self.remember(model, state)

    on_epoch_end = on_step_end

    def on_evaluate(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        # if this is the best so far, its checkpoint is saved next, and callbacks are not asked in between
        self.remember(model, state)

    def remember(self, model: Any, state: Any) -> None:
        """Put into the next checkpoint what the objective will be in the next update; every rank takes part."""
        base = unwrapped(model)
        if hasattr(inside_peft(base), "trimsft_head"):  # it is not there in an evaluation before the training or after
            objective = _advanced(base, state.global_step / max(1, state.max_steps))
            if isinstance(objective, Adapts):
                state.stateful_callbacks[STATE] = objective.state_dict()


class TrimCallback(AdvanceObjective):
    """Patches the model when training begins, lets the objective follow it, and gives the model back as it was.

    Checkpoints keep what an objective that adapts has seen, and a resumed training goes on with it.

    Args:
        objective: the weight of each token.
        settings: keywords of `trimsft.patch`, such as skip_below=0.
    """

    def __init__(self, objective: Objective | str, **settings: Any) -> None:
        super().__init__(make_objective(objective) if isinstance(objective, str) else objective)
        self._settings = settings

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        patch(unwrapped(model), self._objective, **self._settings)
        super().on_train_begin(args, state, control, model)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        unpatch(unwrapped(model))


def _restored(objective: Objective, state: Any) -> Objective:
    """Return the objective as it was when the checkpoint was saved that this training goes on from."""
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
    """Return ids of trained tokens that nearly every row has: eos, the parts of a box, and common words.

    Args:
        share: how many of the rows have such a token at least.
        rows: how many are looked at, evenly spread.
        most: how many ids there are at most; the most frequent are kept.
    """
    if not isinstance(dataset, Dataset) or "labels" not in dataset.column_names or len(dataset) == 0:
        return ()
    return ids_of_nearly_all(dataset.select(evenly_spread(len(dataset), rows))["labels"], share=share, most=most)
