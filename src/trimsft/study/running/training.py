"""How a cell is trained: its model, its fields of `trimsft train` and its data."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trimsft import lab
from trimsft.data.encode import checked_rows
from trimsft.data.load import read_file
from trimsft.errors import UsageError, one_line
from trimsft.lab import FineTuning
from trimsft.runs.files import write_whole
from trimsft.runs.parsing import checked, parse_yaml
from trimsft.shipped import find_recipe
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.scales import LAB_BASE, ModelAt, Scale

if TYPE_CHECKING:
    from trimsft.train.settings import Settings

ATTENTION = "attn_implementation"


def model_path(at: ModelAt) -> str:
    """The folder of a model, or its name on the hub."""
    if at.path == LAB_BASE:
        return str(lab.base_model_path())
    path = at.path or _recipe(at).get("model_name_or_path")
    if not isinstance(path, str):
        raise UsageError("names no model_name_or_path", field="recipe", value=at.recipe)
    return path


def _recipe(at: ModelAt) -> dict[str, Any]:
    if not at.recipe:
        return {}
    path = find_recipe(at.recipe)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not readable as YAML ({one_line(error)})", field="recipe") from error
    return checked(dict[str, Any], content, where=str(path), hint="name a file of settings of trimsft train")


def wants_flash(scale: Scale, at: ModelAt) -> bool:
    """Whether the scale or else the recipe asks for flash attention."""
    return "flash" in str(scale.defaults.get(ATTENTION, _recipe(at).get(ATTENTION)))


def training_fields(folder: StudyFolder, scale: Scale, cell: Cell) -> dict[str, Any]:
    """The fields of `trimsft train` that train one cell: recipe, then scale, then cell."""
    at = scale.at(cell.model)
    fields: dict[str, Any] = {"config": str(find_recipe(at.recipe))} if at.recipe else {}
    fields |= scale.defaults
    if at.path:
        fields["model_name_or_path"] = model_path(at)
    if scale.is_lab:
        fields["dataset_name"] = str(folder.training_data(cell.seed).resolve())
    elif scale.data is not None:
        fields["dataset_name"] = scale.data
    if scale.device == "cpu":
        fields |= {"use_cpu": True, "bf16": False}
        if ATTENTION not in fields and wants_flash(scale, at):
            fields[ATTENTION] = "sdpa"
    own = {"output_dir": str(folder.run(cell)), "objective": cell.objective, "seed": cell.seed}
    return fields | own | dict(cell.fields)


def training_settings(folder: StudyFolder, scale: Scale, cell: Cell) -> Settings:
    """The settings of a cell's training, of a base as if it were trained; what they warn of is said in training."""
    from trimsft.train.settings import make_settings

    trained = Cell(model=cell.model, objective="sft") if cell.is_base else cell
    logger = logging.getLogger("trimsft")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        return make_settings(training_fields(folder, scale, trained))
    finally:
        logger.setLevel(level)


def updates_of(scale: Scale, cell: Cell) -> int:
    """Updates of one training; 0 where only the training knows."""
    if scale.rows is None or cell.is_base:
        return 0
    fields = {**scale.defaults, **dict(cell.fields)}
    if int(fields.get("gradient_accumulation_steps", 1)) > 1 or "max_steps" in fields:
        return 0
    batch = int(fields["per_device_train_batch_size"]) * scale.gpus_of(cell)
    return int(-(-scale.rows // batch) * float(fields["num_train_epochs"]))


def task(scale: Scale, seed: int) -> FineTuning:
    assert scale.rows is not None
    return FineTuning(rows=scale.rows, seed=seed)


def write_training_data(folder: StudyFolder, scale: Scale, seed: int) -> None:
    """Make the lab's rows of one seed where they are missing; whoever needs them first makes the same."""
    path = folder.training_data(seed)
    if scale.is_lab and not path.exists():
        lab.write_training(path, task(scale, seed))


def write_token_rows(folder: StudyFolder, scale: Scale, cell: Cell) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """The rows whose tokens are measured, the same for every cell, and how they are rendered for this one."""
    settings = training_settings(folder, scale, cell)
    if not folder.token_rows.exists():
        write_training_data(folder, scale, 0)
        rows = _choose_rows(settings, scale, folder)
        write_whole(folder.token_rows, "".join(json.dumps(row) + "\n" for row in rows).encode())
    written = read_file(folder.token_rows)
    rendering = {
        "template": settings.data.template,
        "system_prompt": settings.data.system_prompt,
        "max_length": settings.args.max_length,
        "truncation_mode": settings.args.truncation_mode,
        "assistant_only_loss": settings.args.assistant_only_loss,
        "completion_only_loss": settings.args.completion_only_loss,
    }
    return checked_rows(written.records), rendering


def _choose_rows(settings: Settings, scale: Scale, folder: StudyFolder) -> list[dict[str, Any]]:
    """Rows of the training data, drawn once."""
    from trimsft.data.load import load_rows, plain_rows

    data = settings.data
    if scale.is_lab:
        data = replace(data, dataset_name=str(folder.training_data(0).resolve()))
    rows = plain_rows(load_rows(data), data)
    numbers = random.Random("token-rows").sample(range(len(rows)), min(scale.table_rows, len(rows)))
    return [rows[number] for number in sorted(numbers)]
