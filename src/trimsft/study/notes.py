"""What a reader of scores must know beside them: what is missing, who gives no answer, what differs from the paper.

>>> from dataclasses import replace
>>> from trimsft.study.scales import SCALES
>>> protocol_note(replace(SCALES["paper"], samples=4, problems=10), ["Qwen2.5-Math-1.5B"])
"Differs from the paper's protocol: first 10 problems of each benchmark, 4 samples."
>>> study_title("average@8 by margin and bandwidth", SCALES["lab"].tiny(), 2)
'Smoke test, its numbers say nothing: average@2 by margin and bandwidth'
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from trimsft.objectives import OBJECTIVES
from trimsft.study.cell import Cell
from trimsft.study.paper_tables import paper_model
from trimsft.study.results import Results, Summaries, in_common, labels_of
from trimsft.study.scales import SCALES, Scale

MANY = 0.05  # the share of samples; below, a missing answer is like a wrong one
MOST_NAMED = 8
_PAPER = SCALES["paper"]


def missing_note(cells: Sequence[Cell]) -> list[str]:
    return [f"Not finished, and so left out: {_first_three(cells)}."] if cells else []


def partial_note(results: Results, benchmarks: Sequence[str]) -> list[str]:
    """Say which cells lack some benchmarks: a score is over the seeds that have it, and so is a mean of scores."""
    lacking = {cell: set(benchmarks) - {score.benchmark for score in results[cell]} for cell in results}
    cells = [cell for cell, names in lacking.items() if names]
    names = [name for name in benchmarks if any(name in lacks for lacks in lacking.values())]
    note = f"Not finished on {', '.join(names)}: {_first_three(cells)}; each score is over the seeds that have it."
    return [note] if cells else []


def _first_three(cells: Sequence[Cell]) -> str:
    more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
    return f"{', '.join(cell.name for cell in cells[:3])}{more}"


def unanswered_note(summaries: Summaries) -> list[str]:
    """Return settings whose samples often end without an answer: what they lack is the format, or an end."""
    shares = {key: summary.interval("no_answer", *in_common([summary])).value for key, summary in summaries.items()}
    many = sorted((setting for setting, share in shares.items() if share >= MANY), key=lambda s: -shares[s])
    if not many:
        return []
    labels = labels_of(summaries)
    named = ", ".join(f"{labels[setting]} {100 * shares[setting]:.0f} %" for setting in many[:MOST_NAMED])
    more = f", and {len(many) - MOST_NAMED} more" if len(many) > MOST_NAMED else ""
    return [f"Samples without an answer, where they are {100 * MANY:.0f} % or more: {named}{more}."]


def undrawn_note(cells: Sequence[Cell], load: Collection[str]) -> list[str]:
    """Return objectives of one's own whose weights are not drawn: reading a folder loads no code."""
    own = dict.fromkeys(cell.objective for cell in cells if not cell.is_base and cell.objective not in OBJECTIVES)
    left = [name for name in own if name not in load]
    again = "trimsft study run objectives" + "".join(f" --objective {name}" for name in left)
    note = f"Weights are not drawn of objectives whose code this command was not told to load: {again}."
    return [note] if left else []


def study_title(title: str, scale: Scale, samples: int) -> str:
    """Return with the samples that were drawn; that of a smoke test says what it is."""
    drawn = re.sub(r"(?<=@)8\b|(?<=-of-)8\b", str(samples), title)
    return f"Smoke test, its numbers say nothing: {drawn}" if scale.smoke else drawn


def protocol_note(scale: Scale, models: Sequence[str]) -> str:
    """Return what of the scale is not as the paper did it, for these models; empty where nothing is known to differ."""
    differences = [text for model in models for text in _model_differences(scale, model)]
    differences += [f"training of the scale {scale.name}"] if scale.name != _PAPER.name else []
    differences += [f"{scale.rows:,} rows of the lab's task"] if scale.rows is not None else []
    differences += [_data(scale)] if scale.data is not None else []
    differences += _field_differences(scale, SCALES.get(scale.name, _PAPER))
    differences += _evaluation_differences(scale, _PAPER)
    return f"Differs from the paper's protocol: {', '.join(dict.fromkeys(differences))}." if differences else ""


def scale_note(scale: Scale) -> str:
    """Return the same against the scale as it comes, where the paper has no such model anyway."""
    own = SCALES.get(scale.name, scale)
    differences = [] if scale.data == own.data else [_data(scale)]
    differences += [f"{scale.rows:,} rows"] if scale.rows not in (None, own.rows) else []
    differences += [*_field_differences(scale, own), *_evaluation_differences(scale, own)]
    return f"Differs from the scale {scale.name} as it comes: {', '.join(differences)}." if differences else ""


def _model_differences(scale: Scale, model: str) -> list[str]:
    at, theirs = scale.models.get(model), _PAPER.models.get(paper_model(model) or "")
    if at is None or theirs is None:
        return []
    # a folder of the same name is taken to hold the same weights
    differences = [f"{model} is {at.path}"] if at.path and paper_model(at.path) != paper_model(model) else []
    recipe = Path(at.recipe).name
    if recipe != theirs.recipe:
        differences.append(f"recipe {recipe}" if recipe else "no recipe")
    return differences


def _evaluation_differences(scale: Scale, other: Scale) -> list[str]:
    differences = []
    if scale.problems != other.problems:
        differences.append(f"first {scale.problems} problems of each benchmark" if scale.problems else "all problems")
    differences += [f"{scale.samples} samples"] if scale.samples != other.samples else []
    wanted = {**dict.fromkeys(other.sampling), **scale.sampling}
    differences += [f"{name} {value}" for name, value in wanted.items() if other.sampling.get(name) != value]
    differences += [f"generation in {scale.dtype}"] if scale.dtype not in (other.dtype, "auto") else []
    if scale.benchmark_data != other.benchmark_data:
        differences.append(f"benchmarks of the folder {Path(scale.benchmark_data or '').name}")
    return differences


def _field_differences(scale: Scale, other: Scale) -> list[str]:
    return [f"{name} {value}" for name, value in scale.defaults.items() if other.defaults.get(name) != value]


def _data(scale: Scale) -> str:
    data = scale.data or "that of the recipe"
    return f"data {Path(data).name if Path(data).is_absolute() else data}"
