"""Any objective in whatever trains with `transformers.Trainer`:

    Trainer(model, arguments, train_dataset=rows, callbacks=[TrimCallback(AutoTrim())])

Axolotl, LLaMA-Factory, ms-swift and Unsloth all take callbacks: docs/guides/frameworks.md.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from trimsft.objectives import Objective
from trimsft.train.patching import patch, unpatch


class TrimCallback(TrainerCallback):  # type: ignore[misc]
    """Patches the model when training begins, and gives it back as it was at the end.

    Args:
        objective: the weight of each token, or its name.
        settings: keywords of `trimsft.patch`, such as skip_below=0.
    """

    def __init__(self, objective: Objective | str, **settings: Any) -> None:
        self._objective = objective
        self._settings = settings

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        patch(getattr(model, "module", model), self._objective, **self._settings)  # inside DistributedDataParallel

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        unpatch(getattr(model, "module", model))
