"""Other trainers with an objective of trimsft, named in their own configuration.

    trimsft: dft                               # a name, or my_module:MyObjective
    trimsft: {objective: trim, margin: 1.0}    # with its parameters, and keywords of `trimsft.patch`

| trainer       | how                                                                 |
|---------------|---------------------------------------------------------------------|
| Axolotl       | `plugins: [trimsft.integrations.axolotl.TrimPlugin]`                |
| ms-swift      | `python -m trimsft.integrations.swift settings.yaml`                |
| LLaMA-Factory | `python -m trimsft.integrations.llamafactory settings.yaml`         |
| verl          | `torchrun ... -m trimsft.integrations.verl trimsft=dft ...`         |
| Unsloth       | `SFTTrainer(..., callbacks=[trimsft.TrimCallback("dft")])`          |

All but verl hand `transformers.Trainer` a `TrimCallback`, which refuses the first update if the trainer's loss is not
the weighted one; verl's own loss is given weighted log-probabilities. They need the core of trimsft alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from trimsft.errors import UsageError
from trimsft.objectives import Objective, make_objective

if TYPE_CHECKING:
    from trimsft.train import TrimCallback

EXAMPLE = "trimsft: dft, or trimsft: {objective: trim, margin: 1.0}"


def make_callback(section: Any) -> TrimCallback:
    """Return the callback that the section `trimsft` of a configuration asks for."""
    from trimsft.train.patching import TrimCallback, patch

    keywords = inspect.signature(patch).parameters.values()
    objective, settings = read_objective(section, {each.name for each in keywords if each.kind is each.KEYWORD_ONLY})
    return TrimCallback(objective, **settings)


def read_objective(section: Any, keywords: Collection[str] = ()) -> tuple[Objective, dict[str, Any]]:
    """Return the objective of a section, and those of `keywords` that it has beside the objective's parameters.

    Raises:
        UsageError: no objective is named, or one that is not known, or a parameter that it does not have.
    """
    given = dict(section) if isinstance(section, Mapping) else {"objective": section}
    name = given.pop("objective", None)
    if not isinstance(name, str):
        raise UsageError("must name an objective", field="trimsft", value=section, hint=EXAMPLE)
    settings = {key: given.pop(key) for key in list(given) if key in keywords}
    return make_objective(name, **given), settings
