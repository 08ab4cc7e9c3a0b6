"""How a cell is trained: its model, its data, and the command line of `trimsft train`."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft import lab
from trimsft.lab import FineTuning
from trimsft.runs.files import write_whole
from trimsft.study.cells import Cell
from trimsft.study.places import Place
from trimsft.study.scales import LAB_BASE, ModelAt, Scale, find_recipe

if TYPE_CHECKING:
    from trimsft.train.settings import Settings

ATTENTION = "attn_implementation"


def model_path(at: ModelAt) -> str:
    """The folder of a model, or its name on the hub."""
    if at.path == LAB_BASE:
        return str(lab.base_model_path())
    if at.path:
        return at.path
    return str(_recipe(at)["model_name_or_path"])


def _recipe(at: ModelAt) -> dict[str, Any]:
    import yaml

    fields = yaml.safe_load(find_recipe(at.recipe).read_text(encoding="utf-8")) if at.recipe else {}
    return dict(fields)


def attention_of(scale: Scale, at: ModelAt) -> str | None:
    """What the scale or else the recipe asks for."""
    asked = scale.defaults.get(ATTENTION, _recipe(at).get(ATTENTION))
    return None if asked is None else str(asked)


def is_flash(attention: str | None) -> bool:
    return attention is not None and "flash" in attention


def training_words(place: Place, scale: Scale, cell: Cell) -> list[str]:
    """The command line of `trimsft train` that trains one cell: recipe, then scale, then cell."""
    at = scale.at(cell.model)
    fields: dict[str, Any] = dict(scale.defaults)
    if at.path:
        fields["model_name_or_path"] = model_path(at)
    if scale.is_lab:
        fields["dataset_name"] = place.training_data(cell.seed).resolve()
    elif scale.data is not None:
        fields["dataset_name"] = scale.data
    if scale.device == "cpu":
        fields |= {"use_cpu": True, "bf16": False}
        if ATTENTION not in fields and is_flash(attention_of(scale, at)):
            fields[ATTENTION] = "sdpa"
    fields |= {
        "output_dir": place.run(cell),
        "objective": cell.objective,
        "seed": cell.seed,
        **dict(cell.fields),
    }
    words = ["--config", str(find_recipe(at.recipe))] if at.recipe else []
    return words + [word for name, value in fields.items() for word in (f"--{name}", as_word(value))]


def as_word(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def training_settings(place: Place, scale: Scale, cell: Cell) -> Settings:
    """The same, read as `trimsft train` reads it; of a base, as if it were trained."""
    from trimsft.train.settings import parse

    trained = Cell(model=cell.model, objective="sft") if cell.is_base else cell
    logger, level = logging.getLogger("trimsft"), logging.getLogger("trimsft").level
    logger.setLevel(logging.ERROR)  # what it has to say is said when it trains
    try:
        return parse(training_words(place, scale, trained))
    finally:
        logger.setLevel(level)


# ---- data


def task(scale: Scale, seed: int) -> FineTuning:
    """The lab's task at this scale."""
    assert scale.rows is not None
    return FineTuning(rows=scale.rows, seed=seed)


def write_training_data(place: Place, scale: Scale, seed: int) -> Path:
    """The lab's rows of one seed; whoever needs them first makes them, all of them the same."""
    path = place.training_data(seed)
    if not path.exists():
        lab.write_training(path, task(scale, seed))
    return path


def write_token_rows(place: Place, scale: Scale, cell: Cell) -> tuple[list[dict[str, str]], Mapping[str, Any]]:
    """The rows whose tokens are measured, the same for every cell, and how they are rendered for this one."""
    settings = training_settings(place, scale, cell)
    if not place.token_rows.exists():
        if scale.is_lab:
            write_training_data(place, scale, 0)
        chosen = _choose_rows(settings, scale, place)
        write_whole(place.token_rows, "".join(json.dumps(row) + "\n" for row in chosen).encode())
    rows = [json.loads(line) for line in place.token_rows.read_text(encoding="utf-8").splitlines()]
    rendering = {
        "template": settings.data.template,
        "system_prompt": settings.data.system_prompt,
        "max_length": settings.args.max_length,
    }
    return rows, rendering


def _choose_rows(settings: Settings, scale: Scale, place: Place) -> list[dict[str, str]]:
    """Rows of the training data, drawn once."""
    from dataclasses import replace

    from trimsft.text.rows import load_rows

    data = settings.data
    if scale.is_lab:
        data = replace(data, dataset_name=str(place.training_data(0).resolve()))
    rows = load_rows(data)
    numbers = random.Random("token-rows").sample(range(len(rows)), min(scale.table_rows, len(rows)))
    return [
        {"problem": row[data.problem_column], "solution": row[data.solution_column]}
        for row in (rows[number] for number in sorted(numbers))
    ]
