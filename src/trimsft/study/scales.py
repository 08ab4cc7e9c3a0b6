"""Three scales of one code: which models, data and benchmarks stand for the paper's.

scale   models                      data                    benchmarks       needs
lab     the lab's base              the lab's task          its three tiers  a CPU
small   SmolLM2-135M, or one given  GSM8K, or a file given  gsm8k            one GPU
paper   the six of Table 1          NuminaMath-CoT          the five         GPUs, the hub

A scale says what is the same for every cell; `recipes/*.yaml` say how models of the hub are trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trimsft.evaluate.command import DTYPES
from trimsft.lab import TIERS, FineTuning
from trimsft.study.cells import Cell, check_model_name

LAB_BASE = "lab"
"""Stands for the folder of the shipped base, wherever the package is installed."""
DEVICES = ("cpu", "cuda")
ENGINES = ("auto", "transformers", "vllm")


@dataclass(frozen=True, kw_only=True)
class ModelAt:
    """A model of a scale: where it is and how it is trained."""

    path: str = ""
    """A folder or a name of the hub; "lab" is the shipped base, empty what the recipe names."""
    recipe: str = ""
    """A file of `recipes/`, or a path; empty: the scale's own fields are all."""
    gpus: int = 1
    """Processes of one training, each with a GPU of its own."""
    parameters: float | None = None
    """For the cost, where the model is not at hand."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What every cell of a study has in common."""

    name: str
    models: Mapping[str, ModelAt]
    benchmarks: tuple[str, ...]
    benchmark_data: str | None = None
    """Folder of benchmarks as files; None: the hub, or made on the spot."""
    data: str | None = None
    """File or name of the hub to train on; None: the recipe's, at the lab its own task."""
    rows: int | None = None
    """Of the lab's task; elsewhere the field `sample` says how many."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `trimsft train`, over those of the recipe; a cell's own go over these."""
    samples: int = 8
    problems: int | None = None
    """Of each benchmark, the first ones; None: all."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the paper's: temperature, top_p, max_tokens."""
    engine: str = "auto"
    dtype: str = "auto"
    """Of generation."""
    table_rows: int = 100
    """Rows whose tokens are measured, of the training data of seed 0, in every cell the same."""
    seeds: int = 1
    device: str = "cuda"
    keep_weights: bool = True
    """False: a cell's weights are deleted once it has been evaluated and its tokens are measured."""
    focus: str = ""
    """The model of the studies that take one only; empty, or not there: the first."""

    def __post_init__(self) -> None:
        for name in self.models:
            check_model_name(name)
        if not self.models:
            raise ValueError("models: none; name at least one as NAME=PATH")
        if not self.benchmarks:
            raise ValueError("benchmarks: none; name at least one")
        for name, low in (("samples", 1), ("problems", 1), ("table_rows", 1), ("seeds", 1), ("rows", 1)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
                raise ValueError(f"{name}: must be a whole number of at least {low}, got {value!r}")
        for name, known in (("device", DEVICES), ("engine", ENGINES), ("dtype", DTYPES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: must be {' or '.join(known)}, got {getattr(self, name)!r}")
        object.__setattr__(self, "benchmarks", tuple(self.benchmarks))

    @property
    def focus_model(self) -> str:
        """The model of the studies that take one only."""
        return self.focus if self.focus in self.models else next(iter(self.models))

    @property
    def is_lab(self) -> bool:
        """Whether the lab's own task is trained on."""
        return self.rows is not None

    def at(self, model: str) -> ModelAt:
        if model not in self.models:
            raise ValueError(f"model: unknown name {model!r}; known: {', '.join(self.models)}")
        return self.models[model]

    def gpus_of(self, cell: Cell) -> int:
        """Processes of a cell, and GPUs where it has some: those of its training; a base is only evaluated."""
        return 1 if cell.is_base else self.at(cell.model).gpus

    def tiny(self) -> Scale:
        """The same in seconds, to see whether it runs; its scores say nothing."""
        few = {"per_device_train_batch_size": 12} if self.is_lab else {"per_device_train_batch_size": 4, "sample": 24}
        return replace(
            self,
            rows=24 if self.is_lab else None,
            defaults={**self.defaults, **few},
            problems=2,
            samples=2,
            sampling={**self.sampling, "max_tokens": 12},
            table_rows=2,
        )

    def as_dict(self) -> dict[str, Any]:
        """For config.yaml of a study's folder."""
        record = asdict(self)
        return record | {"benchmarks": list(self.benchmarks)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Scale:
        """What `as_dict` wrote."""
        known = {entry.name for entry in fields(cls)}
        if wrong := sorted(known ^ record.keys()):
            raise ValueError(f"scale: the field {wrong[0]!r} is of another version")
        models = {name: ModelAt(**model) for name, model in record["models"].items()}
        return cls(**{**record, "models": models, "benchmarks": tuple(record["benchmarks"])})


def find_recipe(name: str) -> Path:
    """A file of `recipes/` by its name, beside the package or in it; or any path."""
    if Path(name).is_file():
        return Path(name).resolve()
    package = Path(__file__).parents[1]
    for folder in (package / "recipes", package.parents[1] / "recipes"):
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"recipe: no file {name!r} here nor among the recipes of trimsft")


_TASK = FineTuning()
LAB = Scale(
    name="lab",
    models={"lab": ModelAt(path=LAB_BASE)},
    benchmarks=tuple(TIERS),
    rows=_TASK.rows,
    defaults={
        "num_train_epochs": 1,
        "per_device_train_batch_size": 24,
        "learning_rate": 5e-4,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1,
        "weight_decay": 0.01,
        "adam_beta2": 0.95,
        "max_grad_norm": 1.0,
        "max_length": 256,
        "train_sampling_strategy": "group_by_length",  # a third of the time goes into padding otherwise
        "bf16": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    },
    problems=40,
    sampling={"max_tokens": 128},  # twice what the longest solutions take
    engine="transformers",
    dtype="float32",
    device="cpu",
)
SMALL = Scale(
    name="small",
    models={"smollm2": ModelAt(recipe="smollm2-gsm8k.yaml", parameters=134.5e6)},
    benchmarks=("gsm8k",),
    sampling={"max_tokens": 512},
    defaults={"disable_tqdm": True},
)
PAPER = Scale(
    name="paper",
    models={
        "Llama3.2-3B": ModelAt(recipe="llama-3.2-3b.yaml", gpus=2, parameters=3.21e9),
        "Llama3.1-8B": ModelAt(recipe="llama-3.1-8b.yaml", gpus=2, parameters=8.03e9),
        "DeepSeekMath-7B": ModelAt(recipe="deepseek-math-7b.yaml", gpus=2, parameters=6.91e9),
        "Qwen2.5-Math-1.5B": ModelAt(recipe="qwen2.5-math-1.5b.yaml", gpus=2, parameters=1.54e9),
        "Qwen2.5-Math-7B": ModelAt(recipe="qwen2.5-math-7b.yaml", gpus=2, parameters=7.62e9),
        "Qwen3-4B-Base": ModelAt(recipe="qwen3-4b-base.yaml", gpus=2, parameters=4.02e9),
    },
    benchmarks=("math500", "olympiadbench", "minerva", "amc", "aime24"),
    defaults={"disable_tqdm": True},
    keep_weights=False,
    focus="Qwen2.5-Math-1.5B",
)
SCALES = {scale.name: scale for scale in (LAB, SMALL, PAPER)}
