"""`write_token_table`: one pass of a model over rows, one line for each token it is trained on.

    write_token_table("runs/trim", rows, Path("runs/trim/tokens.parquet"), limit=100)

A process holds the table in memory and writes it once, whole. Where several share the rows, each writes a table of its
own, the share `tokens.parquet.2-of-4`, and whoever ends last makes one of them. A share that is there is not measured
again; one that was interrupted is.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from trimsft.data.chat import check_chats
from trimsft.data.encode import Encoder, Example, checked_rows, count_cut, fingerprint_rows, load_tokenizer
from trimsft.data.templates import Rendering, choose_template, resolve_template_name
from trimsft.data.visible import TokenTexts
from trimsft.errors import RunError, UsageError, and_more, counted, one_line
from trimsft.models import load_config, load_model
from trimsft.options import from_environment
from trimsft.runs import environment, find_weights, fingerprint_folder
from trimsft.tokens import forward
from trimsft.tokens.categories import categorise
from trimsft.tokens.table import VERSION, as_arrow, empty_table, read_metadata, read_share, shown, write_table

BATCH_TOKENS = {"cpu": 4096, "cuda": 16_384}
_PROMPTS, _PROMPT_LENGTH = 200, 4000  # that the metadata keeps for readers who show examples, and characters of each

log = logging.getLogger("trimsft")
Progress = Callable[[int, int], None]


def write_token_table(
    model: Any,
    rows: Iterable[Mapping[str, Any]],
    out: Path,
    *,
    tokenizer: Any = None,
    batch_tokens: int | None = None,
    device: str = "auto",
    limit: int | None = None,
    top: int = 0,
    shard: str | None = None,
    overwrite: bool = False,
    on_progress: Progress | None = None,
    **rendering: Any,
) -> Path:
    """Write `tokens.parquet` (see `trimsft.tokens.table`) and return its path.

    Args:
        model: a model folder, a run directory that has trained one, a name of the hub; or a model in memory, with its
            tokenizer, which stays on its device and in its dtype.
        rows: in any form of `trimsft.data.formats`; rendered and masked as `trimsft train` does.
        batch_tokens: most tokens, padding included, that go through the model at once (a longer row goes alone).
        device: auto is a GPU where there is one, else cpu; float32 on the CPU, else the model's own dtype. A rank of
            torchrun or accelerate takes its own GPU and its share of the rows.
        top: so many of the most probable tokens beside each, in the columns top_ids, top_logprobs and top_texts.
        shard: "2/4" does the second of four shares; whoever does the last one makes the table of all.
        overwrite: begin again where the table, or a share of it, is there with other inputs.
        on_progress: called with how many rows are done, and of how many.
        rendering: fields of `Rendering`, such as template="plain", max_length=2048. A run directory is by default
            rendered as it was trained; another model with the template that fits it, and uncut.
    """
    out, is_named = Path(out), isinstance(model, str | Path)
    if is_named == (tokenizer is not None):
        hint = "leave it out" if is_named else "give the one that belongs to the model"
        raise UsageError("belongs to a model in memory, and every such model needs one", field="tokenizer", hint=hint)
    source = find_weights(model) if is_named else model
    device = _choose_device(device) if is_named else str(model.device)
    dtype = str(model.dtype).removeprefix("torch.") if not is_named else "float32" if device == "cpu" else "auto"
    given, known = Rendering(**rendering).as_trained([model]), checked_rows(rows, limit)
    encoder, rendered = _make_encoder(source, tokenizer, given, known)
    # what two starts must share to be about the same table
    inputs = _facts_of(source) | {"data": {"rows": len(known), "sha256": fingerprint_rows(known)}} | rendered
    inputs |= {"schema": VERSION, "top": top, "dtype": dtype, "window": forward.WINDOW}
    number, count = _share(shard)
    place = out if count == 1 else out.with_name(f"{out.name}.{number}-of-{count}")
    for path in () if overwrite else (out, *shares_of(out)):
        if path.exists() and (changed := _differences(path, inputs)):
            problem = f"{path}: is there, made with other inputs ({changed})"
            raise RunError(problem, hint="name another file, or replace this one", remedy=("overwrite", True))
    is_there = place.exists() and not _differences(place, inputs)
    if out.exists() and not overwrite:
        for path in shares_of(out):  # of a process that was killed when it had joined them
            path.unlink(missing_ok=True)
    elif not is_there or place == out:
        # between windows, so that rows meet the same ones in a batch whoever measures them
        windows = math.ceil(len(known) / forward.WINDOW)
        first, end = (forward.WINDOW * math.ceil(windows * share / count) for share in (number - 1, number))
        examples = encoder.examples(known[first:end], first=first) if known[first:end] else []
        facts = inputs | _facts(encoder, known[first:end], examples, source)
        if is_named:
            source = load_model(source, dtype=torch.float32 if device == "cpu" else "auto", device=device)
        columns = _measure(forward.Reader(source, top=top), examples, batch_tokens, on_progress)
        _write(place, _as_table(columns, examples, encoder.tokenizer, top), facts, is_whole=count == 1)
    if count > 1:
        _join(out, count, inputs)
    _warn_of_lengths(out)
    return out


def shares_of(out: Path) -> list[Path]:
    """Return the shares of a table that wait to be joined."""
    names = glob.iglob(f"{glob.escape(str(out))}.*-of-*")
    return sorted(Path(name) for name in names if re.search(r"\.\d+-of-\d+$", name))


def _choose_device(name: str) -> str:
    """Return what `name` stands for: auto is a GPU, for a rank of torchrun its own, else the CPU."""
    if name == "auto":
        count = torch.cuda.device_count()
        return f"cuda:{from_environment('LOCAL_RANK', 0) % count}" if count else "cpu"
    try:
        return str(torch.device(name))
    except RuntimeError as error:
        problem = f"must be auto, cpu, cuda or cuda:N ({one_line(error)})"
        raise UsageError(problem, field="device", value=name) from error


def _share(shard: str | None) -> tuple[int, int]:
    """Return which share this process does, and of how many: as given, or as a rank of torchrun or accelerate."""
    number, count = from_environment("RANK", 0) + 1, from_environment("WORLD_SIZE", 1)
    if shard is not None:
        if count > 1:
            problem = f"has no effect on a rank, which takes share {number}/{count}"
            raise UsageError(problem, field="shard", value=shard, hint="leave it out")
        match = re.fullmatch(r"(\d+)/(\d+)", shard)
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= count:
            raise UsageError("must be K/N with K from 1 to N, such as 2/4", field="shard", value=shard)
    return number, count


def _facts_of(model: Any) -> dict[str, Any]:
    """Return the name of a model and SHA-256 of its folder, or of samples of its parameters; None for a hub's name."""
    if isinstance(model, str):
        return {"model": model, "model_sha256": fingerprint_folder(Path(model)) if Path(model).is_dir() else None}
    digest = hashlib.sha256()
    for name, values in model.named_parameters():
        flat = values.detach().flatten()
        some = flat[:: max(1, len(flat) // 64)].float().cpu().numpy()
        digest.update(f"{name}\0{tuple(values.shape)}\0{values.dtype}\0".encode() + some.tobytes())
    return {"model": str(model.config._name_or_path or type(model).__name__), "model_sha256": digest.hexdigest()}


def _make_encoder(
    source: Any, tokenizer: Any, rendering: Rendering, rows: Sequence[Mapping[str, Any]]
) -> tuple[Encoder, dict[str, Any]]:
    """Return what makes tokens of rows, and how it does for the metadata; refuse rows that it cannot render."""
    tokenizer = load_tokenizer(source) if tokenizer is None else tokenizer
    if tokenizer.eos_token_id is None:
        raise UsageError("its tokenizer has no eos_token, which every row ends with", field="model")
    length = rendering.max_length or None
    rendered = {"max_length": length, "truncation_mode": f"keep_{rendering.keep}" if length else None}
    if "problem" in rows[0]:
        template = choose_template(rendering.template, tokenizer, rendering.system_prompt)
        rendered["template"] = resolve_template_name(rendering.template, tokenizer)
        rendered["system_prompt"] = rendering.system_prompt
        return Encoder(tokenizer, template, length, rendering.keep), rendered
    losses = {name: getattr(rendering, name) for name in ("assistant_only_loss", "completion_only_loss")}
    encoder = Encoder(tokenizer, None, length, rendering.keep, **losses)
    check_chats(rows, encoder.others, "data")
    encoder.examples(rows[:1])
    return encoder, rendered | losses


def _differences(path: Path, inputs: Mapping[str, Any]) -> str:
    """Return in words with what other inputs a table was made."""
    try:
        was = read_metadata(path)
    except RunError:
        return "it says nothing about how it was made"
    # a name is worth something only where it is all there is to tell a model by
    now = {name: value for name, value in inputs.items() if name != "model" or not inputs["model_sha256"]}
    changed = [name for name in now if was.get(name) != now[name]]
    return "; ".join(f"{name}: was {shown(was.get(name))}, now {shown(now[name])}" for name in changed)


def _warn_of_lengths(out: Path) -> None:
    """Tell what a maximum length took, and which rows are longer than the model knows."""
    if not out.exists() or shares_of(out):
        return
    metadata = read_metadata(out)
    cut, longest, positions = metadata["cut"], metadata["longest"], metadata["positions"]
    if cut["rows_cut"]:
        lost = f"; {counted(cut['rows_lost'], 'row')} of them with all of the solution" if cut["rows_lost"] else ""
        taken = f"{counted(cut['rows_cut'], 'row')} by {counted(cut['tokens_cut'], 'token')}{lost}"
        log.warning("%s: a maximum length of %s cuts %s", out, metadata["max_length"], taken)
    if positions and longest > positions:
        log.warning(
            "%s: the longest row has %s tokens, the model knows %s positions, and what it says beyond is worth little; "
            "a maximum length of %s cuts there", out, f"{longest:,}", f"{positions:,}", positions,
        )  # fmt: skip


def _facts(
    encoder: Encoder, rows: Sequence[Mapping[str, Any]], examples: Sequence[Example], source: Any
) -> dict[str, Any]:
    """Return what the metadata tells beside the inputs; refuse what the model cannot read."""
    config = (load_config(source) if isinstance(source, str) else source.config).get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    long = [example for example in examples if positions and len(example) > positions]
    if long and not getattr(config, "rope_parameters", None):  # there is nothing beyond learned positions
        tokens = f"{len(long[0]):,} tokens{and_more(len(long), 'rows')}"
        problem = f"row {long[0].number} has {tokens}, the model only {positions:,} positions"
        raise UsageError(problem, field="rows", hint="cut them", remedy=("max_length", positions))
    if encoder.template is not None:
        prompts = encoder.template.render([row["problem"] for row in rows[:_PROMPTS]])
    else:
        prompts = encoder.tokenizer.batch_decode([example.prompt for example in examples[:_PROMPTS]])
    cut = count_cut(examples)
    return {
        "eos_id": int(encoder.tokenizer.eos_token_id),
        "positions": positions,
        "prompts": [prompt[:_PROMPT_LENGTH] for prompt in prompts],
        "versions": environment()["versions"],
        "longest": cut.pop("longest"),
        "cut": cut,
    }


def _measure(
    reader: forward.Reader, examples: Sequence[Example], batch_tokens: int | None, on_progress: Progress | None
) -> dict[str, Any]:
    on_rows = on_progress or (lambda done, rows: None)
    size = batch_tokens or BATCH_TOKENS["cuda" if reader.device.type == "cuda" else "cpu"]
    columns = reader.read(examples, size, lambda done: on_rows(done, len(examples)))
    on_rows(len(examples), len(examples))
    return columns


def _as_table(columns: dict[str, Any], examples: Sequence[Example], tokenizer: Any, top: int) -> pa.Table:
    """Return the statistics with the columns of which no model is needed."""
    if not columns:
        return empty_table(top)
    texts, lengths = TokenTexts(tokenizer), [len(example.trained) for example in examples]
    ids = np.concatenate([example.labels for example in examples]).astype(np.int32)
    words = texts.take(ids)
    # example by example: a token's category depends on those around it
    ends = pairwise(np.cumsum([0, *lengths]).tolist())
    columns |= {
        "example": np.repeat([example.number for example in examples], lengths).astype(np.int32),
        "position": np.concatenate([one.trained + one.skipped for one in examples]).astype(np.int32),
        "token_id": ids,
        "text": words,
        "competitor_text": texts.take(columns["competitor_id"]),
        "category": np.concatenate([categorise(words[start:end].to_pylist()) for start, end in ends]),
    }
    if top:
        flat = {name: columns[name].ravel() for name in ("top_ids", "top_logprobs")}
        offsets = pa.array(np.arange(len(ids) + 1, dtype=np.int32) * top)
        for name, values in {**flat, "top_texts": texts.take(flat["top_ids"])}.items():
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values))
    return as_arrow(columns)


def _write(place: Path, table: pa.Table, facts: Mapping[str, Any], *, is_whole: bool) -> None:
    if is_whole and not len(table):
        problem, length = "leaves no token to train on in any row", facts["max_length"]
        raise UsageError(problem, field="max_length", value=length, hint="raise it")
    write_table(place, table, {**facts, "tokens": len(table)})
    for share in shares_of(place) if is_whole else ():
        share.unlink(missing_ok=True)


def _join(out: Path, count: int, inputs: Mapping[str, Any]) -> None:
    """Make the table of the shares once all are there."""
    paths = [out.with_name(f"{out.name}.{number}-of-{count}") for number in range(1, count + 1)]
    if not all(path.exists() and not _differences(path, inputs) for path in paths):
        return
    try:
        tables, facts = zip(*(read_share(path) for path in paths), strict=True)
    except RunError:
        if all(path.exists() for path in paths):
            raise
        return  # another process has joined them meanwhile
    cut = {name: sum(one["cut"][name] for one in facts) for name in facts[0]["cut"]}
    whole = {**facts[0], "longest": max(one["longest"] for one in facts), "cut": cut}
    _write(out, pa.concat_tables(tables), whole, is_whole=True)
