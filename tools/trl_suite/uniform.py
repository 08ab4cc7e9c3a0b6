"""What `SFTConfig` means to TRL's tests, in our terms: every token counts the same."""

from __future__ import annotations

from dataclasses import dataclass

from trimsft.train import TrimSFTConfig


@dataclass
class UniformConfig(TrimSFTConfig):
    """A class of a module, as checkpoints pickle their arguments."""

    objective: str = "sft"
