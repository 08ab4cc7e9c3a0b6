"""The commands as functions: options as keywords, objects back, the same checks."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

import trimsft
from tests.processes import ROOT
from trimsft import lab
from trimsft.errors import UsageError


def test_tokens_report_evaluation_and_comparison_from_python(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    lab.write_training(data, lab.FineTuning(rows=3, seed=0))
    out = tmp_path / "tokens.parquet"
    tables = trimsft.measure_tokens(lab.base_model_path(), data, limit=2, out=str(out), device="cpu")
    assert [summary.examples for summary in tables.summaries] == [2] and out.is_file()
    report = trimsft.write_report(f"Base={out}", out=str(tmp_path / "report"), margin=1)
    assert report.page.is_file() and report.folder == tmp_path / "report" and not report.others
    for name, seed in (("first", 0), ("second", 1)):
        options = {"limit": 2, "samples": 2, "max_tokens": 48, "seed": seed, "out": str(tmp_path / name)}
        evaluated = trimsft.evaluate_model(lab.base_model_path(), "lab-easy", **options)
        assert [score.problems for score in evaluated.scores] == [2]
    compared = trimsft.compare_runs([tmp_path / "first", tmp_path / "second"])
    assert compared.comparisons and "first" in compared.render("markdown")


def test_rows_stand_in_the_place_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = list(lab.training_rows(lab.FineTuning(rows=2)))
    options: dict[str, Any] = {"device": "cpu", "out": str(tmp_path / "tokens.parquet")}
    tables = trimsft.measure_tokens(lab.base_model_path(), rows, **options)
    assert tables.summaries[0].is_new and tables.summaries[0].examples == 2
    again = trimsft.measure_tokens(lab.base_model_path(), datasets.Dataset.from_list(rows), **options)
    assert not again.summaries[0].is_new  # the same rows are the same data
    assert again.to_pandas()["tokens"].tolist() == [again.summaries[0].tokens]
    assert "R_eff" in str(again) and again._repr_html_().startswith("<pre>")


def test_options_are_parameters_that_can_be_looked_up_and_checked(tmp_path: Path) -> None:
    names = list(inspect.signature(trimsft.evaluate_model).parameters)
    assert names[:2] == ["model", "benchmarks"] and {"samples", "max_tokens", "seed"} <= set(names)
    assert list(inspect.signature(trimsft.audit_data).parameters)[:2] == ["data", "model"]
    script = tmp_path / "typed.py"
    script.write_text('import trimsft\ntrimsft.evaluate_model("m", "gsm8k", smaples=3, max_tokens=4)\n')
    done = subprocess.run([sys.executable, "-m", "mypy", str(script)], capture_output=True, text=True, cwd=ROOT)
    assert 'argument "smaples"' in done.stdout and done.stdout.count("error:") == 1, done.stdout


@pytest.mark.parametrize("wrong", [None, 3, b"m", object(), [None], len, []])
def test_arguments_of_another_kind_are_refused_in_one_line(wrong: Any) -> None:
    base, data = lab.base_model_path(), "d.jsonl"
    calls: dict[str, Callable[[], Any]] = {
        "models": lambda: trimsft.measure_tokens(wrong, data),
        "data": lambda: trimsft.measure_tokens(base, wrong),
        "model": lambda: trimsft.audit_data(data, wrong, out="audit"),
        "runs": lambda: trimsft.write_report(wrong),
        "model_name_or_path": lambda: trimsft.train_model(model=wrong, data=data, output_dir="run"),
        "dataset_name": lambda: trimsft.train_model(model=str(base), data=wrong, output_dir="run"),
    }
    for field, call in calls.items():
        with pytest.raises(UsageError) as caught:
            call()
        assert caught.value.field == field and "\n" not in str(caught.value), field
