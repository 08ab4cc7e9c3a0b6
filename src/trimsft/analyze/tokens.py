"""`write_token_table`: one pass of a model over rows, one line for each token it is trained on.

    write_token_table("runs/trim", rows, Path("runs/trim/tokens.parquet"), limit=100)

Rows are read in windows: within a window batches hold rows of like length, and a window is one row group of the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimsft.analyze.encoding import Example, check_rows, encode_rows
from trimsft.analyze.heads import Look, Reader
from trimsft.analyze.table import writing
from trimsft.analyze.texts import TokenTexts
from trimsft.files import RunError, fingerprint_folder
from trimsft.runs import environment
from trimsft.templates import choose_template, resolve_template_name

_WINDOW = 256
"""Rows that are tokenised, sorted into batches and written together."""
_PROMPTS_KEPT = 20
"""Rows whose prompt the metadata keeps, for whoever shows examples."""


def write_token_table(
    model: str | Path,
    rows: Sequence[Mapping[str, Any]],
    out: Path,
    *,
    template: str = "auto",
    system_prompt: str | None = None,
    max_length: int | None = None,
    batch_tokens: int = 4096,
    device: str = "auto",
    limit: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write `tokens.parquet` (see `trimsft.analyze.table`); returns its path.

    Args:
        model: a model folder, a run directory that has trained one, or a name of the hub.
        rows: with the fields problem and solution; rendered and masked as `trimsft train` does.
        template, system_prompt, max_length: as in training; a completion is cut where training cuts it.
        batch_tokens: most tokens, padding included, that go through the model at once (a longer row goes alone).
        device: auto is cuda where there is one, else cpu; the model runs in float32 on the CPU, else in its own dtype.
        limit: only so many rows, the first ones.
        on_progress: told after each batch how many rows are done, and of how many.
    """
    for name, value in (("batch_tokens", batch_tokens), ("limit", limit), ("max_length", max_length)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: must be 1 or more, got {value}")
    rows = rows if limit is None else rows[:limit]
    check_rows(rows)
    folder = _weights_of(model)
    tokenizer, reader = _load(folder, device)
    prompt = choose_template(template, tokenizer, system_prompt)
    texts = TokenTexts(tokenizer)
    metadata = _metadata(folder, rows, tokenizer, template, system_prompt, max_length)
    metadata["prompts"] = prompt.render([row["problem"] for row in rows[:_PROMPTS_KEPT]])
    done = 0
    with writing(Path(out), metadata) as table:
        for start in range(0, len(rows), _WINDOW):
            window = encode_rows(
                rows[start : start + _WINDOW], tokenizer, prompt, max_length=max_length, first=start
            )
            parts: dict[int, dict[str, Any]] = {}
            for batch in _batches(window, batch_tokens):
                parts |= _columns(batch, _look(reader, batch), texts)
                done += len(batch)
                if on_progress is not None:
                    on_progress(done, len(rows))
            table.append(_joined([parts[example.number] for example in window]))
        if table.tokens == 0:
            raise ValueError(
                f"max_length: {max_length} leaves no token to train on in any of {len(rows)} rows; raise it"
            )
    return Path(out)


def _weights_of(model: str | Path) -> str:
    """Of a run directory, what it trained."""
    folder = Path(model)
    if (folder / "manifest.json").is_file():
        if not (folder / "model").is_dir():
            raise RunError(f"model: {str(model)!r} is a run without a model yet; finish its training first")
        return str(folder / "model")
    if str(model).startswith(("/", "./", "../", "~")) and not folder.is_dir():
        raise RunError(f"model: no such folder: {str(model)!r}")
    return str(model)


def _load(folder: str, device: str) -> tuple[Any, Reader]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.eos_token_id is None:
        raise RunError(f"model: the tokenizer of {folder!r} has no eos_token, which every row ends with")
    dtype = torch.float32 if where == "cpu" else "auto"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(where)
    return tokenizer, Reader(model.eval())


def _metadata(
    folder: str,
    rows: Sequence[Mapping[str, Any]],
    tokenizer: Any,
    template: str,
    system_prompt: str | None,
    max_length: int | None,
) -> dict[str, Any]:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([row["problem"], row["solution"]]).encode())
    return {
        "model": folder,
        "model_sha256": fingerprint_folder(Path(folder)) if Path(folder).is_dir() else None,
        "data": {"rows": len(rows), "sha256": digest.hexdigest()},
        "template": resolve_template_name(template, tokenizer),
        "system_prompt": system_prompt,
        "max_length": max_length,
        "versions": environment()["versions"],
    }


def _batches(examples: Sequence[Example], batch_tokens: int) -> Iterator[list[Example]]:
    """Rows of like length together, each batch within `batch_tokens` when padded."""
    batch: list[Example] = []
    for example in sorted(examples, key=len):  # each new one is the longest so far
        if batch and (len(batch) + 1) * len(example) > batch_tokens:
            yield batch
            batch = []
        batch.append(example)
    if batch:
        yield batch


def _look(reader: Reader, batch: Sequence[Example]) -> Look:
    longest = max(map(len, batch))
    ids = torch.zeros(len(batch), longest, dtype=torch.int64)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for row, example in enumerate(batch):
        ids[row, : len(example)] = torch.tensor(example.prompt + example.completion)
        mask[row, : len(example)] = 1
        labels[row, len(example.prompt) : len(example)] = torch.tensor(example.completion)
    device = reader.head.weight.device
    try:
        return reader.look(ids.to(device), mask.to(device), labels.to(device))
    except FloatingPointError as error:
        rows = ", ".join(str(example.number) for example in batch[:8])
        raise FloatingPointError(f"rows {rows}{', ...' if len(batch) > 8 else ''}: {error}") from error


def _columns(batch: Sequence[Example], look: Look, texts: TokenTexts) -> dict[int, dict[str, Any]]:
    """The lines of each example, by its number."""
    tokens = look.tokens
    assert tokens.entropy is not None
    whole = {
        "nll": _array(tokens.nll),
        "gap": _array(tokens.gap),
        "competitor_id": _array(tokens.competitor).astype(np.int32),
        "entropy": _array(tokens.entropy),
        "rank": _array(look.rank),
        "gradient_norm": _array(look.gradient_norm),
    }
    parts, start = {}, 0
    for example in batch:
        count = len(example.completion)
        part: dict[str, Any] = {name: values[start : start + count] for name, values in whole.items()}
        part["example"] = np.full(count, example.number, dtype=np.int32)
        part["position"] = np.arange(count, dtype=np.int32)
        part["token_id"] = np.array(example.completion, dtype=np.int32)
        part["text"] = [texts[token] for token in example.completion]
        part["competitor_text"] = [texts[token] for token in part["competitor_id"].tolist()]
        parts[example.number] = part
        start += count
    return parts


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name, first in parts[0].items():
        if isinstance(first, list):
            joined[name] = [text for part in parts for text in part[name]]
        else:
            joined[name] = np.concatenate([part[name] for part in parts])
    return joined


def _array(values: Tensor) -> Any:
    return values.cpu().numpy()
