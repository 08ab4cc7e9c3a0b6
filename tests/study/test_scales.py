"""Scales: what is written down comes back, and options change what they name."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimsft.errors import UsageError
from trimsft.lab import TIERS, FineTuning
from trimsft.runs.files import find_recipe
from trimsft.study import paper
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder, training_settings
from trimsft.study.scales import LAB, SCALES, Scale, ScaleOptions
from trimsft.study.studies import STUDIES

PAPER = SCALES["paper"]
SMALL = SCALES["small"]


@pytest.mark.parametrize("name", SCALES)
def test_a_scale_comes_back_from_yaml(name: str, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    for _ in range(2):  # once more is no other one
        folder.settle(SCALES[name], [])
    assert folder.read_scale() == SCALES[name]
    assert (LAB.benchmarks, LAB.rows) == (tuple(TIERS), FineTuning().rows)


def test_a_paper_cell_is_its_recipe_and_an_objective(tmp_path: Path) -> None:
    cell = Cell(model="Qwen2.5-Math-1.5B", objective="trim-e", fields=(("margin", 3.0), ("bandwidth", 1.0)), seed=1)
    settings = training_settings(StudyFolder(tmp_path), PAPER, cell)
    recipe = yaml.safe_load(find_recipe("qwen2.5-math-1.5b.yaml").read_text())
    assert settings.model.model_name_or_path == recipe["model_name_or_path"]
    assert (settings.args.objective, settings.args.margin, settings.args.bandwidth) == ("trim-e", 3.0, 1.0)
    assert settings.args.global_batch == 24 and settings.data.sample == 20_000
    assert settings.args.learning_rate == recipe["learning_rate"] and settings.args.seed == 1
    assert Path(settings.args.output_dir) == tmp_path / "runs" / cell.name


def test_options_name_models_data_and_fields(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.touch()
    options = ScaleOptions(
        scale="small", models=("mine=.", "smollm2"), data=str(data), fields=("learning_rate=1e-4",), gpus="2xA6000"
    )
    scale = options.to_scale()
    assert scale.models["mine"] == replace(SMALL.models["smollm2"], path=str(Path().resolve()), gpus=2)
    assert scale.models["smollm2"] == replace(SMALL.models["smollm2"], gpus=2) and options.gpu_kind == "2xA6000"
    with pytest.raises(UsageError, match="gpus: must be a number, or number and kind"):
        ScaleOptions(gpus="A6000").to_scale()
    assert scale.data == str(data)
    settings = training_settings(StudyFolder(tmp_path), scale, Cell(model="mine", objective="sft"))
    assert settings.args.learning_rate == 1e-4, "a word becomes what the field is"
    assert ScaleOptions().to_scale() == LAB and ScaleOptions(rows=7).to_scale() == replace(LAB, rows=7)
    own = ScaleOptions(data=str(data), rows=9).to_scale()  # the lab's base on other data
    assert (own.data, own.rows, own.defaults["sample"]) == (str(data), None, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ("a=./nowhere",)}, "models: no such file or folder, got './nowhere'"),
        ({"models": ("a=x", "a=y")}, "models: a name is there twice"),
        ({"fields": ("margin=2",)}, "fields: 'margin' is what a study compares"),
        ({"fields": ("learning_rate",)}, "fields: must be NAME=VALUE"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        ScaleOptions(**options).to_scale()


# ---- studies


def bands(name: str, objective: str = "trim", scale: Scale = LAB) -> set[tuple[float, float]]:
    cells = STUDIES[name].cells(scale)
    return {(cell.get("margin"), cell.get("bandwidth")) for cell in cells if cell.objective == objective}


def test_studies_are_the_papers_tables() -> None:
    cells = STUDIES["main"].cells(PAPER)
    assert {(cell.model, cell.objective) for cell in cells} == {(s.model, s.method) for s in paper.rows("main")}
    assert len(cells) == 30 and bands("main", scale=PAPER) == {(1.5, 0.8)}
    widths, margins = (0.1, 0.5, 1, 2, 3, 4, 5, 6), (0, 0.5, 1, 2, 3, 4, 5, 6)
    expected = {(m, tau) for m in (1, 6) for tau in widths} | {(m, tau) for tau in (1, 6) for m in margins}
    assert bands("ablation") == expected
    assert Cell(model="lab", objective="sft") in STUDIES["ablation"].cells(LAB)
    for objective in ("trim", "trim-e", "trim-h"):
        assert bands("half-trims", objective) == {(m, 1) for m in range(1, 6)}


def test_cells_are_shared_and_bases_have_one_seed() -> None:
    of = {name: set(study.cells(LAB, seeds=2)) for name, study in STUDIES.items()}
    assert of["main"] == of["passes"] == of["gaps"]
    assert of["weights"] == of["gradient-mass"] == of["categories"] == {Cell(model="lab", objective="base")}
    cells = STUDIES["main"].cells(LAB, seeds=3)
    assert len(cells) == 1 + 4 * 3 == len(set(cells))
    assert [cell.seed for cell in cells] == [0] + [seed for seed in range(3) for _ in range(4)]
    assert STUDIES["main"].cells(ScaleOptions(seeds=3).to_scale()) == cells
    assert {cell.model for cell in STUDIES["ablation"].cells(PAPER)} == {"Qwen2.5-Math-1.5B"}
