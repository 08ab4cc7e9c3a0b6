"""What of a study is not as the paper did it, for readers who see both numbers beside each other.

>>> from dataclasses import replace
>>> from trimsft.study.scales import SCALES
>>> protocol_note(replace(SCALES["paper"], samples=4, problems=10), ["Qwen2.5-Math-1.5B"])
"Differs from the paper's protocol: first 10 problems of each benchmark, 4 samples."
>>> study_title("average@8 by margin and bandwidth", SCALES["lab"].tiny(), 2)
'Smoke test, its numbers say nothing: average@2 by margin and bandwidth'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from trimsft.study.scales import SCALES, Scale
from trimsft.study.tables.beside_the_paper import paper_model

_PAPER = SCALES["paper"]


def study_title(title: str, scale: Scale, samples: int) -> str:
    """With the samples that were drawn; that of a smoke test says what it is."""
    told = re.sub(r"(?<=@)8\b|(?<=-of-)8\b", str(samples), title)
    return f"Smoke test, its numbers say nothing: {told}" if is_smoke(scale) else told


def is_smoke(scale: Scale) -> bool:
    """Nothing else measures the tokens of so few rows: there is no option for it."""
    return scale.table_rows == scale.tiny().table_rows


def protocol_note(scale: Scale, models: Sequence[str]) -> str:
    """In one sentence, of these models of the scale; empty where nothing is known to differ."""
    told = [text for model in models for text in _of_model(scale, model)]
    told += [*_of_training(scale), *_of_evaluation(scale, _PAPER)]
    return f"Differs from the paper's protocol: {', '.join(dict.fromkeys(told))}." if told else ""


def scale_note(scale: Scale) -> str:
    """The same against the scale as it comes, where the paper has no such model anyway."""
    own = SCALES.get(scale.name, scale)
    told = [] if scale.data == own.data else [_data(scale)]
    told += [f"{scale.rows:,} rows"] if scale.rows not in (None, own.rows) else []
    told += [*_fields(scale, own), *_of_evaluation(scale, own)]
    return f"Differs from the scale {scale.name} as it comes: {', '.join(told)}." if told else ""


def _of_model(scale: Scale, model: str) -> list[str]:
    at, theirs = scale.models.get(model), _PAPER.models.get(paper_model(model) or "")
    if at is None or theirs is None:
        return []
    # a folder of the same name is taken to hold the same weights
    told = [f"{model} is {at.path}"] if at.path and paper_model(at.path) != paper_model(model) else []
    recipe = Path(at.recipe).name
    return told if recipe == theirs.recipe else [*told, f"recipe {recipe}" if recipe else "no recipe"]


def _of_training(scale: Scale) -> list[str]:
    told = [f"training of the scale {scale.name}"] if scale.name != _PAPER.name else []
    told += [f"{scale.rows:,} rows of the lab's task"] if scale.rows is not None else []
    told += [_data(scale)] if scale.data is not None else []
    return [*told, *_fields(scale, SCALES.get(scale.name, _PAPER))]


def _of_evaluation(scale: Scale, other: Scale) -> list[str]:
    told = []
    if scale.problems != other.problems:
        told.append(f"first {scale.problems} problems of each benchmark" if scale.problems else "all problems")
    told += [f"{scale.samples} samples"] if scale.samples != other.samples else []
    wanted = {**dict.fromkeys(other.sampling), **scale.sampling}
    told += [f"{name} {value}" for name, value in wanted.items() if other.sampling.get(name) != value]
    told += [f"generation in {scale.dtype}"] if scale.dtype != other.dtype and scale.dtype != "auto" else []
    if scale.benchmark_data != other.benchmark_data:
        told.append(f"benchmarks of the folder {Path(scale.benchmark_data or '').name}")
    return told


def _fields(scale: Scale, other: Scale) -> list[str]:
    changed = {name: value for name, value in scale.defaults.items() if other.defaults.get(name) != value}
    return [f"{name} {value}" for name, value in changed.items()]


def _data(scale: Scale) -> str:
    data = scale.data or "that of the recipe"
    return f"data {Path(data).name if Path(data).is_absolute() else data}"
