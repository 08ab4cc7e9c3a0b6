"""`write_token_table`: one pass of a model over rows, one line for each token it is trained on.

    write_token_table("runs/trim", rows, Path("runs/trim/tokens.parquet"), limit=100)
    write_token_tables({"Base": "Qwen/Qwen2.5-Math-1.5B", "TrimSFT": "runs/trim"}, rows, Path("compared"))

A start that was cut short is continued by the same call; see `trimsft.analyze.parts`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trimsft.analyze import passes
from trimsft.analyze.encoding import check_rows
from trimsft.analyze.heads import Reader
from trimsft.analyze.models import fingerprint_model, load_model, load_tokenizer, weights_of
from trimsft.analyze.parts import Parts
from trimsft.analyze.shards import choose_devices, run_on_each, share_of_rank, windows_of
from trimsft.analyze.table import VERSION
from trimsft.files import RunError
from trimsft.runs import environment
from trimsft.templates import choose_template, resolve_template_name

BATCH_TOKENS = {"cpu": 4096, "cuda": 16_384}
_PROMPTS_KEPT, _PROMPT_LENGTH, _PROMPTS_SIZE = 200, 4000, 1_900_000
"""Rows whose prompt the metadata keeps for whoever shows examples, characters of each, and bytes in all."""

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
    """Write `tokens.parquet` (see `trimsft.analyze.table`); returns its path.

    Args:
        model: a model folder, a run directory that has trained one, a name of the hub; or a model in memory, with its
            tokenizer, which stays on its device and in its dtype.
        rows: with the fields problem and solution; rendered and masked as `trimsft train` does.
        template, system_prompt, max_length: as in training; a completion is cut where training cuts it.
        batch_tokens: most tokens, padding included, that go through the model at once (a longer row goes alone).
        device: auto is every GPU there is, a process for each, else cpu; or one, or a list. The model runs in float32
            on the CPU, else in its own dtype. A rank of torchrun or accelerate takes its own GPU and its share.
        limit: only so many rows, the first ones.
        top: so many of the most probable tokens beside each, in the columns top_ids, top_logprobs and top_texts.
        shard: "2/4" does the second of four shares; whoever does the last one makes the table of all.
        overwrite: begin again where the table, or parts of it, are there with other inputs.
        on_progress: told how many rows are done, and of how many.
    """
    _check_numbers(batch_tokens=batch_tokens, limit=limit, max_length=max_length, top=top)
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
    inputs = _Inputs.of(source, tokenizer, template, system_prompt, max_length)
    facts = inputs.facts(rows, top=top, dtype=_dtype_name(model, devices))
    parts = Parts(out, facts, count)
    if not parts.begin(overwrite=overwrite):
        return out
    missing, total = parts.missing(windows), _rows_in(windows, len(rows))
    devices = devices[: max(1, len(missing))]
    if len(devices) > 1:
        job = {"model": str(model), "out": str(out), "shard": share, "template": template, "top": top}
        job |= {"system_prompt": system_prompt, "max_length": max_length, "batch_tokens": batch_tokens}
        run_on_each(devices, job, rows, on_progress)
    elif missing:
        with parts.working_on((share or "1/1").replace("/", "of")):
            reader = Reader(source if in_memory else load_model(source, devices[0]), top=top)
            size = batch_tokens or BATCH_TOKENS["cuda" if reader.device.type == "cuda" else "cpu"]
            rendering = passes.Rendering(inputs.tokenizer, inputs.template, max_length, size)
            before = total - _rows_in(missing, len(rows))
            tell = (lambda done: on_progress(before + done, total)) if on_progress else lambda done: None
            with torch.inference_mode(), _on(reader.device):
                passes.Pass(reader, rows, rendering, parts).run(missing, tell)
    elif on_progress is not None:
        on_progress(total, total)
    parts.join(inputs.metadata(rows))
    return out


def write_token_tables(
    models: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], out: Path, **options: Any
) -> dict[str, Path]:
    """A table for each model over the same rows, in a folder of its label; options as for `write_token_table`."""
    for label in models:
        if not label.strip() or Path(label).name != label:
            raise ValueError(f"models: {label!r} must be a label that can name a folder")
    return {
        label: write_token_table(model, rows, Path(out) / label / "tokens.parquet", **options)
        for label, model in models.items()
    }


@dataclass(frozen=True)
class _Inputs:
    """What a table is made of, before the weights are loaded."""

    source: Any
    tokenizer: Any
    template: Any
    names: Mapping[str, Any]

    @classmethod
    def of(
        cls, source: Any, tokenizer: Any, template: str, system_prompt: str | None, max_length: int | None
    ) -> _Inputs:
        tokenizer = load_tokenizer(source) if tokenizer is None else tokenizer
        if tokenizer.eos_token_id is None:
            raise RunError(
                f"model: the tokenizer of {_name(source)!r} has no eos_token, which every row ends with"
            )
        names = {
            "template": resolve_template_name(template, tokenizer),
            "system_prompt": system_prompt,
            "max_length": max_length,
        }
        return cls(source, tokenizer, choose_template(template, tokenizer, system_prompt), names)

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


def _check_numbers(top: int, **numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ValueError(f"{name}: must be 1 or more, got {value}")
    if top < 0:
        raise ValueError(f"top: must be 0 or more, got {top}")


def _share(shard: str | None) -> str | None:
    rank = share_of_rank()
    if shard is not None and rank is not None:
        raise ValueError(f"shard: {shard!r} has no effect on a rank, which takes share {rank}; leave it out")
    return shard or rank


def _devices_for(model: Any, device: str | Sequence[str], tokenizer: Any, *, is_rank: bool) -> list[str]:
    if isinstance(model, str | Path):
        if tokenizer is not None:
            raise ValueError(
                f"tokenizer: has no effect on {str(model)!r}, which brings its own; leave it out"
            )
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
