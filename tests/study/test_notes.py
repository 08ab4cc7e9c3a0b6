"""Notes beside scores: cells that are missing, settings that do not answer, what differs from the paper."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.evaluate.graded import same, samples_of, score
from tests.study.made_up_scores import cell, exact
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.study.notes import MOST_NAMED, missing_note, partial_note, protocol_note, study_title, unanswered_note
from trimsft.study.paper_tables import paper_model
from trimsft.study.results import summarise
from trimsft.study.scales import SCALES, Scale
from trimsft.study.steps import model_path

PAPER, LAB = SCALES["paper"], SCALES["lab"]
QWEN = "Qwen2.5-Math-1.5B"


def with_qwen(**changes: str) -> Scale:
    return replace(PAPER, models={QWEN: replace(PAPER.models[QWEN], **changes)})


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
    many = {cell("trim", margin=float(m), bandwidth=1.0): with_answers(["- - - 1"]) for m in range(MOST_NAMED + 2)}
    (note,) = unanswered_note(summarise(many, resamples=20))
    assert note.count("75 %") == MOST_NAMED and note.endswith(", and 2 more.")


def test_missing_and_partial_cells_are_named() -> None:
    found = {cell("sft"): exact(0.5), cell("trim"): exact(0.5, benchmarks=("easy",))}
    (note,) = partial_note(found, ("easy", "hard"))
    assert note.startswith("Not finished on hard: lab/trim-margin1.5-bandwidth0.8/seed0;")
    assert partial_note(found, ("easy",)) == [] == missing_note([])
    told = "Not finished, and so left out: lab/sft/seed0, lab/sft/seed1, lab/sft/seed2 and 2 more."
    assert missing_note([cell("sft", seed) for seed in range(5)]) == [told]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *((name, name) for name in PAPER.models),
        *((model_path(at), name) for name, at in PAPER.models.items()),
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
def test_the_papers_models_are_known_by_hub_names(name, model):
    assert paper_model(name) == model


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (PAPER, ""),
        (
            replace(PAPER.tiny(), data="/data/gsm8k_train.jsonl"),
            "data gsm8k_train.jsonl, per_device_train_batch_size 4, sample 24, first 2 problems of each benchmark, 2 "
            "samples, max_tokens 12.",
        ),
        (with_qwen(path="models/mine"), f"{QWEN} is models/mine."),
        (with_qwen(path=f"/models/{QWEN}"), ""),
        (replace(PAPER, defaults={**PAPER.defaults, "learning_rate": "1e-4"}), "learning_rate 1e-4."),
    ],
)
def test_differences_from_the_protocol_are_said(scale, said):
    assert protocol_note(scale, [QWEN]) == (said and f"Differs from the paper's protocol: {said}")


def test_titles_name_samples_and_smoke_tests():
    assert study_title("pass@8 and best-of-8 by majority vote", LAB, 16) == "pass@16 and best-of-16 by majority vote"
    assert study_title("of 8 and average@80", LAB, 2) == "of 8 and average@80"
    assert study_title("average@8", LAB.tiny(), 2) == "Smoke test, its numbers say nothing: average@2"
    assert study_title("average@8", replace(LAB, table_rows=2), 8) == "average@8"
