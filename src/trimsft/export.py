"""A trained model as one folder that other programs load: adapters merged, one dtype, tokenizer and chat template.

    export_model("runs/lora", "model", dtype="bfloat16")

    model/
      config.json, generation_config.json           the end-of-sequence token of the tokenizer is among those that stop
      model.safetensors                             or several files and an index
      tokenizer.json, tokenizer_config.json, chat_template.jinja
      README.md                                     the model card of the run, unless it is an adapter's

vLLM and SGLang serve such a folder, llama.cpp's convert_hf_to_gguf.py makes GGUF of it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import TrimSFTError, UsageError, WriteError, one_line
from trimsft.options import check_options, option
from trimsft.runs import find_weights, sync, write_whole
from trimsft.runs.parsing import read_json

DTYPES = ("auto", "bfloat16", "float16", "float32")


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What is exported, where to, and in which numbers."""

    model: str = option(
        argument="MODEL", flags=("--model",), help="A run directory, a model or adapter folder, or a name of the hub."
    )
    out: Path = option(help="The folder to make; it must not be there yet.")
    dtype: str = option(
        "auto", help="Numbers of the weights; auto keeps those of the model, of an adapter its base's.", choices=DTYPES
    )

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Exported:
    """The folder, and what is in it."""

    folder: Path
    parameters: int
    dtype: str
    is_merged: bool
    """Whether an adapter was merged into its base."""

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder)}


def export_model(model: str | Path, out: str | Path, *, dtype: str = "auto") -> Exported:
    """Write a model, an adapter merged into its base, as one folder of safetensors.

    Args:
        model: a run directory, a model or adapter folder, or a name of the hub.
        out: the folder to make.
        dtype: bfloat16, float16, float32, or auto for the dtype that the model is stored in.
    """
    return export(ExportSettings(model=str(model), out=Path(out), dtype=dtype))


def export(settings: ExportSettings) -> Exported:
    """Load, merge, and write beside the folder; it gets its name when all is there."""
    from trimsft.models import adapter_base, load_config, load_merged, require_finite

    out = settings.out.expanduser()
    if out.exists():
        raise UsageError("is there already", field="out", value=str(out), hint="name a folder that is not")
    weights = find_weights(settings.model)
    base = adapter_base(weights)
    config = load_config(weights)
    _refuse_quantised(config, base or settings.model)
    tokenizer = _load_tokenizer(weights, base)
    loaded = load_merged(weights)
    dtype = _dtype(settings.dtype, config)
    loaded = loaded.to(dtype)
    require_finite(loaded, f"{settings.model} in {_name(dtype)}", field="dtype")  # float16 ends at 65504
    _let_stop(loaded.generation_config, tokenizer.eos_token_id)
    with _made_beside(out) as beside:
        loaded.save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        _name_tokenizer_for_all(beside / "tokenizer_config.json")
        card = Path(weights) / "README.md"
        if base is None and card.is_file():  # an adapter's speaks of an adapter
            shutil.copyfile(card, beside / "README.md")
    count = sum(parameter.numel() for parameter in loaded.parameters())
    return Exported(out, count, _name(dtype), is_merged=base is not None)


def _refuse_quantised(config: Any, model: str) -> None:
    if getattr(config, "quantization_config", None) is not None:
        problem = f"{model!r} has quantised weights, to which nothing can be added without loss"
        raise UsageError(problem, field="model", hint="export from the model that they were made of")


def _load_tokenizer(weights: str, base: str | None) -> Any:
    """Load a tokenizer: of an adapter the one beside it, which training puts there, or else its base's."""
    from trimsft.data.encode import load_tokenizer

    if base is None:
        return load_tokenizer(weights)
    try:
        return load_tokenizer(weights)
    except UsageError:
        return load_tokenizer(base)


def _dtype(name: str, config: Any) -> Any:
    import torch

    stored = getattr(config, "dtype", None) or torch.float32
    return stored if name == "auto" else getattr(torch, name)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _let_stop(generation: Any, eos: int | None) -> None:
    """Add the token that training ends solutions with to those that end a generation.

    Beside an adapter no generation config is saved, and its base's may know another token only.
    """
    if eos is None or generation is None:
        return
    known = generation.eos_token_id
    ends = list(known) if isinstance(known, list) else [] if known is None else [known]
    if eos not in ends:
        ends.insert(0, eos)
        generation.eos_token_id = ends if len(ends) > 1 else eos


def _name_tokenizer_for_all(path: Path) -> None:
    """Call the class by a name that transformers 4 has, too: llama.cpp's converter runs with it."""
    settings = read_json(path, dict[str, Any])
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_whole(path, (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode())


def _let_others_read(folder: Path) -> None:
    """Give a folder and its files the permissions of any new ones; tempfile and safetensors leave the owner's alone."""
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)
    for path in folder.iterdir():
        path.chmod(0o666 & ~umask)


@contextmanager
def _made_beside(out: Path) -> Iterator[Path]:
    """Yield a folder to fill, which takes the name `out` on the way out; after a failure nothing is left of it."""
    beside: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        yield beside
        _let_others_read(beside)
        for path in beside.iterdir():
            sync(path)
        beside.rename(out)
        sync(out.parent)
    except BaseException as error:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, Exception) and not isinstance(error, TrimSFTError):
            raise WriteError(f"{out}: cannot be written ({one_line(error)}); nothing is left of it") from error
        raise
