"""Axolotl's plugin: an objective of trimsft in its configuration.

    plugins: [trimsft.integrations.axolotl.TrimPlugin]
    trimsft: auto-trim

Axolotl imports this file where its configuration names it.
"""

from __future__ import annotations

from typing import Any

from axolotl.integrations.base import BasePlugin
from pydantic import BaseModel, field_validator

from trimsft.integrations import make_callback


class TrimArgs(BaseModel):
    """Add the key `trimsft` to Axolotl's configuration, and check it when that is read."""

    trimsft: str | dict[str, Any]

    @field_validator("trimsft")
    @classmethod
    def is_known(cls, section: Any) -> Any:
        make_callback(section)
        return section


class TrimPlugin(BasePlugin):  # type: ignore[misc]
    def get_input_args(self) -> str:
        return "trimsft.integrations.axolotl.TrimArgs"

    def add_callbacks_post_trainer(self, cfg: Any, trainer: Any) -> list[Any]:
        return [make_callback(cfg.trimsft)]
