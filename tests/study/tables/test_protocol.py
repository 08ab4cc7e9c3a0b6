"""Which model of the paper is meant, and what is said to differ from how the paper did it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from trimsft.report.analysis import _trained_from
from trimsft.report.tables.paper import paper_model
from trimsft.study.running.training import model_path
from trimsft.study.scales import SCALES, ModelAt
from trimsft.study.tables.protocol import is_smoke, protocol_note, scale_note, study_title

PAPER = SCALES["paper"]
QWEN = "Qwen2.5-Math-1.5B"


@pytest.mark.parametrize("name", list(PAPER.models))
def test_the_papers_models_are_known_by_the_hubs_names(name):
    assert paper_model(name) == paper_model(model_path(PAPER.models[name])) == name


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("models/Qwen2.5-Math-1.5B/", QWEN),
        ("qwen2.5_math_1.5b", QWEN),
        ("meta-llama/Meta-Llama-3.1-8B", "Llama3.1-8B"),
        ("Qwen/Qwen2.5-Math-1.5B-Instruct", None),
        ("my-Qwen2.5-Math-1.5B-lora", None),
        ("Llama3.1-8B-Instruct", None),
        ("Qwen/Qwen3-4B", None),
        ("Qwen2.5-Math-1.5B/checkpoint-10", None),
        ("", None),
    ],
)
def test_a_model_derived_from_one_of_the_papers_is_another_model(name, model):
    assert paper_model(name) == model


@pytest.mark.parametrize("model", [f"Qwen/{QWEN}", {"name": f"Qwen/{QWEN}", "fingerprint": "1"}])
def test_a_manifest_names_its_model_in_either_form(model):
    assert paper_model(_trained_from(SimpleNamespace(manifest={"model": model}))) == QWEN
    assert paper_model(_trained_from(SimpleNamespace(manifest={}))) is None


def test_nothing_differs_where_the_papers_scale_is_as_it_comes():
    assert protocol_note(PAPER, list(PAPER.models)) == ""
    assert all(scale_note(scale) == "" for scale in SCALES.values())


def test_a_smoke_test_tells_all_that_it_cut():
    told = protocol_note(replace(PAPER.tiny(), data="/data/gsm8k_train.jsonl"), [QWEN])
    assert told == (
        "Differs from the paper's protocol: data gsm8k_train.jsonl, per_device_train_batch_size 4, sample 24, "
        "first 2 problems of each benchmark, 2 samples, max_tokens 12."
    )
    assert is_smoke(PAPER.tiny()) and is_smoke(replace(PAPER.tiny(), samples=4)) and not is_smoke(PAPER)


def test_another_model_under_the_papers_name_and_another_recipe_are_said():
    elsewhere = replace(PAPER, models={QWEN: replace(PAPER.models[QWEN], path="models/mine")})
    assert protocol_note(elsewhere, [QWEN]) == f"Differs from the paper's protocol: {QWEN} is models/mine."
    same = replace(PAPER, models={QWEN: replace(PAPER.models[QWEN], path=f"/models/{QWEN}")})
    assert protocol_note(same, [QWEN]) == ""
    small = replace(SCALES["small"], models={QWEN: ModelAt(recipe="smollm2-gsm8k.yaml")})
    told = protocol_note(small, [QWEN])
    assert "recipe smollm2-gsm8k.yaml, training of the scale small" in told and "max_tokens 512" in told


def test_changed_fields_are_named_and_those_of_the_scale_are_not():
    changed = replace(PAPER, defaults={**PAPER.defaults, "learning_rate": "1e-4"})
    assert protocol_note(changed, [QWEN]) == "Differs from the paper's protocol: learning_rate 1e-4."
    lab = SCALES["lab"]
    assert scale_note(replace(lab, rows=4800, problems=None)) == (
        "Differs from the scale lab as it comes: 4,800 rows, all problems."
    )


def test_titles_have_the_number_of_samples():
    lab = SCALES["lab"]
    assert study_title("pass@8 and best-of-8 by majority vote", lab, 16) == "pass@16 and best-of-16 by majority vote"
    assert study_title("of 8 and average@80", lab, 2) == "of 8 and average@80"
    assert study_title("average@8", lab.tiny(), 2) == "Smoke test, its numbers say nothing: average@2"
