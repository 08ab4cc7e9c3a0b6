"""Notes beside scores: cells that are missing, settings that do not answer, what differs from the paper."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.scoring.graded import same, samples_of
from tests.study.made_up_scores import cell, exact
from trimsft.report.tables.paper import paper_model
from trimsft.scoring.scores import BenchmarkScore, score
from trimsft.study.running.training import model_path
from trimsft.study.scales import SCALES, ModelAt
from trimsft.study.tables.notes import (
    MOST_NAMED,
    is_smoke,
    missing_note,
    partial_note,
    protocol_note,
    scale_note,
    study_title,
    unanswered_note,
)
from trimsft.study.tables.summaries import summarise

PAPER, LAB = SCALES["paper"], SCALES["lab"]
QWEN = "Qwen2.5-Math-1.5B"


def with_answers(answers: Sequence[str]) -> list[BenchmarkScore]:
    samples = [
        sample for number, words in enumerate(answers) for sample in samples_of(f"p{number:03}", words, greedy="1")
    ]
    return [score("easy", samples, same, resamples=20)]


def test_who_gives_no_answer_is_named_by_how_often() -> None:
    found = {
        cell("sft"): exact(0.5, benchmarks=("easy",)),
        cell("trim", margin=4.0, bandwidth=1.0): with_answers(["1 1 1 -", "1 1 1 1"]),
        cell("trim", margin=4.0, bandwidth=1.0, seed=1): with_answers(["1 1 - -", "1 1 1 1"]),
        cell("trim", margin=1.0, bandwidth=1.0): with_answers(["1 - - -", "0 0 - -"]),
    }
    (note,) = unanswered_note(summarise(found, resamples=20))
    assert note == (
        "Samples without an answer, where they are 5 % or more: TrimSFT (margin 1, bandwidth 1) 62 %, TrimSFT "
        "(margin 4, bandwidth 1) 19 %."
    )
    assert unanswered_note(summarise({cell("sft"): exact(0.5)}, resamples=20)) == []


def test_of_many_the_worst_are_named() -> None:
    found = {
        cell("trim", margin=float(margin), bandwidth=1.0): with_answers(["- - - 1"]) for margin in range(MOST_NAMED + 2)
    }
    (note,) = unanswered_note(summarise(found, resamples=20))
    assert note.count("75 %") == MOST_NAMED and note.endswith(", and 2 more.")


def test_missing_cells_are_counted() -> None:
    assert missing_note([]) == []
    cells = [cell("sft", seed) for seed in range(5)]
    assert missing_note(cells) == [
        "Not finished, and so left out: lab/sft/seed0, lab/sft/seed1, lab/sft/seed2 and 2 more."
    ]


def test_cells_without_some_benchmark_are_named() -> None:
    found = {cell("sft"): exact(0.5), cell("trim"): exact(0.5, benchmarks=("easy",))}
    (note,) = partial_note(found, ("easy", "hard"))
    assert note.startswith("Not finished on hard: lab/trim-margin1.5-bandwidth0.8/seed0;")
    assert partial_note(found, ("easy",)) == []


# ---- the paper's models and protocol


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
    assert scale_note(replace(LAB, rows=4800, problems=None)) == (
        "Differs from the scale lab as it comes: 4,800 rows, all problems."
    )
    assert scale_note(replace(LAB, dtype="bfloat16")) == (
        "Differs from the scale lab as it comes: generation in bfloat16."
    )


def test_titles_have_the_number_of_samples():
    assert study_title("pass@8 and best-of-8 by majority vote", LAB, 16) == "pass@16 and best-of-16 by majority vote"
    assert study_title("of 8 and average@80", LAB, 2) == "of 8 and average@80"
    assert study_title("average@8", LAB.tiny(), 2) == "Smoke test, its numbers say nothing: average@2"
