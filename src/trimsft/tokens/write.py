"""`write_token_table`: one pass of a model over rows, one line for each token it is trained on.

    write_token_table("runs/trim", rows, Path("runs/trim/tokens.parquet"), limit=100)
    write_token_tables({"Base": "Qwen/Qwen2.5-Math-1.5B", "TrimSFT": "runs/trim"}, rows, Path("compared"))

A process holds the table in memory and writes it once, whole. Where several share the rows, each writes a table of its
own, the share `tokens.parquet.0-40` (windows of 256 rows), and whoever ends last makes one of them. A share that is
there is not measured again; one that was interrupted is.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from trimsft.data.chat import check_chats
from trimsft.data.encode import Encoder, Example, checked_rows, count_cut, fingerprint_rows, load_tokenizer
from trimsft.data.templates import Rendering, choose_template, resolve_template_name
from trimsft.data.visible import TokenTexts
from trimsft.errors import RunError, TrimSFTError, UsageError, and_more, counted, one_line
from trimsft.models import load_config, load_model
from trimsft.options import from_environment
from trimsft.runs import environment, find_weights
from trimsft.tokens import forward
from trimsft.tokens.categories import categorise
from trimsft.tokens.models import fingerprint_model
from trimsft.tokens.table import TOP_SCHEMA, VERSION, as_arrow, read_metadata, read_share, schema_with, write_table

BATCH_TOKENS = {"cpu": 4096, "cuda": 16_384}
_INPUTS = (
    "schema", "model", "model_sha256", "data", "template", "system_prompt", "max_length", "truncation_mode",
    "assistant_only_loss", "completion_only_loss", "top", "dtype", "window",
)  # fmt: skip
"""What two starts must share to be about the same table; `model` only where it has no fingerprint."""
_PROMPTS_KEPT, _PROMPT_LENGTH, _PROMPTS_SIZE = 200, 4000, 1_900_000
"""Rows whose prompt the metadata keeps for whoever shows examples, characters of each, and bytes in all."""

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
    is_loaded = not isinstance(model, str | Path)
    if is_loaded and tokenizer is None:
        hint = "give the one that belongs to the model"
        raise UsageError("is needed for a model in memory", field="tokenizer", hint=hint)
    if tokenizer is not None and not is_loaded:
        problem = f"has no effect on {str(model)!r}, which brings its own"
        raise UsageError(problem, field="tokenizer", hint="leave it out")
    if is_loaded and device != "auto":
        raise UsageError("has no effect on a model in memory", field="device", value=device, hint="leave it out")
    given, known = Rendering(**rendering), checked_rows(rows, limit)
    share = _share(shard, -(-len(known) // forward.WINDOW))
    devices = ["its own"] if is_loaded else choose_devices(device)
    source = model if is_loaded else find_weights(model)
    encoder, names = _make_encoder(source, tokenizer, given.as_trained([model]), known)
    dtype = str(model.dtype).removeprefix("torch.") if is_loaded else "float32" if devices[0] == "cpu" else "auto"
    inputs = {
        "schema": VERSION,
        "model": source if isinstance(source, str) else str(source.config._name_or_path or type(source).__name__),
        "model_sha256": fingerprint_model(source),
        "data": {"rows": len(known), "sha256": fingerprint_rows(known)},
        **names,
        "top": top,
        "dtype": dtype,
        "window": forward.WINDOW,
    }
    job = _Job(source, encoder, known, Path(out), inputs, batch_tokens)
    if not job.begin(overwrite=overwrite):
        bounds = [share.start + len(share) * number // len(devices) for number in range(len(devices) + 1)]
        parts = [(range(*ends), name) for ends, name in zip(pairwise(bounds), devices, strict=True)]
        job.measure([(part, name) for part, name in parts if part and not job.has(part)], on_progress)
        job.join()
    job.warn_of_lengths()
    return job.out


def write_token_tables(
    models: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], out: Path, **options: Any
) -> dict[str, Path]:
    """Write a table for each model over the same rows, in a folder of its label; options as for `write_token_table`.

    Models that are no runs are rendered as the runs among them were trained, so that they can be compared.
    """
    rows, options = list(rows), alike(models.values(), options)
    for label in models:
        if not label.strip() or Path(label).name != label:
            raise UsageError("a label must be able to name a folder", field="models", value=label)
    return {
        label: write_token_table(model, rows, Path(out) / label / "tokens.parquet", **options)
        for label, model in models.items()
    }


def alike(models: Iterable[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with which all of these models are given the same prompts."""
    named = {field.name: options[field.name] for field in fields(Rendering) if field.name in options}
    return {**options, **asdict(Rendering(**named).as_trained(models))}


def shares_of(out: Path) -> dict[Path, tuple[int, int]]:
    """Return the shares of a table that wait to be joined, with the first of their windows and the one after them."""
    ends = {
        path: re.fullmatch(r"\.(\d+)-(\d+)", path.suffix) for path in out.parent.glob(f"{glob.escape(out.name)}.*-*")
    }
    return {path: (int(match[1]), int(match[2])) for path, match in sorted(ends.items()) if match}


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
            hint = f"torch sees {count} CUDA devices"
            problem = "must be auto, cpu, cuda or cuda:N, or a list of them"
            raise UsageError(problem, field="device", value=name, hint=hint)
    return names


def _share(shard: str | None, windows: int) -> range:
    """Return the windows of this process: of a share that is given, or of a rank of torchrun or accelerate launch."""
    number, count = from_environment("RANK", 0) + 1, from_environment("WORLD_SIZE", 1)
    if shard is not None:
        if count > 1:
            problem = f"has no effect on a rank, which takes share {number}/{count}"
            raise UsageError(problem, field="shard", value=shard, hint="leave it out")
        first, _, second = shard.partition("/")
        if not (first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second)):
            raise UsageError("must be K/N with K from 1 to N, such as 2/4", field="shard", value=shard)
        number, count = int(first), int(second)
    return range(windows * (number - 1) // count, windows * number // count)


def _make_encoder(
    source: Any, tokenizer: Any, rendering: Rendering, rows: Sequence[Mapping[str, Any]]
) -> tuple[Encoder, dict[str, Any]]:
    """Return what makes tokens of rows, and how the metadata name it; refuse rows that it cannot render."""
    tokenizer = load_tokenizer(source) if tokenizer is None else tokenizer
    if tokenizer.eos_token_id is None:
        raise UsageError("its tokenizer has no eos_token, which every row ends with", field="model")
    template, losses = None, {}
    names: dict[str, Any] = {"max_length": rendering.max_length or None}
    if names["max_length"] and rendering.keep == "end":
        names["truncation_mode"] = "keep_end"
    if "problem" in rows[0]:
        names["template"] = resolve_template_name(rendering.template, tokenizer)
        names["system_prompt"] = rendering.system_prompt
        template = choose_template(rendering.template, tokenizer, rendering.system_prompt)
    else:
        losses = {name: getattr(rendering, name) for name in ("assistant_only_loss", "completion_only_loss")}
        names |= {name: value for name, value in losses.items() if value != getattr(Rendering, name)}
    encoder = Encoder(tokenizer, template, rendering.max_length or None, rendering.keep, **losses)
    if template is None:
        check_chats(rows, encoder.others, "data")
        encoder.examples(rows[:1])
    return encoder, names


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

    def begin(self, *, overwrite: bool) -> bool:
        """Return whether the table is there already; without `overwrite` refuse one, or a share, of other inputs."""
        top, known = self.inputs["top"], getattr(self._config, "vocab_size", None)
        if known is not None and top > known:
            raise UsageError(f"is more than the {known:,} tokens that the model knows", field="top", value=top)
        for path in () if overwrite else (self.out, *shares_of(self.out)):
            if path.exists() and (changed := self._differences(path)):
                problem, hint = (
                    f"{path}: is there, made with other inputs ({changed})",
                    "name another file, or replace this one",
                )
                raise RunError(problem, hint=hint, remedy=("overwrite", True))
        return self.out.exists() and not overwrite

    def has(self, part: range) -> bool:
        """Return whether a share of these windows is there, made of the same inputs."""
        path = self._place(part)
        return path != self.out and path.exists() and not self._differences(path)

    def measure(self, parts: Sequence[tuple[range, str]], on_progress: Progress | None) -> None:
        """Measure windows on their device, here or in a process for each; all end with the first that fails."""
        total, done = sum(len(self._rows_of(part)) for part, _ in parts), [0] * len(parts)

        def on_rows(number: int, rows: int) -> None:
            done[number] = rows
            if on_progress is not None:
                on_progress(sum(done), total)

        if len(parts) == 1:
            self.measure_part(*parts[0], partial(on_rows, 0))
        elif parts:
            queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
            processes = torch.multiprocessing.spawn(
                _measure_there, (self, parts, queue), len(parts), join=False, daemon=True
            )

            def listen() -> None:
                while not queue.empty():
                    number, message = queue.get()
                    if isinstance(message, Exception):
                        raise message
                    on_rows(number, message)

            try:
                while not processes.join(timeout=0.1):
                    listen()
            except (ProcessRaisedException, ProcessExitedException) as error:
                listen()
                raise TrimSFTError(f"device {parts[error.error_index][1]}: {one_line(error)}") from error
            finally:
                for process in processes.processes:
                    process.terminate()
            listen()

    def measure_part(self, part: range, device: str, on_rows: Callable[[int], None]) -> None:
        """Measure some windows in this process, and write the table, or a share of it."""
        rows = self._rows_of(part)
        examples = self.encoder.examples(rows, first=part.start * forward.WINDOW)
        self._check_lengths(examples)
        model = self.source
        if isinstance(model, str):
            model = load_model(model, dtype=torch.float32 if device == "cpu" else "auto", device=device)
        reader = forward.Reader(model, top=self.inputs["top"])
        size = self.batch_tokens or BATCH_TOKENS["cuda" if reader.device.type == "cuda" else "cpu"]
        columns = reader.read(examples, size, on_rows)
        on_rows(len(rows))
        cut = count_cut(examples)
        if self.encoder.template is not None:
            prompts = self.encoder.template.render([row["problem"] for row in rows[:_PROMPTS_KEPT]])
        else:
            prompts = self.encoder.tokenizer.batch_decode([one.prompt for one in examples[:_PROMPTS_KEPT]])
        metadata = {
            **self.inputs,
            "eos_id": int(self.encoder.tokenizer.eos_token_id),
            "positions": getattr(self._config, "max_position_embeddings", None),
            "prompts": _short(prompts),
            "versions": environment()["versions"],
            "longest": cut.pop("longest"),
            "cut": cut,
        }
        self._write(part, self._table(columns, examples), metadata)

    def join(self) -> None:
        """Make the table of the shares once all are there."""
        ends = {start: (end, path) for path, (start, end) in shares_of(self.out).items()}
        at, paths = 0, []
        while at in ends:
            at, path = ends[at]
            paths.append(path)
        if at != len(self._windows):
            return
        try:
            shares = [read_share(path) for path in paths]
        except RunError:
            if all(path.exists() for path in paths):
                raise
            return  # another process has joined them meanwhile
        found = [metadata for _, metadata in shares]
        if any(_differing(metadata, self.inputs) for metadata in found):
            return
        cut = {name: sum(one["cut"][name] for one in found) for name in found[0]["cut"]}
        metadata = {**found[0], "longest": max(one["longest"] for one in found), "cut": cut}
        self._write(self._windows, pa.concat_tables(table for table, _ in shares), metadata)

    def warn_of_lengths(self) -> None:
        """Tell what a maximum length took, and which rows are longer than the model knows."""
        if not self.out.exists() or self._differences(self.out):
            return
        metadata = read_metadata(self.out)
        cut, longest, positions = metadata["cut"], metadata["longest"], metadata["positions"]
        if cut["rows_cut"]:
            lost = f"; {counted(cut['rows_lost'], 'row')} of them with all of the solution" if cut["rows_lost"] else ""
            rows, tokens = counted(cut["rows_cut"], "row"), counted(cut["tokens_cut"], "token")
            log.warning(
                "%s: a maximum length of %s cuts %s by %s%s", self.out, metadata["max_length"], rows, tokens, lost
            )
        if positions and longest > positions:
            log.warning(
                "%s: the longest row has %s tokens, the model knows %s positions, and what it says beyond is worth "
                "little; a maximum length of %s cuts there", self.out, f"{longest:,}", f"{positions:,}", positions,
            )  # fmt: skip

    @property
    def _windows(self) -> range:
        return range(-(-len(self.rows) // forward.WINDOW))

    def _rows_of(self, part: range) -> Sequence[Mapping[str, Any]]:
        return self.rows[part.start * forward.WINDOW : part.stop * forward.WINDOW]

    def _place(self, part: range) -> Path:
        return self.out if part == self._windows else self.out.with_name(f"{self.out.name}.{part.start}-{part.stop}")

    @cached_property
    def _config(self) -> Any:
        config = load_config(self.source) if isinstance(self.source, str) else self.source.config
        return config.get_text_config()

    def _differences(self, path: Path) -> str:
        """Return in words with what other inputs a table was made."""
        try:
            return _differing(read_metadata(path), self.inputs)
        except RunError:
            return "it says nothing about how it was made"

    def _check_lengths(self, examples: Sequence[Example]) -> None:
        """Refuse rows with more tokens than there are learned positions; of others a model only knows less."""
        positions = getattr(self._config, "max_position_embeddings", None)  # GPT-2's n_positions answers to it too
        long = [example for example in examples if positions and len(example) > positions]
        if long and not getattr(self._config, "rope_parameters", None):
            tokens = f"{len(long[0]):,} tokens{and_more(len(long), 'rows')}"
            problem = f"row {long[0].number} has {tokens}, the model only {positions:,} positions"
            raise UsageError(problem, field="rows", hint="cut them", remedy=("max_length", positions))

    def _table(self, columns: dict[str, Any], examples: Sequence[Example]) -> pa.Table:
        """Return the statistics with the columns of which no model is needed."""
        if not columns:
            return schema_with(self.inputs["top"]).empty_table()
        lengths = [len(example.trained) for example in examples]
        columns["example"] = np.repeat([example.number for example in examples], lengths).astype(np.int32)
        places = np.concatenate([example.trained + example.skipped for example in examples])
        columns["position"] = places.astype(np.int32)
        columns["token_id"] = np.concatenate([example.labels for example in examples]).astype(np.int32)
        texts = TokenTexts(self.encoder.tokenizer)
        columns["text"] = texts.take(columns["token_id"])
        columns["competitor_text"] = texts.take(columns["competitor_id"])
        # example by example: a token's category depends on those around it
        ends = pairwise(np.cumsum([0, *lengths]).tolist())
        kinds = [categorise(columns["text"][start:end].to_pylist()) for start, end in ends]
        columns["category"] = np.concatenate(kinds)
        if "top_ids" in columns:
            columns["top_texts"] = texts.take(columns["top_ids"].ravel())
            offsets = pa.array(np.arange(len(places) + 1, dtype=np.int32) * self.inputs["top"])
            for name in TOP_SCHEMA.names:
                flat = columns[name] if name == "top_texts" else pa.array(columns[name].ravel())
                columns[name] = pa.ListArray.from_arrays(offsets, flat)
        return as_arrow(columns)

    def _write(self, part: range, table: pa.Table, metadata: Mapping[str, Any]) -> None:
        place = self._place(part)
        if place == self.out and not len(table):
            problem, length = "leaves no token to train on in any row", self.inputs["max_length"]
            raise UsageError(problem, field="max_length", value=length, hint="raise it")
        write_table(place, table, {**metadata, "tokens": len(table)})
        for other, (start, end) in shares_of(self.out).items():  # of another division, or of the table itself
            if place == self.out or (other != place and start < part.stop and part.start < end):
                other.unlink(missing_ok=True)


def _measure_there(number: int, job: _Job, parts: Sequence[tuple[range, str]], queue: Any) -> None:
    """Measure in a process for one device; how far it is, or why it failed, goes to the queue."""
    os.dup2(2, 1)  # libraries that print
    part, device = parts[number]
    try:
        job.measure_part(part, device, lambda rows: queue.put((number, rows)))
    except TrimSFTError as error:
        queue.put((number, error))
        raise SystemExit(1) from error
    except Exception as error:
        queue.put((number, TrimSFTError(f"device {device}: {one_line(error)}")))
        raise SystemExit(1) from error


def _differing(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in words what differs; the name of a model only where that is all there is to tell it by."""
    names = [name for name in _INPUTS if name != "model" or now.get("model_sha256") is None]
    changed = [name for name in names if was.get(name) != now.get(name)]
    return "; ".join(f"{name}: was {_shown(was.get(name))}, now {_shown(now.get(name))}" for name in changed)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value.get('rows')} rows, {_shown(value.get('sha256'))}"
    return value[:12] if isinstance(value, str) and len(value) == 64 else repr(value)


def _short(prompts: Sequence[str]) -> list[str]:
    """Return the beginnings of the first prompts, which together are no burden to a reader."""
    kept = [prompt[:_PROMPT_LENGTH] for prompt in prompts]
    sizes = np.cumsum([len(json.dumps(prompt)) + 2 for prompt in kept])
    return kept[: int(np.searchsorted(sizes, _PROMPTS_SIZE, side="right"))]
