"""`write_token_table`: one pass of a model over rows, one line for each token it is trained on.

    write_token_table("runs/trim", rows, Path("runs/trim/tokens.parquet"), limit=100)
    write_token_tables({"Base": "Qwen/Qwen2.5-Math-1.5B", "TrimSFT": "runs/trim"}, rows, Path("compared"))

A start that was cut short is continued by the same call; see `trimsft.tokens.parts`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from trimsft.data.chat import check_chats
from trimsft.data.encode import Encoder, checked_rows, fingerprint_rows, load_tokenizer
from trimsft.data.templates import Rendering, choose_template, resolve_template_name
from trimsft.errors import UsageError, and_more, counted
from trimsft.models import load_model
from trimsft.runs import environment, find_weights
from trimsft.tokens import passes
from trimsft.tokens.heads import Reader
from trimsft.tokens.models import Limits, fingerprint_model, limits_of
from trimsft.tokens.parts import Parts
from trimsft.tokens.shards import choose_devices, run_on_each, share_of_rank, windows_of
from trimsft.tokens.table import VERSION, read_metadata

BATCH_TOKENS = {"cpu": 4096, "cuda": 16_384}
_PROMPTS_KEPT, _PROMPT_LENGTH, _PROMPTS_SIZE = 200, 4000, 1_900_000
"""Rows whose prompt the metadata keeps for whoever shows examples, characters of each, and bytes in all."""

log = logging.getLogger("trimsft")
Progress = Callable[[int, int], None]
Rows = list[dict[str, Any]]


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
    """Write `tokens.parquet` (see `trimsft.tokens.table`); returns its path.

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
        overwrite: begin again where the table, or parts of it, are there with other inputs.
        on_progress: called with how many rows are done, and of how many.
        rendering: fields of `Rendering`, such as template="plain", max_length=2048. A run directory is by default
            rendered as it was trained; another model with the template that fits it, and uncut.
    """
    _check_least(1, batch_tokens=batch_tokens, limit=limit)
    _check_least(0, top=top)
    given = Rendering(**rendering)
    checked = checked_rows(rows, limit)
    share = _share(shard)
    count = -(-len(checked) // passes.WINDOW)
    windows, out = windows_of(share, count), Path(out)
    if not windows:  # more ranks than windows
        return out
    devices = _devices_for(model, device, tokenizer, is_rank=shard is None and share is not None)
    source = find_weights(model) if isinstance(model, str | Path) else model
    is_pairs = "problem" in checked[0]
    inputs = _Inputs.of(source, tokenizer, given.as_trained([model]), is_pairs=is_pairs)
    inputs.check_room(checked, top=top)
    parts = Parts(out, inputs.facts(checked, top=top, dtype=_dtype_name(model, devices)), count)
    if not parts.begin(overwrite=overwrite):
        _warn_of_lengths(out)
        return out
    job = {"model": str(model), "shard": share, **asdict(given), "top": top, "batch_tokens": batch_tokens}
    try:
        _fill(parts, inputs, checked, windows, devices, job, on_progress)
        is_whole = parts.join(inputs.metadata(checked))
    except BaseException as error:
        parts.leave(refused=isinstance(error, ValueError))
        raise
    if is_whole:
        _warn_of_lengths(out)
    return out


def write_token_tables(
    models: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], out: Path, **options: Any
) -> dict[str, Path]:
    """A table for each model over the same rows, in a folder of its label; options as for `write_token_table`.

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
    """The options with which all of these models are given the same prompts."""
    named = {field.name: options[field.name] for field in fields(Rendering) if field.name in options}
    return {**options, **asdict(Rendering(**named).as_trained(models))}


def _fill(
    parts: Parts,
    inputs: _Inputs,
    rows: Rows,
    windows: Sequence[int],
    devices: Sequence[str],
    job: Mapping[str, Any],
    on_progress: Progress | None,
) -> None:
    """Do those of the windows that are not done, here or in a process for each device."""
    missing, total = parts.missing(windows), _rows_in(windows, len(rows))
    devices = devices[: max(1, len(missing))]
    if len(devices) > 1:
        run_on_each(devices, {**job, "rows": rows, "out": str(parts.out)}, on_progress)
    elif missing:
        with parts.working_on((job["shard"] or "1/1").replace("/", "of")):
            reader = Reader(_load(inputs.source, devices[0]), top=job["top"])
            size = job["batch_tokens"] or BATCH_TOKENS["cuda" if reader.device.type == "cuda" else "cpu"]
            before = total - _rows_in(missing, len(rows))
            on_rows = (lambda done: on_progress(before + done, total)) if on_progress else lambda done: None
            # kernels and events belong to the current device
            here = torch.cuda.device(reader.device) if reader.device.type == "cuda" else nullcontext()
            with torch.inference_mode(), here:
                passes.Pass(reader, rows, inputs.encoder, parts, batch_tokens=size).run(missing, on_rows)
    elif on_progress is not None:
        on_progress(total, total)


def _load(source: Any, device: str) -> Any:
    """The model: on the CPU in float32, else in the dtype of the checkpoint; one in memory as it is."""
    if not isinstance(source, str):
        return source
    return load_model(source, dtype=torch.float32 if device == "cpu" else "auto", device=device).eval()


def _warn_of_lengths(out: Path) -> None:
    """Say what a maximum length took, and which rows are longer than the model knows."""
    metadata = read_metadata(out)
    cut, longest, positions = metadata.get("cut", {}), metadata.get("longest", 0), metadata.get("positions")
    if cut.get("rows_cut"):
        lost = f"; {counted(cut['rows_lost'], 'row')} of them with all of the solution" if cut["rows_lost"] else ""
        rows, tokens = counted(cut["rows_cut"], "row"), counted(cut["tokens_cut"], "token")
        log.warning("%s: a maximum length of %s cuts %s by %s%s", out, metadata["max_length"], rows, tokens, lost)
    if positions and longest > positions:
        log.warning(
            "%s: the longest row has %s tokens, the model knows %s positions, and what it says beyond is worth little; "
            "a maximum length of %s cuts there", out, f"{longest:,}", f"{positions:,}", positions,
        )  # fmt: skip


@dataclass(frozen=True)
class _Inputs:
    """What a table is made of, before the weights are loaded."""

    source: Any  # what `from_pretrained` loads, or a model in memory
    encoder: Encoder
    names: Mapping[str, Any]  # how rows are rendered, as the metadata say it
    limits: Limits

    @classmethod
    def of(cls, source: Any, tokenizer: Any, rendering: Rendering, *, is_pairs: bool) -> _Inputs:
        tokenizer = load_tokenizer(source) if tokenizer is None else tokenizer
        if tokenizer.eos_token_id is None:
            raise UsageError("its tokenizer has no eos_token, which every row ends with", field="model")
        template = None
        losses: dict[str, Any] = {}
        names: dict[str, Any] = {}
        if is_pairs:
            names["template"] = resolve_template_name(rendering.template, tokenizer)
            names["system_prompt"] = rendering.system_prompt
            template = choose_template(rendering.template, tokenizer, rendering.system_prompt)
        else:
            losses = {name: getattr(rendering, name) for name in ("assistant_only_loss", "completion_only_loss")}
        names["max_length"] = rendering.max_length or None
        if names["max_length"] and rendering.keep == "end":
            names["truncation_mode"] = "keep_end"
        names |= {name: value for name, value in losses.items() if value != getattr(Rendering, name)}
        encoder = Encoder(tokenizer, template, rendering.max_length or None, rendering.keep, **losses)
        return cls(source, encoder, names, limits_of(source))

    def check_room(self, rows: Rows, *, top: int) -> None:
        """Refuse what does not fit into the model, or cannot be rendered for it."""
        if self.encoder.template is None:
            check_chats(rows, self.encoder.others, "data")
            self.encoder.examples(rows[:1])
        known, positions, longest = self.limits.vocabulary, self.limits.positions or 0, self.encoder.max_length
        if known is not None and top > known:
            raise UsageError(f"is more than the {known:,} tokens that the model knows", field="top", value=top)
        if not self.limits.is_hard or (longest is not None and longest <= positions):
            return
        long = [example for example in self.encoder.examples(rows) if len(example) > positions]
        if long:
            tokens = f"{len(long[0]):,} tokens{and_more(len(long), 'rows')}"
            problem = f"row {long[0].number} has {tokens}, the model only {positions:,} positions"
            raise UsageError(problem, field="rows", hint="cut them", remedy=("max_length", positions))

    def facts(self, rows: Rows, *, top: int, dtype: str) -> dict[str, Any]:
        """By which a second start is known to be about the same table."""
        return {
            "schema": VERSION,
            "model": _name(self.source),
            "model_sha256": fingerprint_model(self.source),
            "data": {"rows": len(rows), "sha256": fingerprint_rows(rows)},
            **self.names,
            "top": top,
            "dtype": dtype,
            "window": passes.WINDOW,
        }

    def metadata(self, rows: Rows) -> dict[str, Any]:
        """What else its readers may want to know."""
        some, template = rows[:_PROMPTS_KEPT], self.encoder.template
        if template is not None:
            rendered = template.render([row["problem"] for row in some])
        else:
            rendered = self.encoder.tokenizer.batch_decode([one.prompt for one in self.encoder.examples(some)])
        return {
            "model": _name(self.source),
            "eos_id": int(self.encoder.tokenizer.eos_token_id),
            "positions": self.limits.positions,
            "prompts": _prompts(rendered),
            "versions": environment()["versions"],
        }


def _prompts(rendered: Sequence[str]) -> list[str]:
    kept, size = [], 0
    for prompt in rendered:
        cut = prompt[:_PROMPT_LENGTH]
        size += len(json.dumps(cut)) + 2
        if size > _PROMPTS_SIZE:
            break
        kept.append(cut)
    return kept


def _check_least(least: int, **numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and value < least:
            raise UsageError(f"must be at least {least}", field=name, value=value)


def _share(shard: str | None) -> str | None:
    rank = share_of_rank()
    if shard is not None and rank is not None:
        problem = f"has no effect on a rank, which takes share {rank}"
        raise UsageError(problem, field="shard", value=shard, hint="leave it out")
    return shard or rank


def _devices_for(model: Any, device: str | Sequence[str], tokenizer: Any, *, is_rank: bool) -> list[str]:
    if isinstance(model, str | Path):
        if tokenizer is not None:
            problem = f"has no effect on {str(model)!r}, which brings its own"
            raise UsageError(problem, field="tokenizer", hint="leave it out")
        return choose_devices(device, is_rank=is_rank)
    if tokenizer is None:
        hint = "give the one that belongs to the model"
        raise UsageError("is needed for a model in memory", field="tokenizer", hint=hint)
    if device != "auto":
        raise UsageError("has no effect on a model in memory", field="device", value=device, hint="leave it out")
    return [str(model.get_output_embeddings().weight.device)]


def _dtype_name(model: Any, devices: Sequence[str]) -> str:
    if not isinstance(model, str | Path):
        return str(model.dtype).removeprefix("torch.")
    return "float32" if devices[0] == "cpu" else "auto"


def _name(source: Any) -> str:
    return source if isinstance(source, str) else str(source.config._name_or_path or type(source).__name__)


def _rows_in(windows: Sequence[int], rows: int) -> int:
    return sum(min(rows, (window + 1) * passes.WINDOW) - window * passes.WINDOW for window in windows)
