"""Other trainers with an objective of trimsft, named in their own configuration.

    trimsft: dft                               # a name, or my_module:MyObjective
    trimsft: {objective: trim, margin: 1.0}    # with its parameters, and keywords of `trimsft.patch`

| trainer       | how                                                                 |
|---------------|---------------------------------------------------------------------|
| Axolotl       | `plugins: [trimsft.integrations.axolotl.TrimPlugin]`                |
| ms-swift      | `python -m trimsft.integrations.swift settings.yaml`                |
| LLaMA-Factory | `python -m trimsft.integrations.llamafactory settings.yaml`         |
| Unsloth       | `SFTTrainer(..., callbacks=[trimsft.TrimCallback("dft")])`          |

Each of them hands `transformers.Trainer` a `TrimCallback`, which refuses the first update if the trainer's loss is not
the weighted one. They need the core of trimsft alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trimsft.errors import UsageError
from trimsft.objectives import make_objective

if TYPE_CHECKING:
    from trimsft.train import TrimCallback

EXAMPLE = "trimsft: dft, or trimsft: {objective: trim, margin: 1.0}"


def make_callback(section: Any) -> TrimCallback:
    """Return the callback that the section `trimsft` of a configuration asks for.

    Raises:
        UsageError: no objective is named, or one that is not known, or a parameter that it does not have.
    """
    from trimsft.train.patching import TrimCallback, patch

    given = dict(section) if isinstance(section, Mapping) else {"objective": section}
    name = given.pop("objective", None)
    if not isinstance(name, str):
        raise UsageError("must name an objective", field="trimsft", value=section, hint=EXAMPLE)
    keywords = inspect.signature(patch).parameters.values()
    settings = {each.name for each in keywords if each.kind is each.KEYWORD_ONLY} & given.keys()
    objective = make_objective(name, **{key: value for key, value in given.items() if key not in settings})
    return TrimCallback(objective, **{key: given[key] for key in settings})
