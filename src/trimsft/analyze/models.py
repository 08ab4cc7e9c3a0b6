"""The model that a token table is about: a folder, a run directory, a name of the hub, or one in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from trimsft.files import RunError, fingerprint_folder


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
        raise RunError(
            f"model: cannot load a tokenizer from {name!r}: {str(error).splitlines()[0]}"
        ) from error
    return tokenizer


def load_model(name: str, device: str) -> Any:
    """In float32 on the CPU, else in the dtype of the checkpoint."""
    from transformers import AutoModelForCausalLM

    dtype = torch.float32 if device == "cpu" else "auto"
    try:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    except (OSError, ValueError) as error:
        raise RunError(f"model: cannot load {name!r}: {str(error).splitlines()[0]}") from error
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
