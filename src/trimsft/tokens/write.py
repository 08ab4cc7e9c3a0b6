"""`write_token_table`: one pass of a model over rows, one line for each token it is trained on.

    write_token_table("runs/trim", rows, Path("runs/trim/tokens.parquet"), limit=100)

The table is held in memory and written once, whole; what was interrupted begins again.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from trimsft.data.chat import check_chats
from trimsft.data.encode import Encoder, Example, checked_rows, fingerprint_rows, load_tokenizer, report_lengths
from trimsft.data.templates import Rendering, choose_template, resolve_template_name
from trimsft.data.visible import TokenTexts
from trimsft.data.weights import parse_weights, rules_of
from trimsft.errors import RunError, UsageError, counted
from trimsft.models import load_config, load_model
from trimsft.runs import environment, find_weights, fingerprint_folder
from trimsft.tokens import forward
from trimsft.tokens.categories import categorise
from trimsft.tokens.table import VERSION, as_arrow, read_metadata, shown, write_table

BATCH_TOKENS = {"cpu": 4096, "cuda": 16_384}
_PROMPTS, _PROMPT_LENGTH = 200, 4000  # that the metadata keeps, and characters of each

log = logging.getLogger("trimsft")


def write_token_table(
    model: Any,
    rows: Iterable[Mapping[str, Any]],
    out: Path,
    *,
    tokenizer: Any = None,
    batch_tokens: int | None = None,
    device: str = "auto",
    limit: int | None = None,
    overwrite: bool = False,
    on_progress: forward.Progress = lambda done, rows: None,
    **rendering: Any,
) -> Path:
    """Write `tokens.parquet` (see `trimsft.tokens.table`) and return its path.

    Args:
        model: a model folder, a run directory that has trained one, a name of the hub; or a model in memory, with its
            tokenizer, which stays on its device and in its dtype.
        rows: in any form of `trimsft.data.formats`; rendered and masked as `trimsft train` does.
        batch_tokens: most tokens at once, padding included (a longer row goes alone).
        device: auto is a GPU, else cpu; float32 on the CPU, else the model's own dtype.
        rendering: fields of `Rendering`, such as template="plain", max_length=2048. A run directory is by default
            rendered as it was trained; another model with the template that fits it, and uncut.
    """
    out, is_named = Path(out), isinstance(model, str | Path)
    if is_named == (tokenizer is not None):
        raise UsageError("belongs to a model in memory, and every such model needs one", field="tokenizer")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise UsageError("must be auto, cpu, cuda or cuda:N", field="device", value=device)
    source = find_weights(model) if is_named else model
    automatic = "cuda:0" if torch.cuda.is_available() else "cpu"
    device = str(model.device) if not is_named else automatic if device == "auto" else device
    dtype = str(model.dtype).removeprefix("torch.") if not is_named else "float32" if device == "cpu" else "auto"
    given, known = Rendering(**rendering).as_trained([model]), checked_rows(rows, limit)
    encoder, rendered = make_encoder(source, tokenizer, given, known)
    # what two starts must share
    inputs = _fingerprint(source) | {"data": {"rows": len(known), "sha256": fingerprint_rows(known)}} | rendered
    inputs |= {"schema": VERSION, "dtype": dtype, "window": forward.WINDOW}
    changed = _differences(out, inputs) if out.exists() else None
    if changed and not overwrite:
        problem = f"{out}: is there, made with other inputs ({changed})"
        raise RunError(problem, hint="name another file, or replace this one by overwrite")
    if changed != "":
        examples = encoder.examples(known)
        facts = inputs | _facts(encoder, known, examples, source)
        if not any(len(example.trained) for example in examples):
            problem = "leaves no token to train on in any row"
            raise UsageError(problem, field="max_length", value=rendered["max_length"], hint="raise it")
        if is_named:
            source = load_model(source, dtype=torch.float32 if device == "cpu" else "auto", device=device)
        reader = forward.Reader(source)
        size = batch_tokens or BATCH_TOKENS["cuda" if reader.device.type == "cuda" else "cpu"]
        columns = reader.read(examples, size, on_progress)
        on_progress(len(examples), len(examples))
        table = _as_table(columns, examples, TokenTexts(encoder.tokenizer))
        write_table(out, table, {**facts, "tokens": len(table)})
    metadata = read_metadata(out)
    cut, longest, positions = metadata["cut"], metadata["longest"], metadata["positions"]
    if cut["rows_cut"]:
        lost = f"; {counted(cut['rows_lost'], 'row')} of them with all of the solution" if cut["rows_lost"] else ""
        taken = f"{counted(cut['rows_cut'], 'row')} by {counted(cut['tokens_cut'], 'token')}{lost}"
        log.warning("%s: a maximum length of %s cuts %s", out, metadata["max_length"], taken)
    if positions and longest > positions:
        knows = f"the model knows {positions:,} positions; a maximum length of {positions} cuts there"
        log.warning("%s: the longest row has %s tokens, %s", out, f"{longest:,}", knows)
    return out


def make_encoder(
    source: Any, tokenizer: Any, rendering: Rendering, rows: Sequence[Mapping[str, Any]]
) -> tuple[Encoder, dict[str, Any]]:
    """Return what makes tokens of rows, and how for the metadata; refuse rows that it cannot render."""
    tokenizer = load_tokenizer(source) if tokenizer is None else tokenizer
    if tokenizer.eos_token_id is None:
        raise UsageError("its tokenizer has no eos_token, which every row ends with", field="model")
    length, keep = rendering.max_length or None, f"keep_{rendering.keep}" if rendering.max_length else None
    rendered: dict[str, Any] = {"max_length": length, "truncation_mode": keep, "weights": rendering.weights}
    if "problem" in rows[0]:
        template = choose_template(rendering.template, tokenizer, rendering.system_prompt)
        rendered["template"] = resolve_template_name(rendering.template, tokenizer)
        rendered["system_prompt"] = rendering.system_prompt
        rules = parse_weights(rendering.weights)
        return Encoder(tokenizer, rules=rules, template=template, max_length=length, keep=rendering.keep), rendered
    train_on: Any = rendering.train_on or ("assistant" if "messages" in rows[0] else "all")
    rendered |= {"train_on": train_on, "completion_only_loss": rendering.completion_only_loss}
    only, rules = rendering.completion_only_loss, rules_of(rendering.weights, train_on)
    encoder = Encoder(tokenizer, train_on, only, rules, max_length=length, keep=rendering.keep)
    check_chats(rows, encoder, "data")
    encoder.examples(rows[:1])
    return encoder, rendered


def _fingerprint(model: Any) -> dict[str, Any]:
    """Return a model's name, and SHA-256 of its folder or of some parameters; None for a hub's name."""
    if isinstance(model, str):
        return {"model": model, "model_sha256": fingerprint_folder(Path(model)) if Path(model).is_dir() else None}
    digest = hashlib.sha256()
    for name, values in model.named_parameters():
        flat = values.detach().flatten()
        some = flat[:: max(1, len(flat) // 64)].float().cpu().numpy()
        digest.update(f"{name}\0{tuple(values.shape)}\0{values.dtype}\0".encode() + some.tobytes())
    return {"model": str(model.config._name_or_path or type(model).__name__), "model_sha256": digest.hexdigest()}


def _differences(path: Path, inputs: Mapping[str, Any]) -> str:
    """Return in words with what other inputs a table was made."""
    try:
        was = read_metadata(path)
    except RunError:
        return "it says nothing about how it was made"
    # a name counts where it is all there is to tell a model by
    now = {name: value for name, value in inputs.items() if name != "model" or not inputs["model_sha256"]}
    changed = [name for name in now if was.get(name) != now[name]]
    return "; ".join(f"{name}: was {shown(was.get(name))}, now {shown(now[name])}" for name in changed)


def _facts(
    encoder: Encoder, rows: Sequence[Mapping[str, Any]], examples: Sequence[Example], source: Any
) -> dict[str, Any]:
    """Return what the metadata tells beside the inputs."""
    config = (load_config(source) if isinstance(source, str) else source.config).get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    if encoder.template is not None:
        prompts = encoder.template.render([row["problem"] for row in rows[:_PROMPTS]])
    else:
        prompts = encoder.tokenizer.batch_decode([example.prompt for example in examples[:_PROMPTS]])
    lengths, trained = [len(one) + one.cut for one in examples], [len(one.trained) for one in examples]
    report = report_lengths(lengths, trained, encoder.max_length)
    return {
        "eos_id": int(encoder.tokenizer.eos_token_id),
        "positions": positions,
        "prompts": [prompt[:_PROMPT_LENGTH] for prompt in prompts],
        "versions": environment()["versions"],
        "longest": max(map(len, examples)),
        "cut": {"rows_cut": report.truncated, "tokens_cut": report.truncated_tokens, "rows_lost": report.dropped},
    }


def _as_table(columns: dict[str, Any], examples: Sequence[Example], texts: TokenTexts) -> pa.Table:
    """Return the statistics with the columns of which no model is needed."""
    lengths = [len(example.trained) for example in examples]
    ids = np.concatenate([example.labels for example in examples]).astype(np.int32)
    words = texts.take(ids)
    # by example: a category depends on the tokens around
    ends = pairwise(np.cumsum([0, *lengths]).tolist())
    columns |= {
        "example": np.repeat([example.number for example in examples], lengths).astype(np.int32),
        "position": np.concatenate([one.trained + one.skipped for one in examples]).astype(np.int32),
        "token_id": ids,
        "data_weight": np.concatenate([one.weights[one.trained] for one in examples]).astype(np.float32),
        "text": words,
        "competitor_text": texts.take(columns["competitor_id"]),
        "category": np.concatenate([categorise(words[start:end].to_pylist()) for start, end in ends]),
    }
    return as_arrow(columns)
