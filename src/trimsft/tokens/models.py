"""The model that a token table is about: a folder, a run directory, a name of the hub, or one in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trimsft.models import load_config
from trimsft.runs import fingerprint_folder


@dataclass(frozen=True)
class Limits:
    """What a model has room for; None where it does not say."""

    vocabulary: int | None = None
    positions: int | None = None
    is_hard: bool = False
    """Whether there is nothing beyond the last position, as with learned ones; else it is what the model knows."""


def limits_of(source: Any) -> Limits:
    """What the model's configuration says, before weights are loaded."""
    config = load_config(source) if isinstance(source, str) else source.config
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)  # GPT-2's n_positions answers to it too
    is_hard = bool(positions) and not getattr(text, "rope_parameters", None) and _has_table(source, config)
    return Limits(getattr(text, "vocab_size", None), positions, is_hard)


def _has_table(source: Any, config: Any) -> bool:
    """Whether positions are rows of a table; a model without weights is enough to tell."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            own = {"trust_remote_code": False}
            model = AutoModelForCausalLM.from_config(config, **own) if isinstance(source, str) else source
    except Exception:  # whatever keeps it from being built is said when it is loaded
        return False
    tables = [*model.named_buffers(), *((name, 0) for name, _ in model.named_modules())]
    return any(name.rpartition(".")[2] in _POSITION_TABLES for name, _ in tables)


_POSITION_TABLES = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


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
