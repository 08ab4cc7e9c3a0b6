"""Scales: what is written down comes back, recipes are the ones of the models, and options change what they name."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimsft.errors import UsageError
from trimsft.evaluate.benchmarks import BENCHMARKS
from trimsft.lab import TIERS, FineTuning
from trimsft.shipped import find_recipe
from trimsft.study import paper
from trimsft.study.cell import Cell
from trimsft.study.folder import Job, StudyFolder, model_path, training_settings
from trimsft.study.scales import LAB, SCALES, Scale, ScaleOptions
from trimsft.study.studies import STUDIES

PAPER = SCALES["paper"]
SMALL = SCALES["small"]


@pytest.mark.parametrize("name", SCALES)
def test_a_scale_comes_back_from_yaml(name: str, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    for _ in range(2):  # once more is no other one
        folder.settle(SCALES[name], [])
    assert folder.read_scale() == replace(SCALES[name], focus=SCALES[name].focus_model)
    assert (LAB.benchmarks, LAB.rows) == (tuple(TIERS), FineTuning().rows)


def test_the_paper_scale_has_the_papers_models_and_benchmarks() -> None:
    rows = paper.rows("main")
    assert set(PAPER.models) == {row.model for row in rows}
    assert set(PAPER.benchmarks) == set(rows[0].scores) <= set(BENCHMARKS)
    sizes = {name: model_path(at).rpartition("/")[2].lower() for name, at in PAPER.models.items()}
    for name, hub in sizes.items():
        assert name.replace("-Base", "").rpartition("-")[2].lower() in hub  # 1.5b, 3b, ...
    assert {at.gpus for at in PAPER.models.values()} == {2}


def test_a_paper_cell_is_its_recipe_and_an_objective(tmp_path: Path) -> None:
    cell = Cell(model="Qwen2.5-Math-1.5B", objective="trim-e", fields=(("margin", 3.0), ("bandwidth", 1.0)), seed=1)
    settings = training_settings(StudyFolder(tmp_path), PAPER, cell)
    recipe = yaml.safe_load(find_recipe("qwen2.5-math-1.5b.yaml").read_text())
    assert settings.model.model_name_or_path == recipe["model_name_or_path"]
    assert (settings.args.objective, settings.args.margin, settings.args.bandwidth) == ("trim-e", 3.0, 1.0)
    assert settings.args.global_batch == 24 and settings.data.sample == 20_000
    assert settings.args.learning_rate == recipe["learning_rate"] and settings.args.seed == 1
    sft = training_settings(StudyFolder(tmp_path), PAPER, Cell(model="Qwen2.5-Math-1.5B", objective="sft"))
    assert sft.args.objective == "sft"
    assert Path(settings.args.output_dir) == tmp_path / "runs" / cell.name


def test_coders_are_trained_by_the_papers_recipe_on_fewer_rows(tmp_path: Path) -> None:
    for size in ("0.5b", "1.5b"):
        scale, name = SCALES[f"qwen-coder-{size}"], f"Qwen2.5-Coder-{size.upper()}-Instruct"
        cells = STUDIES["main"].cells(scale)
        assert [(cell.model, cell.objective) for cell in cells] == [
            (name, objective) for objective in ("base", "sft", "dft", "trim", "auto-trim")
        ]
        settings = training_settings(StudyFolder(tmp_path), scale, cells[1])
        assert settings.model.model_name_or_path == f"Qwen/{name}" and settings.data.sample == 8_000
        assert (settings.args.learning_rate, settings.args.global_batch, settings.args.max_length) == (5e-5, 24, 2048)
        evaluated = Job(StudyFolder(tmp_path), scale).eval_settings(cells[0], "model")
        assert (evaluated.benchmarks, evaluated.samples) == (("math500",), 8)
        assert (evaluated.temperatures, evaluated.temperature_samples) == ((0.6, 0.3), 4)


def test_options_name_models_data_and_fields(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.touch()
    options = ScaleOptions(
        scale="small",
        models=("mine=.", "smollm2"),
        data=str(data),
        benchmarks=("gsm8k", "math500"),
        fields=("learning_rate=1e-4",),
        seeds=3,
        max_tokens=64,
        gpus="2xA6000",
        keep_weights=False,
    )
    scale = options.to_scale()
    assert scale.models["mine"].path == str(Path().resolve())
    assert options.gpu_kind == "2xA6000" and ScaleOptions(gpus=2).gpu_kind is None
    with pytest.raises(UsageError, match="gpus: must be a number, or number and kind such as 2xA6000, got 'A6000'"):
        ScaleOptions(gpus="A6000").to_scale()
    assert scale.models["smollm2"] == replace(SMALL.models["smollm2"], gpus=2)
    assert scale.models["mine"].recipe == SMALL.models["smollm2"].recipe
    assert (scale.data, scale.benchmarks) == (str(data), ("gsm8k", "math500"))
    assert scale.defaults["learning_rate"] == "1e-4" and scale.sampling["max_tokens"] == 64
    assert scale.seeds == 3 and not scale.keep_weights
    assert ScaleOptions().to_scale() == LAB and ScaleOptions(rows=7).to_scale() == replace(LAB, rows=7)
    own = ScaleOptions(data=str(data), rows=9).to_scale()  # the lab's base on other data
    assert (own.data, own.rows, own.defaults["sample"]) == (str(data), None, 9)
    assert ScaleOptions(scale="paper", models=("Llama3.1-8B",)).to_scale().focus_model == "Llama3.1-8B"
    settings = training_settings(StudyFolder(tmp_path), scale, Cell(model="mine", objective="sft"))
    assert settings.args.learning_rate == 1e-4, "a word becomes what the field is"
    assert PAPER.focus_model == "Qwen2.5-Math-1.5B" and LAB.focus_model == "lab"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ("a=./nowhere",)}, "models: no such file or folder, got './nowhere'"),
        ({"models": ("a=x", "a=y")}, "models: a name is there twice"),
        ({"models": ("a b=x",)}, "models: must be a name of letters, digits and . _ + -, got 'a b'"),
        ({"fields": ("margin=2",)}, "fields: 'margin' is what a study compares"),
        ({"fields": ("learning_rate",)}, "fields: must be NAME=VALUE, such as learning_rate=1e-4, got 'learning_rate'"),
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


def test_one_model_studies_take_the_papers_where_it_is_there() -> None:
    llama = ScaleOptions(scale="paper", models=("Llama3.2-3B",)).to_scale()
    for name, scale, models in (
        ("ablation", PAPER, {"Qwen2.5-Math-1.5B"}),
        ("passes", PAPER, {"Qwen2.5-Math-1.5B", "Llama3.1-8B"}),
        ("passes", llama, {"Llama3.2-3B"}),
    ):
        assert {cell.model for cell in STUDIES[name].cells(scale)} == models
