import json
from collections import Counter
from dataclasses import replace

import pytest

from trimsft import lab
from trimsft.data.load import DataConfig, load_rows
from trimsft.errors import UsageError
from trimsft.evaluate.problems import read_problems
from trimsft.lab.arithmetic import TIERS, side_of
from trimsft.lab.data import FineTuning, benchmark, training_rows, write_benchmark, write_training
from trimsft.lab.styles import TARGET, UNFAMILIAR


def test_training_and_evaluation_read_the_files(tmp_path):
    settings = FineTuning(rows=200, slip_rate=0.2)
    path = write_training(str(tmp_path / "train.jsonl"), settings)
    rows = load_rows(DataConfig(dataset_name=str(path)), split="train")
    for column in ("problem", "solution"):
        assert rows[column][:] == [row[column] for row in training_rows(settings)]
    read = read_problems(write_benchmark(tmp_path / "lab-hard.jsonl", "lab-hard", 50))
    assert [(p.id, p.problem, p.answer) for p in read] == [
        (p.id, p.problem, p.answer) for p in benchmark("lab-hard", 50)
    ]


def test_benchmarks_are_distinct_and_grow_at_the_end():
    trained = {row["problem"] for row in training_rows(FineTuning(rows=3000))}
    for tier in TIERS:
        problems = benchmark(tier, 300)
        assert len({p.problem for p in problems}) == len({p.id for p in problems}) == 300
        assert all(side_of(p.start, p.steps) == "benchmark" for p in problems)
        assert not trained & {p.problem for p in problems}
        assert problems[:50] == benchmark(tier, 50)


def test_rows_say_what_was_done_to_them():
    rows = list(training_rows(FineTuning(rows=600, slip_rate=0.2, filler_rate=0.1, unfamiliar_share=0.3)))
    assert Counter(row["style"] for row in rows)[UNFAMILIAR] == pytest.approx(180, abs=45)
    assert set(Counter(row["tier"] for row in rows)) == set(TIERS)
    for row in rows:
        assert row["solution"].startswith("[") == (row["style"] == UNFAMILIAR)
        assert len(row["slip_spans"]) == row["slips"] and len(row["filler_spans"]) == row["fillers"]
        assert all(row["solution"][a:b].isdigit() for a, b in row["slip_spans"])
        ends_right = f"\\boxed{{{row['answer']}}}" in row["solution"]
        assert ends_right or row["slips"]


def test_settings_change_one_thing_and_the_seed_everything():
    clean = FineTuning(rows=50, slip_rate=0, filler_rate=0)
    spoilt = replace(clean, slip_rate=0.5, filler_rate=0.5, unfamiliar_share=0.5)
    rows = {s: list(training_rows(s)) for s in (clean, spoilt, replace(clean, seed=1))}
    problems = [[row["problem"] for row in made] for made in rows.values()]
    assert problems[0] == problems[1]
    assert not set(problems[0]) & set(problems[2])
    assert all(row["style"] == TARGET and not row["slips"] and not row["fillers"] for row in rows[clean])
    assert json.dumps(rows[spoilt]) == json.dumps(list(training_rows(spoilt)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 0}, "rows: must be at least 1, got 0"),
        ({"slip_rate": 1.5}, "slip_rate: must be at most 1, got 1.5"),
        ({"filler_rate": float("nan")}, "filler_rate: must be a number, got nan"),
        ({"unfamiliar_share": "half"}, "unfamiliar_share: must be a number, got 'half'"),
        ({"tiers": ()}, "tiers: must name at least one of lab-easy"),
        ({"tiers": ("easy",)}, "tier: unknown name 'easy'; did you mean 'lab-easy'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        FineTuning(**settings)


def test_a_missing_base_model_says_how_to_build_it(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match="count: must be at least 1, got 0"):
        benchmark("lab-easy", 0)
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(UsageError, match=r"base holds no model.safetensors; .*python -m tools.lab_base.pretrain"):
        lab.base_model_path()
