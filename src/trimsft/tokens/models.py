"""The model that a token table is about: a folder, a run directory, a name of the hub, or one in memory."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trimsft.errors import RunError, one_line
from trimsft.runs import RunDirectory
from trimsft.runs.files import fingerprint_folder

TRAINED_LENGTH = 1024
"""The maximum length of a training that names none: TRL's default, which config.yaml leaves out."""


@dataclass(frozen=True)
class Rendering:
    """How rows become tokens, as `trimsft train` names it."""

    template: str = "auto"
    system_prompt: str | None = None
    max_length: int | None = None
    """0: rows are not cut, whatever a training did."""

    def as_trained(self, models: Iterable[Any]) -> Rendering:
        """What is not said here, as the runs among the models were trained, if all of them agree."""
        found = {_trained(Path(model).expanduser()) for model in models if isinstance(model, str | Path)}
        found.discard(None)
        was = found.pop() if len(found) == 1 else None
        if was is None:
            return self
        is_same = self.template in (
            "auto",
            was.template,
        )  # else the text may have no place for its system prompt
        return Rendering(
            template=was.template if self.template == "auto" else self.template,
            system_prompt=was.system_prompt if is_same and self.system_prompt is None else self.system_prompt,
            max_length=was.max_length if self.max_length is None else self.max_length,
        )


def _trained(folder: Path) -> Rendering | None:
    """How a run directory rendered its rows; None for any other model."""
    run = RunDirectory(folder)
    if not (run.manifest_path.is_file() and run.config_path.is_file()):
        return None
    import yaml

    try:
        given = yaml.safe_load(run.config_path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RunError(f"{run.config_path}: not readable as YAML ({_short(error)}); restore it") from error
    if not isinstance(given, dict):
        raise RunError(f"{run.config_path}: holds no settings of a training; restore it")
    splits = given.get("packing") and given.get("packing_strategy", "bfd") != "bfd"  # then nothing is cut
    return Rendering(
        template=str(given.get("template", "auto")),
        system_prompt=given.get("system_prompt"),
        max_length=None if splits else given.get("max_length", TRAINED_LENGTH),
    )


@dataclass(frozen=True)
class Limits:
    """What a model has room for; None where it does not say."""

    vocabulary: int | None = None
    positions: int | None = None
    is_hard: bool = False
    """Whether there is nothing beyond the last position, as with learned ones; else it is what the model knows."""


def limits_of(source: Any) -> Limits:
    """From the configuration, before weights are loaded."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(source) if isinstance(source, str) else source.config
    except (OSError, ValueError):  # an adapter, or nothing that can be loaded, which is said then
        return Limits()
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)  # GPT-2's n_positions answers to it too
    is_hard = bool(positions) and not getattr(text, "rope_parameters", None) and _has_table(source, config)
    return Limits(getattr(text, "vocab_size", None), positions, is_hard)


def _has_table(source: Any, config: Any) -> bool:
    """Whether positions are rows of a table; a model without weights is enough to tell."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config) if isinstance(source, str) else source
    except (ValueError, ImportError):
        return False
    tables = [*model.named_buffers(), *((name, 0) for name, _ in model.named_modules())]
    return any(name.rpartition(".")[2] in _POSITION_TABLES for name, _ in tables)


_POSITION_TABLES = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


def weights_of(model: str | Path) -> str:
    """Of a run directory, what it trained."""
    folder = Path(model).expanduser()
    if (folder / "manifest.json").is_file():
        if not (folder / "model").is_dir():
            raise RunError(f"model: {str(model)!r} is a run without a model yet; finish its training first")
        return str(folder / "model")
    if str(model).startswith(("/", "./", "../", "~")) and not folder.is_dir():
        raise RunError(f"model: no such folder: {str(model)!r}")
    return str(folder) if folder.is_dir() else str(model)


def load_tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise RunError(f"model: cannot load a tokenizer from {name!r}: {_short(error)}") from error
    return tokenizer


def load_model(name: str, device: str) -> Any:
    """In float32 on the CPU, else in the dtype of the checkpoint."""
    from transformers import AutoModelForCausalLM

    dtype = torch.float32 if device == "cpu" else "auto"
    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    except (OSError, ValueError) as error:
        raise RunError(f"model: cannot load {name!r}: {_short(error)}") from error
    return model.to(device).eval()


def fingerprint_model(model: Any) -> str | None:
    """SHA-256 of a folder, or of samples of the parameters in memory; None for a name of the hub."""
    if isinstance(model, str | Path):
        return fingerprint_folder(Path(model)) if Path(model).is_dir() else None
    digest = hashlib.sha256()
    for name, values in model.named_parameters():
        flat = values.detach().flatten()
        some = flat[:: max(1, len(flat) // 64)].float().cpu().numpy()
        digest.update(f"{name}\0{tuple(values.shape)}\0{values.dtype}\0".encode() + some.tobytes())
    return digest.hexdigest()


def _short(error: Exception) -> str:
    return textwrap.shorten(one_line(error), 400, placeholder=" ...")
