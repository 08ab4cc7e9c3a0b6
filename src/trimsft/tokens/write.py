"""`write_token_table`: one pass of a model over rows, one line for each token it is trained on.

    write_token_table("runs/trim", rows, Path("runs/trim/tokens.parquet"), limit=100)

A process holds the table in memory and writes it once, whole. Where several share the rows, each writes a table of its
own, the share `tokens.parquet.0-40` (windows of 256 rows), and whoever ends last makes one of them. A share that is
there is not measured again; one that was interrupted is.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.multiprocessing.spawn import ProcessException, start_processes

from trimsft.data.chat import check_chats
from trimsft.data.encode import Encoder, Example, checked_rows, count_cut, fingerprint_rows, load_tokenizer
from trimsft.data.templates import Rendering, choose_template, resolve_template_name
from trimsft.data.visible import TokenTexts
from trimsft.errors import RunError, TrimSFTError, UsageError, and_more, counted, one_line
from trimsft.models import load_config, load_model
from trimsft.options import from_environment
from trimsft.runs import environment, find_weights, fingerprint_folder
from trimsft.tokens import forward
from trimsft.tokens.categories import categorise
from trimsft.tokens.table import VERSION, as_arrow, read_metadata, read_share, schema_with, shown, write_table

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
    device: str | Sequence[str] = "auto",
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
        device: auto is every GPU there is, a process for each, else cpu; or one, or a list. The model runs in float32
            on the CPU, else in its own dtype. A rank of torchrun or accelerate takes its own GPU and its share.
        limit: only so many rows, the first ones.
        top: so many of the most probable tokens beside each, in the columns top_ids, top_logprobs and top_texts.
        shard: "2/4" does the second of four shares; whoever does the last one makes the table of all.
        overwrite: begin again where the table, or a share of it, is there with other inputs.
        on_progress: called with how many rows are done, and of how many.
        rendering: fields of `Rendering`, such as template="plain", max_length=2048. A run directory is by default
            rendered as it was trained; another model with the template that fits it, and uncut.
    """
    for name, value, least in (("batch_tokens", batch_tokens, 1), ("limit", limit, 1), ("top", top, 0)):
        if value is not None and value < least:
            raise UsageError(f"must be at least {least}", field=name, value=value)
    if not isinstance(model, str | Path):
        if tokenizer is None:
            hint = "give the one that belongs to the model"
            raise UsageError("is needed for a model in memory", field="tokenizer", hint=hint)
        if device != "auto":
            raise UsageError("has no effect on a model in memory", field="device", value=device, hint="leave it out")
        source, devices, dtype = model, ["its own"], str(model.dtype).removeprefix("torch.")
    elif tokenizer is not None:
        problem = f"has no effect on {str(model)!r}, which brings its own"
        raise UsageError(problem, field="tokenizer", hint="leave it out")
    else:
        devices, source = choose_devices(device), find_weights(model)
        dtype = "float32" if devices[0] == "cpu" else "auto"
    given, known = Rendering(**rendering).as_trained([model]), checked_rows(rows, limit)
    encoder, rendered = _make_encoder(source, tokenizer, given, known)
    inputs = {
        "schema": VERSION,
        "model": source if isinstance(source, str) else str(source.config._name_or_path or type(source).__name__),
        "model_sha256": _fingerprint(source),
        "data": {"rows": len(known), "sha256": fingerprint_rows(known)},
        **rendered,
        "top": top,
        "dtype": dtype,
        "window": forward.WINDOW,
    }
    job = _Job(source, encoder, known, Path(out), inputs, batch_tokens)
    share = _share_of(job.windows, shard)
    job.check(overwrite=overwrite)
    if job.out.exists() and not overwrite:
        for path in shares_of(job.out):  # of a process that was killed when it had joined them
            path.unlink(missing_ok=True)
    else:
        ends = [share.start + len(share) * number // len(devices) for number in range(len(devices) + 1)]
        parts = [(range(*ends), name) for ends, name in zip(pairwise(ends), devices, strict=True) if ends[0] < ends[1]]
        job.measure([(part, name) for part, name in parts if not job.has_share(part)], on_progress)
        job.join()
    _warn_of_lengths(job.out)
    return job.out


def shares_of(out: Path) -> dict[Path, range]:
    """Return the shares of a table that wait to be joined, with their windows."""
    shares = {}
    for path in sorted(out.parent.glob(f"{glob.escape(out.name)}.*-*")):
        if match := re.fullmatch(r"\.(\d+)-(\d+)", path.suffix):
            shares[path] = range(int(match[1]), int(match[2]))
    return shares


def choose_devices(device: str | Sequence[str]) -> list[str]:
    """Return what `device` stands for: auto is every GPU that torch sees, for a rank its own; else the CPU."""
    count = torch.cuda.device_count()
    if device == "auto":
        if from_environment("WORLD_SIZE", 1) > 1 and count:
            return [f"cuda:{from_environment('LOCAL_RANK', 0) % count}"]
        return [f"cuda:{number}" for number in range(count)] or ["cpu"]
    names = [device] if isinstance(device, str) else [*device] or [""]
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    known = {"cpu", *([here.type] if here is not None else []), *(f"cuda:{number}" for number in range(count))}
    for name in names:
        if name not in known:
            problem, seen = "must be auto, cpu, cuda or cuda:N, or a list of them", f"torch sees {count} CUDA devices"
            raise UsageError(problem, field="device", value=name, hint=seen)
    return names


def _fingerprint(model: Any) -> str | None:
    """Return SHA-256 of a folder, or of samples of the parameters in memory; None for a name of the hub."""
    if isinstance(model, str):
        return fingerprint_folder(Path(model)) if Path(model).is_dir() else None
    digest = hashlib.sha256()
    for name, values in model.named_parameters():
        flat = values.detach().flatten()
        some = flat[:: max(1, len(flat) // 64)].float().cpu().numpy()
        digest.update(f"{name}\0{tuple(values.shape)}\0{values.dtype}\0".encode() + some.tobytes())
    return digest.hexdigest()


def _share_of(windows: range, shard: str | None) -> range:
    """Return the windows of this process: of a share that is given, or of a rank of torchrun or accelerate launch."""
    number, count = from_environment("RANK", 0) + 1, from_environment("WORLD_SIZE", 1)
    if shard is not None:
        if count > 1:
            problem = f"has no effect on a rank, which takes share {number}/{count}"
            raise UsageError(problem, field="shard", value=shard, hint="leave it out")
        match = re.fullmatch(r"(\d+)/(\d+)", shard)
        number, count = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= count:
            raise UsageError("must be K/N with K from 1 to N, such as 2/4", field="shard", value=shard)
    return windows[len(windows) * (number - 1) // count : len(windows) * number // count]


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


# ---- measuring


@dataclass(frozen=True)
class _Job:
    """Rows to measure; a process for each device has a copy."""

    source: Any  # what `from_pretrained` loads, or a model in memory
    encoder: Encoder
    rows: Sequence[Mapping[str, Any]]
    out: Path
    inputs: Mapping[str, Any]  # what two starts must share to be about the same table
    batch_tokens: int | None

    @property
    def windows(self) -> range:
        return range(-(-len(self.rows) // forward.WINDOW))

    @cached_property
    def config(self) -> Any:
        config = load_config(self.source) if isinstance(self.source, str) else self.source.config
        return config.get_text_config()

    def rows_of(self, part: range) -> Sequence[Mapping[str, Any]]:
        return self.rows[part.start * forward.WINDOW : part.stop * forward.WINDOW]

    def place_of(self, part: range) -> Path:
        """Return the file of some windows: the table itself, or a share of it."""
        return self.out if part == self.windows else self.out.with_name(f"{self.out.name}.{part.start}-{part.stop}")

    def has_share(self, part: range) -> bool:
        path = self.place_of(part)
        return path != self.out and path.exists() and not self.differences(path)

    def differences(self, path: Path) -> str:
        """Return in words with what other inputs a table was made."""
        try:
            was = read_metadata(path)
        except RunError:
            return "it says nothing about how it was made"
        # a name is worth something only where it is all there is to tell a model by
        now = {name: value for name, value in self.inputs.items() if name != "model" or not self.inputs["model_sha256"]}
        changed = [name for name in now if was.get(name) != now[name]]
        return "; ".join(f"{name}: was {shown(was.get(name))}, now {shown(now[name])}" for name in changed)

    def check(self, *, overwrite: bool) -> None:
        """Refuse more alternatives than tokens and, without `overwrite`, a table or a share of other inputs."""
        top, known = self.inputs["top"], getattr(self.config, "vocab_size", None)
        if known is not None and top > known:
            raise UsageError(f"is more than the {known:,} tokens that the model knows", field="top", value=top)
        for path in () if overwrite else (self.out, *shares_of(self.out)):
            if path.exists() and (changed := self.differences(path)):
                problem = f"{path}: is there, made with other inputs ({changed})"
                raise RunError(problem, hint="name another file, or replace this one", remedy=("overwrite", True))

    def measure(self, parts: Sequence[tuple[range, str]], on_progress: Progress | None) -> None:
        """Measure windows on their device, here or in a process for each; all end with the first that fails."""
        total, done = sum(len(self.rows_of(part)) for part, _ in parts), [0] * len(parts)

        def on_rows(number: int, rows: int) -> None:
            done[number] = rows
            if on_progress is not None:
                on_progress(sum(done), total)

        if len(parts) < 2:
            for part, device in parts:
                self.measure_part(part, device, partial(on_rows, 0))
            return
        queue: Any = get_context("spawn").SimpleQueue()
        processes = start_processes(_measure_there, (self, parts, queue), len(parts), join=False, daemon=True)

        def listen() -> None:
            while not queue.empty():
                number, message = queue.get()
                if isinstance(message, Exception):
                    raise message
                on_rows(number, message)

        try:
            while not processes.join(timeout=0.1):
                listen()
            listen()
        except ProcessException as error:
            listen()
            raise TrimSFTError(f"device {parts[error.error_index][1]}: {one_line(error)}") from error
        finally:
            for process in processes.processes:
                process.terminate()

    def measure_part(self, part: range, device: str, on_rows: Callable[[int], None]) -> None:
        """Measure some windows in this process, and write the table, or a share of it."""
        rows, positions = self.rows_of(part), getattr(self.config, "max_position_embeddings", None)
        examples = self.encoder.examples(rows, first=part.start * forward.WINDOW)
        long = [example for example in examples if positions and len(example) > positions]
        if long and not getattr(self.config, "rope_parameters", None):  # there is nothing beyond learned positions
            tokens = f"{len(long[0]):,} tokens{and_more(len(long), 'rows')}"
            problem = f"row {long[0].number} has {tokens}, the model only {positions:,} positions"
            raise UsageError(problem, field="rows", hint="cut them", remedy=("max_length", positions))
        model = self.source
        if isinstance(model, str):
            model = load_model(model, dtype=torch.float32 if device == "cpu" else "auto", device=device)
        reader = forward.Reader(model, top=self.inputs["top"])
        size = self.batch_tokens or BATCH_TOKENS["cuda" if reader.device.type == "cuda" else "cpu"]
        columns = reader.read(examples, size, on_rows)
        on_rows(len(rows))
        if self.encoder.template is not None:
            prompts = self.encoder.template.render([row["problem"] for row in rows[:_PROMPTS]])
        else:
            prompts = self.encoder.tokenizer.batch_decode([one.prompt for one in examples[:_PROMPTS]])
        cut = count_cut(examples)
        metadata = {
            **self.inputs,
            "eos_id": int(self.encoder.tokenizer.eos_token_id),
            "positions": positions,
            "prompts": [prompt[:_PROMPT_LENGTH] for prompt in prompts],
            "versions": environment()["versions"],
            "longest": cut.pop("longest"),
            "cut": cut,
        }
        self._write(part, self._table(columns, examples), metadata)

    def _table(self, columns: dict[str, Any], examples: Sequence[Example]) -> pa.Table:
        """Return the statistics with the columns of which no model is needed."""
        if not columns:
            return schema_with(self.inputs["top"]).empty_table()
        texts, lengths = TokenTexts(self.encoder.tokenizer), [len(example.trained) for example in examples]
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
        if "top_ids" in columns:
            flat = {name: columns[name].ravel() for name in ("top_ids", "top_logprobs")}
            offsets = pa.array(np.arange(len(ids) + 1, dtype=np.int32) * self.inputs["top"])
            for name, values in {**flat, "top_texts": texts.take(flat["top_ids"])}.items():
                columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values))
        return as_arrow(columns)

    def join(self) -> None:
        """Make the table of the shares once all are there."""
        shares, at, paths = {part.start: (part.stop, path) for path, part in shares_of(self.out).items()}, 0, []
        while at in shares:
            at, path = shares[at]
            paths.append(path)
        if at != len(self.windows) or any(self.differences(path) for path in paths):
            return
        try:
            tables, found = zip(*(read_share(path) for path in paths), strict=True)
        except RunError:
            if all(path.exists() for path in paths):
                raise
            return  # another process has joined them meanwhile
        cut = {name: sum(one["cut"][name] for one in found) for name in found[0]["cut"]}
        metadata = {**found[0], "longest": max(one["longest"] for one in found), "cut": cut}
        self._write(self.windows, pa.concat_tables(tables), metadata)

    def _write(self, part: range, table: pa.Table, metadata: Mapping[str, Any]) -> None:
        place = self.place_of(part)
        if place == self.out and not len(table):
            problem, length = "leaves no token to train on in any row", self.inputs["max_length"]
            raise UsageError(problem, field="max_length", value=length, hint="raise it")
        write_table(place, table, {**metadata, "tokens": len(table)})
        for other, windows in shares_of(self.out).items():  # of another division, or of the table itself
            if place == self.out or (other != place and windows.start < part.stop and part.start < windows.stop):
                other.unlink(missing_ok=True)


def _measure_there(number: int, job: _Job, parts: Sequence[tuple[range, str]], queue: Any) -> None:
    """Measure in a process for one device; how far it is, or why it failed, goes to the queue."""
    os.dup2(2, 1)  # libraries that print
    part, device = parts[number]
    # ends with its parent, however that ends: a signal may be ignored here, or come late
    parent: Any = parent_process()
    Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    try:
        job.measure_part(part, device, lambda rows: queue.put((number, rows)))
    except Exception as error:
        is_own = isinstance(error, TrimSFTError)
        queue.put((number, error if is_own else TrimSFTError(f"device {device}: {one_line(error)}")))
        raise SystemExit(1) from error
