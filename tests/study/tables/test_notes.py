"""Notes beside scores: cells that are missing, and settings that do not answer."""

from collections.abc import Sequence
from dataclasses import replace

from tests.scoring.graded import same, samples_of
from tests.study.made_up_scores import cell, exact
from trimsft.scoring.scores import BenchmarkScore, score
from trimsft.study.scales import LAB, PAPER
from trimsft.study.tables.notes import MOST_NAMED, missing_note, partial_note, unanswered_note
from trimsft.study.tables.protocol import protocol_note, scale_note
from trimsft.study.tables.summaries import summarise


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


def test_what_generates_otherwise_is_said() -> None:
    assert scale_note(replace(LAB, dtype="bfloat16")) == (
        "Differs from the scale lab as it comes: generation in bfloat16."
    )
    assert scale_note(LAB) == "" and protocol_note(PAPER, ["Qwen2.5-Math-1.5B"]) == ""
