"""A scale with what the user has changed of it: models, data, benchmarks, any field of training.

>>> changed(SCALES["small"], Options(models=("mine=HuggingFaceTB/SmolLM2-360M",), fields=("learning_rate=1e-4",)))
... # doctest: +ELLIPSIS
Scale(name='small', models={'mine': ModelAt(path='HuggingFaceTB/SmolLM2-360M', recipe='smollm2-gsm8k.yaml', ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trimsft.study.cells import OWN, PARAMETERS
from trimsft.study.scales import SCALES as SCALES
from trimsft.study.scales import ModelAt, Scale


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is given beside the name of a scale; None and nothing leave it as it is."""

    models: Sequence[str] = ()
    """NAME of the scale's, to take only those, or NAME=PATH."""
    data: str | None = None
    rows: int | None = None
    """Of the lab's task."""
    benchmarks: Sequence[str] = ()
    benchmark_data: str | None = None
    fields: Sequence[str] = ()
    """NAME=VALUE, of `trimsft train`, for every cell."""
    seeds: int | None = None
    samples: int | None = None
    problems: int | None = None
    max_tokens: int | None = None
    engine: str | None = None
    dtype: str | None = None
    device: str | None = None
    gpus: int | None = None
    keep_weights: bool | None = None
    smoke: bool = False


def changed(scale: Scale, options: Options) -> Scale:
    """The scale as asked for; raises `ValueError` with a message for the user."""
    if options.smoke:
        scale = scale.tiny()
    if options.data is not None and scale.is_lab:
        raise ValueError(
            f"data: {options.data!r} has no effect at scale 'lab', which trains on its own task; take --scale small"
        )
    if options.rows is not None and not scale.is_lab:
        raise ValueError(
            f"rows: are those of the lab's task, and scale {scale.name!r} trains on other data; --set sample="
            f"{options.rows} takes so many of them"
        )
    simple = {
        name: getattr(options, name)
        for name in ("rows", "seeds", "samples", "problems", "engine", "dtype", "device", "keep_weights")
        if getattr(options, name) is not None
    }
    sampling: dict[str, Any] = dict(scale.sampling)
    if options.max_tokens is not None:
        sampling["max_tokens"] = options.max_tokens
    return replace(
        scale,
        models=_models(scale, options),
        data=scale.data if options.data is None else _place("data", options.data),
        benchmarks=tuple(_place("benchmark", name) for name in options.benchmarks) or scale.benchmarks,
        benchmark_data=_folder(options.benchmark_data) or scale.benchmark_data,
        defaults={**scale.defaults, **dict(_field(text) for text in options.fields)},
        sampling=sampling,
        **simple,
    )


def find_scale(name: str) -> Scale:
    if name not in SCALES:
        raise ValueError(f"scale: unknown name {name!r}; known: {', '.join(SCALES)}")
    return SCALES[name]


def _models(scale: Scale, options: Options) -> dict[str, ModelAt]:
    models = dict(scale.models)
    if options.models:
        models = dict(_model(scale, text) for text in options.models)
        if len(models) < len(options.models):
            raise ValueError(f"model: a name is given twice in {', '.join(options.models)}")
    if options.gpus is not None:
        if options.gpus < 1:
            raise ValueError(f"gpus: must be at least 1, got {options.gpus}")
        models = {name: replace(model, gpus=options.gpus) for name, model in models.items()}
    return models


def _model(scale: Scale, text: str) -> tuple[str, ModelAt]:
    """A model of the scale, one of them elsewhere, or another one that is trained as the first."""
    name, equals, path = text.partition("=")
    if not equals:
        return name, scale.at(name)
    like = scale.models.get(name) or next(iter(scale.models.values()))
    return name, replace(like, path=_place("model", path), parameters=None)


def _place(what: str, text: str) -> str:
    """A path made absolute, since workers may have other folders; a name of the hub as it is."""
    if not text:
        raise ValueError(f"{what}: is empty; name a file, a folder or what the hub has")
    path = Path(text).expanduser()
    if path.exists():
        return str(path.resolve())
    if text.startswith(("/", ".", "~")):
        raise ValueError(f"{what}: no such file or folder: {text!r}")
    return text


def _folder(text: str | None) -> str | None:
    if text is not None and not Path(text).is_dir():
        raise ValueError(f"benchmark_data: no such folder: {text!r}")
    return None if text is None else str(Path(text).resolve())


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    name = name.strip().removeprefix("--")
    if not equals or not name:
        raise ValueError(f"set: {text!r} must be NAME=VALUE, such as learning_rate=1e-4")
    if name in (*OWN, *PARAMETERS):
        raise ValueError(
            f"set: {name!r} is what a study compares, and not the same for all of its cells; see trimsft sweep"
        )
    return name, value
