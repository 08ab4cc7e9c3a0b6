"""Settings of an evaluation: what is refused, by field, before anything is loaded or written."""

from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import RunError, UsageError
from trimsft.evaluate import EvalSettings
from trimsft.evaluate.run import make_engine

SERVER = {"server": "http://localhost:8000"}


def settings(**changes: Any) -> EvalSettings:
    return EvalSettings(**{"model": "m", "benchmarks": ("math500",)} | changes)


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"benchmarks": ()}, "benchmarks", "must be one or more"),
        (
            {"benchmarks": ("a/x.jsonl", "b/x.jsonl.gz")},
            "benchmarks",
            "each recorded under a name of its own, got ['x', 'x']",
        ),
        ({"temperature": 0}, "temperature", "makes all 8 samples of a problem the same; set samples=0"),
        ({"temperature": 1e-40}, "temperature", "must be 0 (greedy), or at least 0.0001"),
        ({"temperatures": (1.0,)}, "temperatures", "must be others than 0 (greedy) and 1 (the samples), each once"),
        ({"temperatures": (0.5,), "samples": 0}, "temperatures", "has no effect on the greedy answer alone"),
        ({"temperature_samples": 2}, "temperature_samples", "has no effect without further temperatures"),
        ({"grading": "regex"}, "pattern", "is missing for grading 'regex'"),
        ({"grader": "quen"}, "grader", "unknown name 'quen'; did you mean 'qwen'?"),
        ({"grader": "a b:c"}, "grader", "must be module:Attribute, such as my_module:score"),
        ({"grader": "mine:score", "pattern": "(a)"}, "pattern", "has no effect with the grader 'mine:score'"),
        (SERVER | {"dtype": "float16"}, "dtype", "has no effect on a server"),
        ({"tokenizer": "t"}, "tokenizer", "has no effect without a server"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings(**changes)
    assert refused.value.field == field and says in str(refused.value) and "\n" not in str(refused.value)


def test_options_are_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"model: no such folder: '\./gone'"):
        make_engine(settings(model="./gone", engine="transformers"))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunError, match=r"model: is a run without a model yet, got .*; finish its training first"):
        make_engine(settings(model=str(tmp_path), engine="transformers"))


def test_where_it_is_recorded(tmp_path: Path) -> None:
    assert settings(model="org/Some-Model").run.path == Path("runs/some-model-eval")
    assert settings(model=str(tmp_path), out=tmp_path / "there").run.path == tmp_path / "there"
    (tmp_path / "manifest.json").write_text("{}")
    assert settings(model=str(tmp_path)).run.path == tmp_path
