"""The fingerprint of the model that a token table is about."""

import hashlib
from pathlib import Path
from typing import Any

from trimsft.runs import fingerprint_folder


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
