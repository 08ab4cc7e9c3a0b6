"""Axolotl with AutoTrim, as a plugin.

pip install ./trimsft                                            # beside Axolotl: the core needs torch and numpy
PYTHONPATH=examples/frameworks axolotl train examples/frameworks/axolotl.yaml
"""

from typing import Any

from axolotl.integrations.base import BasePlugin

import trimsft


class TrimPlugin(BasePlugin):
    """Named in the config: `plugins: [axolotl_plugin.TrimPlugin]`."""

    def add_callbacks_post_trainer(self, cfg: Any, trainer: Any) -> list[Any]:
        return [trimsft.TrimCallback(trimsft.AutoTrim())]
