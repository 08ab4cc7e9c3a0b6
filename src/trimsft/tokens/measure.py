"""`write_token_table`: one pass of a model over rows, one line for each token it is trained on.

    write_token_table("runs/trim", rows, Path("runs/trim/tokens.parquet"), limit=100)
    write_token_tables({"Base": "Qwen/Qwen2.5-Math-1.5B", "TrimSFT": "runs/trim"}, rows, Path("compared"))

A start that was cut short is continued by the same call; see `trimsft.tokens.parts`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from trimsft.errors import RunError
from trimsft.runs import environment
from trimsft.text.encoding import check_lengths, check_rows
from trimsft.text.templates import choose_template, resolve_template_name
from trimsft.tokens import passes
from trimsft.tokens.heads import Reader
from trimsft.tokens.models import (
    Limits,
    Rendering,
    fingerprint_model,
    limits_of,
    load_model,
    load_tokenizer,
    weights_of,
)
from trimsft.tokens.parts import Parts
from trimsft.tokens.shards import choose_devices, run_on_each, share_of_rank, windows_of
from trimsft.tokens.table import VERSION, read_metadata

BATCH_TOKENS = {"cpu": 4096, "cuda": 16_384}
_PROMPTS_KEPT, _PROMPT_LENGTH, _PROMPTS_SIZE = 200, 4000, 1_900_000
"""Rows whose prompt the metadata keeps for whoever shows examples, characters of each, and bytes in all."""

log = logging.getLogger("trimsft")
Progress = Callable[[int, int], None]


def write_token_table(
    model: Any,
    rows: Sequence[Mapping[str, Any]],
    out: Path,
    *,
    tokenizer: Any = None,
    template: str = "auto",
    system_prompt: str | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    device: str | Sequence[str] = "auto",
    limit: int | None = None,
    top: int = 0,
    shard: str | None = None,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Path:
    """Write `tokens.parquet` (see `trimsft.tokens.table`); returns its path.

    Args:
        model: a model folder, a run directory that has trained one, a name of the hub; or a model in memory, with its
            tokenizer, which stays on its device and in its dtype.
        rows: with the fields problem and solution; rendered and masked as `trimsft train` does.
        template, system_prompt, max_length: as in training, where a completion is cut too. What is left out is for a
            run directory as it was trained; for another model the template fits it, and nothing is cut. A
            `max_length` of 0 cuts nothing of a run's rows either.
        batch_tokens: most tokens, padding included, that go through the model at once (a longer row goes alone).
        device: auto is every GPU there is, a process for each, else cpu; or one, or a list. The model runs in float32
            on the CPU, else in its own dtype. A rank of torchrun or accelerate takes its own GPU and its share.
        limit: only so many rows, the first ones.
        top: so many of the most probable tokens beside each, in the columns top_ids, top_logprobs and top_texts.
        shard: "2/4" does the second of four shares; whoever does the last one makes the table of all.
        overwrite: begin again where the table, or parts of it, are there with other inputs.
        on_progress: told how many rows are done, and of how many.
    """
    _check_numbers(at_least_1={"batch_tokens": batch_tokens, "limit": limit}, max_length=max_length, top=top)
    rows = rows if limit is None else rows[:limit]
    check_rows(rows)
    share = _share(shard)
    count = -(-len(rows) // passes.WINDOW)
    windows, out = windows_of(share, count), Path(out)
    if not windows:  # more ranks than windows
        return out
    in_memory = not isinstance(model, str | Path)
    devices = _devices_for(model, device, tokenizer, is_rank=shard is None and share is not None)
    source = model if in_memory else weights_of(model)
    asked = Rendering(template, system_prompt, max_length)
    inputs = _Inputs.of(source, tokenizer, asked.as_trained([model]))
    inputs.check_room(rows, top=top)
    facts = inputs.facts(rows, top=top, dtype=_dtype_name(model, devices))
    parts = Parts(out, facts, count)
    if not parts.begin(overwrite=overwrite):
        _tell_what_is_odd(out)
        return out
    job = {"model": str(model), "shard": share, **asdict(asked), "top": top, "batch_tokens": batch_tokens}
    try:
        _fill(parts, inputs, rows, windows, devices, job, on_progress)
        is_whole = parts.join(inputs.metadata(rows))
    except BaseException as error:
        parts.leave(refused=isinstance(error, ValueError | TypeError | NotImplementedError))
        raise
    if is_whole:
        _tell_what_is_odd(out)
    return out


def _fill(
    parts: Parts,
    inputs: _Inputs,
    rows: Sequence[Mapping[str, Any]],
    windows: Sequence[int],
    devices: Sequence[str],
    job: Mapping[str, Any],
    on_progress: Progress | None,
) -> None:
    """Do those of the windows that are not done, here or in a process for each device."""
    missing, total = parts.missing(windows), _rows_in(windows, len(rows))
    devices = devices[: max(1, len(missing))]
    if len(devices) > 1:
        run_on_each(devices, {**job, "out": str(parts.out)}, rows, on_progress)
    elif missing:
        with parts.working_on((job["shard"] or "1/1").replace("/", "of")):
            source = inputs.source
            model = load_model(source, devices[0]) if isinstance(source, str) else source
            reader = Reader(model, top=job["top"])
            size = job["batch_tokens"] or BATCH_TOKENS["cuda" if reader.device.type == "cuda" else "cpu"]
            rendering = passes.Rendering(inputs.tokenizer, inputs.template, inputs.max_length, size)
            before = total - _rows_in(missing, len(rows))
            tell = (lambda done: on_progress(before + done, total)) if on_progress else lambda done: None
            with torch.inference_mode(), _on(reader.device):
                passes.Pass(reader, rows, rendering, parts).run(missing, tell)
    elif on_progress is not None:
        on_progress(total, total)


def _tell_what_is_odd(out: Path) -> None:
    """What a maximum length took, and rows beyond what the model knows."""
    told = read_metadata(out)
    cut, longest, positions = told.get("cut", {}), told.get("longest", 0), told.get("positions")
    if cut.get("rows_cut"):
        lost = f"; {counted(cut['rows_lost'], 'row')} of them with all of the solution" if cut["rows_lost"] else ""
        log.warning(
            "%s: max_length=%s cuts %s by %s%s", out, told["max_length"], counted(cut["rows_cut"], "row"),
            counted(cut["tokens_cut"], "token"), lost,
        )  # fmt: skip
    if positions and longest > positions:
        log.warning(
            "%s: the longest row has %s tokens, the model knows %s positions, and what it says beyond is worth little; "
            "max_length=%s cuts there", out, f"{longest:,}", f"{positions:,}", positions,
        )  # fmt: skip


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def write_token_tables(
    models: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], out: Path, **options: Any
) -> dict[str, Path]:
    """A table for each model over the same rows, in a folder of its label; options as for `write_token_table`.

    Models that are no runs are asked as the runs among them were trained, so that they can be compared.
    """
    options = options_for(models.values(), options)
    for label in models:
        if not label.strip() or Path(label).name != label:
            raise ValueError(f"models: {label!r} must be a label that can name a folder")
    return {
        label: write_token_table(model, rows, Path(out) / label / "tokens.parquet", **options)
        for label, model in models.items()
    }


def options_for(models: Iterable[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with which all of these models are asked alike."""
    given = {name: options[name] for name in _RENDERING if name in options}
    return {**options, **asdict(Rendering(**given).as_trained(models))}


_RENDERING = [field.name for field in fields(Rendering)]


@dataclass(frozen=True)
class _Inputs:
    """What a table is made of, before the weights are loaded."""

    source: Any
    tokenizer: Any
    template: Any
    names: Mapping[str, Any]
    limits: Limits

    @classmethod
    def of(cls, source: Any, tokenizer: Any, asked: Rendering) -> _Inputs:
        tokenizer = load_tokenizer(source) if tokenizer is None else tokenizer
        if tokenizer.eos_token_id is None:
            raise RunError(f"model: the tokenizer of {_name(source)!r} has no eos_token, which every row ends with")
        names = {
            "template": resolve_template_name(asked.template, tokenizer),
            "system_prompt": asked.system_prompt,
            "max_length": asked.max_length or None,
        }
        template = choose_template(asked.template, tokenizer, asked.system_prompt)
        return cls(source, tokenizer, template, names, limits_of(source))

    @property
    def max_length(self) -> int | None:
        return self.names["max_length"]  # type: ignore[no-any-return]

    def check_room(self, rows: Sequence[Mapping[str, Any]], *, top: int) -> None:
        """Refuse what does not fit into the model."""
        known = self.limits.vocabulary
        if known is not None and top > known:
            raise ValueError(f"top: {top:,} is more than the {known:,} tokens that the model knows; lower it")
        if self.limits.is_hard:
            limit, positions = self.max_length, self.limits.positions
            check_lengths(rows, self.tokenizer, self.template, max_length=limit, positions=positions or 0)

    def facts(self, rows: Sequence[Mapping[str, Any]], *, top: int, dtype: str) -> dict[str, Any]:
        """By which a second start is known to be about the same table."""
        digest = hashlib.sha256()
        for row in rows:
            digest.update(json.dumps([row["problem"], row["solution"]]).encode())
        return {
            "schema": VERSION,
            "model": _name(self.source),
            "model_sha256": fingerprint_model(self.source),
            "data": {"rows": len(rows), "sha256": digest.hexdigest()},
            **self.names,
            "top": top,
            "dtype": dtype,
            "window": passes.WINDOW,
        }

    def metadata(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What else its readers may want to know."""
        return {
            "model": _name(self.source),
            "eos_id": int(self.tokenizer.eos_token_id),
            "positions": self.limits.positions,
            "prompts": _prompts(self.template.render([row["problem"] for row in rows[:_PROMPTS_KEPT]])),
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


def _check_numbers(*, at_least_1: Mapping[str, int | None], **at_least_0: int | None) -> None:
    for least, numbers in ((1, at_least_1), (0, at_least_0)):
        for name, value in numbers.items():
            if value is not None and value < least:
                raise ValueError(f"{name}: must be {least} or more, got {value}")


def _share(shard: str | None) -> str | None:
    rank = share_of_rank()
    if shard is not None and rank is not None:
        raise ValueError(f"shard: {shard!r} has no effect on a rank, which takes share {rank}; leave it out")
    return shard or rank


def _devices_for(model: Any, device: str | Sequence[str], tokenizer: Any, *, is_rank: bool) -> list[str]:
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise ValueError(f"tokenizer: has no effect on {str(model)!r}, which brings its own; leave it out")
        return choose_devices(device, is_rank=is_rank)
    if tokenizer is None:
        raise ValueError("tokenizer: is needed for a model in memory; give the one that belongs to it")
    if device != "auto":
        raise ValueError(f"device: {device!r} has no effect on a model in memory; leave it out")
    return [str(model.get_output_embeddings().weight.device)]


def _dtype_name(model: Any, devices: Sequence[str]) -> str:
    if not isinstance(model, str | Path):
        return str(model.dtype).removeprefix("torch.")
    return "float32" if devices[0] == "cpu" else "auto"


def _name(source: Any) -> str:
    return source if isinstance(source, str) else str(source.config._name_or_path or type(source).__name__)


def _rows_in(windows: Sequence[int], rows: int) -> int:
    return sum(min(rows, (window + 1) * passes.WINDOW) - window * passes.WINDOW for window in windows)


def _on(device: torch.device) -> Any:
    """Kernels and events belong to the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
