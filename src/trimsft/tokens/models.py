"""The model that a token table is about: a folder, a run directory, a name of the hub, or one in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trimsft.data.encode import Keep
from trimsft.errors import UsageError
from trimsft.runs import RunDirectory, fingerprint_folder
from trimsft.runs.parsing import checked

TRAINED_LENGTH = 1024
"""The maximum length of a training that names none: TRL's default, which config.yaml leaves out."""
TRUNCATION_MODES: dict[str, Keep] = {"keep_start": "start", "keep_end": "end"}


@dataclass(frozen=True)
class Rendering:
    """How rows become tokens, in the words of `trimsft train`; what is not set is taken from a run's training."""

    template: str = "auto"  # of problems and solutions, as the system prompt
    system_prompt: str | None = None
    max_length: int | None = None  # a completion is cut, too; 0: rows are not cut, whatever a training did
    truncation_mode: str | None = None
    """keep_start or keep_end; None stands for keep_start, unless a run was trained otherwise."""
    assistant_only_loss: bool = False  # of messages
    completion_only_loss: bool | None = None  # of prompts and completions; None masks prompts

    def __post_init__(self) -> None:
        if self.truncation_mode not in (None, *TRUNCATION_MODES):
            known = " or ".join(TRUNCATION_MODES)
            raise UsageError(f"must be {known}", field="truncation_mode", value=self.truncation_mode)
        if self.max_length is not None and self.max_length < 0:
            raise UsageError("must be at least 0", field="max_length", value=self.max_length)

    @property
    def keep(self) -> Keep:
        """The end of a long row that is left."""
        return TRUNCATION_MODES[self.truncation_mode or "keep_start"]

    def as_trained(self, models: Iterable[Any]) -> Rendering:
        """Return this with what is not set as the runs among the models were trained, if all of them agree."""
        trained = {_trained(model) for model in models if isinstance(model, str | Path)} - {None}
        was = trained.pop() if len(trained) == 1 else None
        if was is None:
            return self
        # another template's text may have no place for its system prompt
        keeps_system = self.system_prompt is None and self.template in ("auto", was.template)
        unset = {
            "template": self.template == "auto",
            "system_prompt": keeps_system,
            "max_length": self.max_length is None,
            "truncation_mode": self.truncation_mode is None,
            "assistant_only_loss": not self.assistant_only_loss,
            "completion_only_loss": self.completion_only_loss is None,
        }
        return replace(self, **{name: getattr(was, name) for name, is_unset in unset.items() if is_unset})


def _trained(model: str | Path) -> Rendering | None:
    """Return how a run directory rendered its rows; None for any other model."""
    run = RunDirectory(model)
    config = run.read_config() if run.is_run() else None
    if config is None:
        return None
    packs = bool(config.get("packing"))
    splits = packs and config.get("packing_strategy", "bfd") != "bfd"  # then nothing is cut
    rendering = {
        "template": config.get("template", "auto"),
        "system_prompt": config.get("system_prompt"),
        "max_length": None if splits else config.get("max_length", TRAINED_LENGTH),
        # packing cuts at the end, whatever the mode
        "truncation_mode": "keep_start" if packs else config.get("truncation_mode", "keep_start"),
        "assistant_only_loss": config.get("assistant_only_loss", False),
        "completion_only_loss": config.get("completion_only_loss"),
    }
    return checked(Rendering, rendering, where=str(run.config_path))


def fingerprint_model(model: Any) -> str | None:
    """Return SHA-256 of a folder, or of samples of the parameters in memory; None for a name of the hub."""
    if isinstance(model, str | Path):
        return fingerprint_folder(Path(model)) if Path(model).is_dir() else None
    digest = hashlib.sha256()
    for name, values in model.named_parameters():
        flat = values.detach().flatten()
        some = flat[:: max(1, len(flat) // 64)].float().cpu().numpy()
        digest.update(f"{name}\0{tuple(values.shape)}\0{values.dtype}\0".encode() + some.tobytes())
    return digest.hexdigest()
