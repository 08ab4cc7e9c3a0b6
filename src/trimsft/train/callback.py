"""An objective for whatever trains with `transformers.Trainer`: one callback, no other change.

    Trainer(model, arguments, train_dataset=rows, callbacks=[TrimCallback(AutoTrim())])

Axolotl, LLaMA-Factory, ms-swift and Unsloth all take callbacks: docs/guides/frameworks.md.
"""

from __future__ import annotations

from typing import Any

from trimsft.objectives import Objective, make_objective
from trimsft.train.adapting import AdvanceObjective, unwrapped
from trimsft.train.patching import patch, unpatch


class TrimCallback(AdvanceObjective):
    """Patches the model when training begins, lets the objective follow it, and gives the model back as it was.

    Checkpoints keep what an objective that adapts has seen, and a resumed training goes on with it.

    Args:
        objective: what each token is worth.
        settings: keywords of `trimsft.patch`, such as skip_below=0.
    """

    def __init__(self, objective: Objective | str, **settings: Any) -> None:
        self._objective = make_objective(objective) if isinstance(objective, str) else objective
        self._settings = settings

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        patch(unwrapped(model), self._objective, **self._settings)
        super().on_train_begin(args, state, control, model)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        unpatch(unwrapped(model))
