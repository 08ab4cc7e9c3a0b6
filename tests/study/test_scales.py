"""Scales: what is written down comes back, recipes are the ones of the models, and options change what they name."""

import fcntl
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimsft import paper
from trimsft.evaluate.benchmarks import BENCHMARKS
from trimsft.lab import base_model_path
from trimsft.study.cells import Cell
from trimsft.study.options import Options, changed, find_scale
from trimsft.study.places import Place
from trimsft.study.running.training import model_path, training_settings, training_words
from trimsft.study.scales import LAB, PAPER, SCALES, SMALL, ModelAt, Scale, find_recipe


@pytest.mark.parametrize("name", SCALES)
def test_a_scale_comes_back_from_yaml(name: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.settle(SCALES[name])
    place.settle(SCALES[name])  # once more is no other one
    assert place.read_scale() == SCALES[name]
    with pytest.raises(ValueError, match="the field 'colour' is of another version"):
        Scale.from_dict({**SCALES[name].as_dict(), "colour": "blue"})


def test_two_that_add_a_model_at_once_lose_none(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.settle(LAB)
    with (tmp_path / ".settling").open("a") as other:  # a descriptor of its own is another process to the kernel
        fcntl.flock(other, fcntl.LOCK_EX)
        late = threading.Thread(target=place.settle, args=(replace(LAB, models={"late": ModelAt(path="x")}),))
        late.start()
        late.join(0.2)
        assert late.is_alive() and set(place.read_scale().models) == {"lab"}
        place._settle(replace(LAB, models={"early": ModelAt(path="y")}))
    late.join(10)
    assert set(place.read_scale().models) == {"lab", "early", "late"}


def test_the_paper_scale_has_the_papers_models_and_benchmarks() -> None:
    rows = paper.scores("main")
    assert set(PAPER.models) == {row.model for row in rows}
    assert set(PAPER.benchmarks) == set(rows[0].scores) <= set(BENCHMARKS)
    sizes = {name: model_path(at).rpartition("/")[2].lower() for name, at in PAPER.models.items()}
    for name, hub in sizes.items():
        assert name.replace("-Base", "").rpartition("-")[2].lower() in hub  # 1.5b, 3b, ...
    assert {at.gpus for at in PAPER.models.values()} == {2}


def test_a_cell_of_the_paper_is_its_recipe_with_another_objective(tmp_path: Path) -> None:
    cell = Cell(model="Qwen2.5-Math-1.5B", objective="trim-e", fields=(("margin", 3.0), ("bandwidth", 1.0)), seed=1)
    settings = training_settings(Place(tmp_path), PAPER, cell)
    recipe = yaml.safe_load(find_recipe("qwen2.5-math-1.5b.yaml").read_text())
    assert settings.model.model_name_or_path == recipe["model_name_or_path"]
    assert (settings.args.objective, settings.args.margin, settings.args.bandwidth) == ("trim-e", 3.0, 1.0)
    assert settings.args.global_batch == 24 and settings.data.sample == 20_000
    assert settings.args.learning_rate == recipe["learning_rate"] and settings.args.seed == 1
    sft = training_settings(Place(tmp_path), PAPER, Cell(model="Qwen2.5-Math-1.5B", objective="sft"))
    assert sft.args.objective == "sft"
    assert Path(settings.args.output_dir) == tmp_path / "runs" / cell.name


def test_a_cell_of_the_lab_trains_the_shipped_base_on_its_own_seed(tmp_path: Path) -> None:
    words = training_words(Place(tmp_path), LAB, Cell(model="lab", objective="sft", seed=3))
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert given["--model_name_or_path"] == str(base_model_path())
    assert given["--dataset_name"] == str(tmp_path / "data" / "train-seed3.jsonl")
    assert given["--use_cpu"] == "true" and given["--bf16"] == "false" and "--margin" not in given


def test_options_name_models_data_and_fields(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.touch()
    options = Options(
        models=("mine=.", "smollm2"),
        data=str(data),
        benchmarks=("gsm8k", "math500"),
        fields=("learning_rate=1e-4",),
        seeds=3,
        max_tokens=64,
        gpus=2,
        keep_weights=False,
    )
    scale = changed(SMALL, options)
    assert scale.models["mine"].path == str(Path().resolve()) and scale.models["mine"].parameters is None
    assert scale.models["smollm2"] == replace(SMALL.models["smollm2"], gpus=2)
    assert scale.models["mine"].recipe == SMALL.models["smollm2"].recipe
    assert (scale.data, scale.benchmarks) == (str(data), ("gsm8k", "math500"))
    assert scale.defaults["learning_rate"] == "1e-4" and scale.sampling["max_tokens"] == 64
    assert scale.seeds == 3 and not scale.keep_weights
    assert changed(LAB, Options()) == LAB and changed(LAB, Options(rows=7)) == replace(LAB, rows=7)
    assert changed(PAPER, Options(models=("Llama3.1-8B",))).focus_model == "Llama3.1-8B"
    assert PAPER.focus_model == "Qwen2.5-Math-1.5B" and LAB.focus_model == "lab"


@pytest.mark.parametrize(
    ("scale", "options", "message"),
    [
        (LAB, {"data": "x.jsonl"}, "data: 'x.jsonl' has no effect at scale 'lab'"),
        (
            SMALL,
            {"rows": 9},
            "rows: are those of the lab's task, and scale 'small' trains on other data; --set sample=9",
        ),
        (LAB, {"rows": 0}, "rows: must be a whole number of at least 1, got 0"),
        (PAPER, {"models": ["Qwen"]}, "model: unknown name 'Qwen'; known: Llama3.2-3B, "),
        (SMALL, {"models": ["a=./nowhere"]}, "model: no such file or folder: './nowhere'"),
        (SMALL, {"models": ["a=x", "a=y"]}, "model: a name is given twice"),
        (SMALL, {"models": ["a b=x"]}, "model: 'a b' must be a name of letters"),
        (SMALL, {"fields": ["margin=2"]}, "set: 'margin' is what a study compares"),
        (SMALL, {"fields": ["learning_rate"]}, "set: 'learning_rate' must be NAME=VALUE"),
        (SMALL, {"device": "tpu"}, "device: must be cpu or cuda, got 'tpu'"),
        (SMALL, {"engine": "vlm"}, "engine: must be auto or transformers or vllm, got 'vlm'"),
        (SMALL, {"dtype": "fp16"}, "dtype: must be auto or float32 or bfloat16 or float16, got 'fp16'"),
        (SMALL, {"gpus": 0}, "gpus: must be at least 1, got 0"),
        (SMALL, {"samples": 0}, "samples: must be a whole number of at least 1, got 0"),
        (SMALL, {"benchmark_data": "nowhere"}, "benchmark_data: no such folder: 'nowhere'"),
    ],
)
def test_options_that_cannot_be_are_refused(scale: Scale, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        changed(scale, Options(**options))


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="scale: unknown name 'huge'; known: lab, small, paper"):
        find_scale("huge")
    with pytest.raises(ValueError, match=r"recipe: no file 'nothing\.yaml'"):
        find_recipe("nothing.yaml")
    with pytest.raises(ValueError, match="models: none"):
        replace(LAB, models={})
    assert ModelAt(path="x").gpus == 1
