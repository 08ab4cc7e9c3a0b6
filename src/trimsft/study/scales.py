"""Scales: the models, data and benchmarks that stand for the paper's.

`scales.json` has what is the same for every cell and differs from the defaults of `Scale`; `recipes/*.yaml` say how
models of the hub are trained. `ScaleOptions` are what a user may change of a scale:

    >>> options = ScaleOptions(scale="small", models=("mine=HuggingFaceTB/SmolLM2-360M",), seeds=3)
    >>> options.to_scale().models["mine"]
    ModelAt(path='HuggingFaceTB/SmolLM2-360M', recipe='smollm2-gsm8k.yaml', gpus=1)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError
from trimsft.options import check_options, option, unknown_name
from trimsft.study.cell import BASE, OWN, PARAMETERS, Cell, refuse_secrets

LAB_BASE = "lab"  # stands for the folder of the shipped base, wherever the package is installed


@dataclass(frozen=True, kw_only=True)
class ModelAt:
    """A model of a scale: where it is and how it is trained."""

    path: str = ""  # a folder or a name of the hub; "lab" is the shipped base, empty what the recipe names
    recipe: str = ""  # a file of `recipes/`, or a path; empty: the scale's own fields are all
    gpus: int = 1  # processes of one training, each with a GPU of its own


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Settings that every cell of a study shares."""

    name: str
    models: Mapping[str, ModelAt]
    benchmarks: tuple[str, ...]
    data: str | None = None  # file or name of the hub to train on; None: the recipe's, at the lab its own task
    rows: int | None = None  # rows of the lab's task; elsewhere the field `sample` says how many
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `trimsft train`, over those of the recipe; a cell's own go over these."""
    compared: tuple[str, ...] = (BASE, "sft", "fsft", "dft", "trim")  # the methods of Table 1
    samples: int = 8
    temperatures: tuple[float, ...] = ()  # further ones, at which `temperature_samples` are drawn
    temperature_samples: int = 4
    limit: int | None = None  # the first problems of each benchmark; None: all
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Differences from the paper's: temperature, top_p, max_tokens."""
    answer_tokens: int = 700  # mean length of an answer, for plans: measured at the lab, assumed elsewhere
    engine: str = "auto"
    dtype: str = "auto"  # number format of generation, which no option changes
    table_rows: int = 100  # rows whose tokens are measured, of the training data of seed 0, in every cell the same
    seeds: int = 1
    device: str = "cuda"
    keep_weights: bool = True
    """False: a cell's weights are deleted once it has been evaluated and its tokens are measured."""
    smoke: bool = False  # whether it is `tiny`, so that its scores say nothing

    @property
    def focus_model(self) -> str:
        """The model of the studies that take one only."""
        return next(iter(self.models))

    @property
    def is_lab(self) -> bool:
        return self.rows is not None

    def at(self, model: str) -> ModelAt:
        """Return where a model is; an unknown one is refused."""
        if model not in self.models:
            raise unknown_name("models", model, self.models)
        return self.models[model]

    def gpus_of(self, cell: Cell) -> int:
        """Return the processes of a cell, each with a GPU where there are some; a base is only evaluated."""
        return 1 if cell.is_base else self.at(cell.model).gpus

    @property
    def benchmark_names(self) -> tuple[str, ...]:
        """Return what the benchmarks are recorded as."""
        from trimsft.evaluate.benchmarks import benchmark_name

        return tuple(map(benchmark_name, self.benchmarks))

    def tiny(self) -> Scale:
        """Return the same in seconds, to see whether it runs; its scores say nothing."""
        few = {"per_device_train_batch_size": 12} if self.is_lab else {"per_device_train_batch_size": 4, "sample": 24}
        return replace(
            self,
            rows=24 if self.is_lab else None,
            defaults={**self.defaults, **few},
            limit=2,
            samples=2,
            temperature_samples=2,
            sampling={**self.sampling, "max_tokens": 12},
            table_rows=2,
            smoke=True,
        )


def _read_scales() -> dict[str, Scale]:
    content = json.loads(files("trimsft.study").joinpath("scales.json").read_text(encoding="utf-8"))
    scales = {}
    for name, record in content.items():
        values: dict[str, Any] = {
            field: tuple(value) if isinstance(value, list) else value for field, value in record.items()
        }
        values["models"] = {model: ModelAt(**at) for model, at in record["models"].items()}
        scales[name] = Scale(name=name, **values)
    return scales


SCALES = _read_scales()
LAB = SCALES["lab"]


# ---- what a user changes


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    """Which scale, and what is changed of it; None and () leave it as it is."""

    scale: str = option(
        "lab", help="Models and data: lab is a CPU and minutes, paper is GPUs and the hub.", choices=tuple(SCALES)
    )
    models: tuple[str, ...] = option(
        (),
        flags=("--model",),
        metavar="NAME",
        help="NAME of a model of the scale, or NAME=PATH of another; repeat it for several.",
    )
    data: str | None = option(None, metavar="DATA", help="File or hub name to train on instead of the scale's data.")
    rows: int | None = option(None, help="Rows to train on.", least=1)
    benchmarks: tuple[str, ...] = option(
        (), flags=("-b", "--benchmark"), metavar="NAME", help="Benchmark, by name or file; repeat it for several."
    )
    fields: tuple[str, ...] = option(
        (),
        flags=("--set",),
        metavar="NAME=VALUE",
        help="NAME=VALUE sets a field of trimsft train for every cell; repeat it for several.",
    )
    seeds: int | None = option(None, help="Seeds of each training (default: 1).", least=1)
    samples: int | None = option(None, help="Samples of each problem (default: 8).", least=1)
    limit: int | None = option(
        None, flags=("--limit", "--problems"), help="Problems of each benchmark, the first ones.", least=1
    )
    max_tokens: int | None = option(None, help="Longest answer in tokens.", least=1)
    engine: str | None = option(None, help="What generates.", choices=("auto", "transformers", "vllm"))
    device: str | None = option(None, help="Where everything runs.", choices=("cpu", "cuda"))
    gpus: str | int | None = option(
        None, metavar="N|NxNAME", help="GPUs of each training; with --dry-run their kind, too, such as 2xA6000."
    )
    keep_weights: bool | None = option(
        None, flags=("--keep-weights/--no-keep-weights",), help="Whether weights stay once a cell is evaluated."
    )
    smoke: bool = option(False, flags=("--smoke",), help="Do next to nothing of everything, to see whether it runs.")

    def __post_init__(self) -> None:
        check_options(self)

    def to_scale(self) -> Scale:
        """Return the scale with these changes; raises `UsageError` for one that has no effect."""
        scale = SCALES[self.scale]
        if self.data is not None:
            scale = replace(scale, data=_absolute("data", self.data), rows=None)
        scale = scale.tiny() if self.smoke else scale
        simple = ("seeds", "samples", "limit", "engine", "device", "keep_weights")
        changes = {name: getattr(self, name) for name in simple if getattr(self, name) is not None}
        defaults = {**scale.defaults, **dict(map(_read_field, self.fields))}
        if self.rows is not None and scale.is_lab:
            changes["rows"] = self.rows
        elif self.rows is not None:
            defaults["sample"] = self.rows
        if self.benchmarks:
            changes["benchmarks"] = tuple(_absolute("benchmarks", name) for name in self.benchmarks)
        if self.max_tokens is not None:
            changes["sampling"] = {**scale.sampling, "max_tokens": self.max_tokens}
        return replace(scale, models=self._models(scale), defaults=defaults, **changes)

    def _models(self, scale: Scale) -> dict[str, ModelAt]:
        """Return the models that are named: of the scale, or elsewhere and trained like the scale's."""
        models = {} if self.models else dict(scale.models)
        for text in self.models:
            name, equals, path = text.partition("=")
            if name in models:
                raise UsageError("a name is there twice", field="models", value=", ".join(self.models))
            like = scale.models.get(name) or next(iter(scale.models.values()))
            models[name] = replace(like, path=_absolute("models", path)) if equals else scale.at(name)
        if self.gpus is None:
            return models
        number = str(self.gpus).partition("x")[0]
        if not number.isdecimal() or int(number) < 1:
            raise UsageError("must be a number, or number and kind such as 2xA6000", field="gpus", value=self.gpus)
        return {name: replace(model, gpus=int(number)) for name, model in models.items()}

    @property
    def gpu_kind(self) -> str | None:
        """Number and kind of the GPUs to plan for, if a kind is named."""
        return str(self.gpus) if "x" in str(self.gpus) else None


def _absolute(field: str, text: str) -> str:
    """Return a path made absolute, since workers may have other folders; a name of the hub as it is."""
    path = Path(text).expanduser()
    if path.exists():
        return str(path.resolve())
    if text.startswith(("/", ".", "~")):
        raise UsageError("no such file or folder", field=field, value=text)
    return text


def _read_field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    name = name.strip().removeprefix("--")
    refuse_secrets([name])
    if not equals or not name:
        raise UsageError("must be NAME=VALUE, such as learning_rate=1e-4", field="fields", value=text)
    if name in (*OWN, *PARAMETERS):
        problem = f"{name!r} is what a study compares, and not the same for all of its cells"
        raise UsageError(problem, field="fields", hint="see trimsft sweep")
    return name, value
