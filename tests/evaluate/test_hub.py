"""Benchmarks of the hub: asked for by dataset, configuration, split and commit, and read by their columns.

No hub is reached: `datasets.load_dataset` is replaced by one that checks what it is asked and gives a real `Dataset`.
Names of columns are as published; types of columns and forms of answers are assumed.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, Features, List, Value

from trimsft.evaluate.benchmarks import BENCHMARKS, BenchmarkError, Problem, describe_source, load_benchmark

TEXT, INTEGER = Value("string"), Value("int64")
OLYMPIAD = {
    "id": INTEGER,
    "question": TEXT,
    "solution": List(TEXT),
    "final_answer": List(TEXT),
    "context": TEXT,
    **{f"image_{number}": TEXT for number in range(1, 10)},
    "modality": TEXT,
    "difficulty": TEXT,
    "is_multiple_answer": Value("bool"),
    "unit": TEXT,
    "answer_type": TEXT,
    "error": TEXT,
    "question_type": TEXT,
    "subfield": TEXT,
    "subject": TEXT,
    "language": TEXT,
}
HUB: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[dict[str, Any]], list[Problem]]] = {
    "math500": (
        ("HuggingFaceH4/MATH-500", None, "test"),
        dict.fromkeys(("problem", "solution", "answer", "subject", "unique_id"), TEXT) | {"level": INTEGER},
        [{"problem": "1+1?", "answer": "2", "unique_id": "test/algebra/1.json", "level": 2}],
        [Problem("test/algebra/1.json", "1+1?", "2")],
    ),
    "olympiadbench": (
        ("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"),
        OLYMPIAD,
        [
            {"id": 1606, "question": "1+1?", "final_answer": ["$2$"], "is_multiple_answer": False},
            {
                "id": 1607,
                "question": "x?",
                "final_answer": ["$1,2$"],
                "is_multiple_answer": True,
                "error": "",
            },
            {
                "id": 1608,
                "question": "y?",
                "final_answer": ["3.1"],
                "is_multiple_answer": False,
                "error": "1e-1",
            },
        ],
        [
            Problem("1606", "1+1?", "2"),
            Problem("1607", "x?", "1,2", multiple=True),
            Problem("1608", "y?", "3.1", absolute=0.1),
        ],
    ),
    "minerva": (
        ("math-ai/minervamath", None, "test"),
        {"question": TEXT, "answer": TEXT},
        [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4e33"}],
        [
            Problem("minerva-0", "1+1?", "2", tolerance=1e-4),
            Problem("minerva-1", "2+2?", "4e33", tolerance=1e-4),
        ],
    ),
    "amc": (
        ("AI-MO/aimo-validation-amc", None, "train"),
        {"id": INTEGER, "problem": TEXT, "answer": Value("float64"), "url": TEXT},
        [{"id": 0, "problem": "1+1?", "answer": 142.0, "url": "..."}],
        [Problem("0", "1+1?", "142")],
    ),
    "amc23": (
        ("math-ai/amc23", None, "test"),
        {"id": INTEGER, "answer": TEXT, "url": TEXT, "question": TEXT},
        [{"id": 0, "answer": "27.0", "question": "1+1?"}, {"id": 1, "answer": "-1", "question": "0-1?"}],
        [Problem("0", "1+1?", "27"), Problem("1", "0-1?", "-1")],
    ),
    "aime24": (
        ("HuggingFaceH4/aime_2024", None, "train"),
        {"id": INTEGER} | dict.fromkeys(("problem", "solution", "answer", "url", "year"), TEXT),
        [{"id": 60, "problem": "1+1?", "answer": "073"}],
        [Problem("60", "1+1?", "73")],
    ),
    "gsm8k": (
        ("openai/gsm8k", "main", "test"),
        {"question": TEXT, "answer": TEXT},
        [{"question": "1+1?", "answer": "It is\n#### 1,002"}],
        [Problem("gsm8k-0", "1+1?", "1002")],
    ),
}


def test_every_benchmark_is_tested_and_names_a_commit() -> None:
    assert HUB.keys() == BENCHMARKS.keys()
    for name, benchmark in BENCHMARKS.items():
        assert re.fullmatch("[0-9a-f]{40}", benchmark.revision)
        assert describe_source(name).endswith(f"({benchmark.split}) at {benchmark.revision}")


@pytest.mark.parametrize("name", HUB)
def test_what_is_asked_and_how_it_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (dataset, config, split), features, rows, expected = HUB[name]

    def load(path: str, name: str | None = None, *, split: str, revision: str) -> Dataset:
        asked.append((path, name, split, revision))
        return Dataset.from_list([dict.fromkeys(features) | row for row in rows], features=Features(features))

    asked: list[Any] = []
    monkeypatch.setattr("datasets.load_dataset", load)
    assert load_benchmark(name) == expected
    assert asked == [(dataset, config, split, BENCHMARKS[name].revision)]
    assert load_benchmark(name, limit=1) == expected[:1]


def test_a_local_file_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", None)
    path = tmp_path / "gsm8k.jsonl"
    path.write_text(json.dumps({"problem": "1+1?", "answer": "2"}) + "\n")
    assert len(load_benchmark("gsm8k", tmp_path)) == 1
    assert describe_source("gsm8k", tmp_path) == str(path)


@pytest.mark.parametrize("error", [ConnectionError("no\nroute."), ConnectionError()])
def test_out_of_reach_it_names_the_way_out(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **settings: Any) -> None:
        raise error

    monkeypatch.setattr("datasets.load_dataset", refuse)
    with pytest.raises(BenchmarkError) as told:
        load_benchmark("minerva")
    what = "no route" if str(error) else "ConnectionError"
    assert str(told.value) == (
        "benchmark: cannot load 'minerva' from the hub, math-ai/minervamath (test) at "
        f"{BENCHMARKS['minerva'].revision}: {what}. Without the hub, name a folder that holds minerva.jsonl: "
        "--data-dir FOLDER"
    )
